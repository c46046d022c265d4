"""The answers of GetTree: the beginning of a tree with the number of the nodes that are left out, or one page of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from memotree_storage.postgres import tree
from memotree_storage.postgres.tree import Branching, Snapshot
from memotree_storage.postgres.tree_pages import PagedNode, Place, Top, page
from memotree_storage.store import Store

from memotree.canvas.node_messages import nodes_at
from memotree.request.messages import Level
from memotree.v1 import node_service_pb2 as pb

CURSOR: Final[Mapping[str, type]] = {"after": str, "home": str, "position": str}
"""The place of the last node shown. So a token has the same size at any depth."""


@dataclass(frozen=True, slots=True)
class _Shown:
    """A node of an answer: how deep it is, whether it is the last of its siblings, and its ancestors below the top."""

    entry_id: str
    depth: int
    is_last: bool
    way: Sequence[str]


async def beginning(
    snapshot: Snapshot, store: Store, top: Top, most: int, level: Level.ValueType
) -> pb.GetTreeResponse:
    """The first ``most`` nodes of a tree; reads the ids of all of it, since the answer counts the rest."""
    if top.is_archive:
        found = await tree.archive_tree(snapshot, top.entry_id, max_depth=top.max_depth)
    else:
        found = await tree.subtree(snapshot, [top.entry_id], max_depth=top.max_depth)
    nodes = await _messages(snapshot, store, top, _first(found, most), level)
    return pb.GetTreeResponse(nodes=nodes, truncated=max(0, len(found) - most))


async def one_page(
    snapshot: Snapshot, store: Store, top: Top, size: int, level: Level.ValueType, cursor: Mapping[str, Any] | None
) -> tuple[pb.GetTreeResponse, Mapping[str, Any] | None]:
    """A page of a tree, from the place in the cursor, and the cursor of the next page; reads only what it shows.

    Raises:
        PlaceRemovedError: In a session, the parent of the last node shown was removed since.
    """
    after = Place(cursor["after"], cursor["home"], cursor["position"]) if cursor else None
    found = await page(snapshot, top, size, after)
    nodes = await _messages(snapshot, store, top, list(map(_shown, found.nodes)), level)
    last = found.nodes[-1].place if found.has_more else None
    more = {"after": last.entry_id, "home": last.home_id, "position": last.position} if last is not None else None
    return pb.GetTreeResponse(nodes=nodes), more


async def _messages(
    snapshot: Snapshot, store: Store, top: Top, found: Sequence[_Shown], level: Level.ValueType
) -> list[pb.TreeNode]:
    above = [] if top.is_archive else (await tree.ancestors(snapshot, [top.entry_id]))[top.entry_id]
    ways = {item.entry_id: [*above, *item.way] for item in found}
    nodes = {node.id: node for node in await nodes_at(snapshot, store, list(ways), level, ways=ways)}
    return [
        pb.TreeNode(node=nodes[item.entry_id], depth=item.depth, last=item.is_last)
        for item in found
        if item.entry_id in nodes  # not if a session removed it since
    ]


def _shown(node: PagedNode) -> _Shown:
    return _Shown(node.place.entry_id, node.depth, node.is_last, node.way)


def _first(found: Sequence[Branching], most: int) -> list[_Shown]:
    last = _last_siblings(found)
    path: list[str] = []
    shown = []
    for number, item in enumerate(found[:most]):
        del path[item.depth :]
        shown.append(_Shown(item.entry_id, item.depth, last[number], tuple(path)))
        path.append(item.entry_id)
    return shown


def _last_siblings(found: Sequence[Branching]) -> list[bool]:
    """For each node, whether no sibling follows it."""
    last = [True] * len(found)
    followed: list[bool] = []  # by depth: whether a sibling of that depth was seen after this place
    for number in range(len(found) - 1, -1, -1):
        depth = found[number].depth
        followed.extend([False] * (depth + 1 - len(followed)))
        last[number] = not followed[depth]
        followed[depth] = True
        del followed[depth + 1 :]
    return last
