"""The answers of GetTree: the beginning of a tree with the number of the nodes that are left out, or one page of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from memotree_storage.mirror.contents import read_nodes
from memotree_storage.model.node import SUMMARY_TYPE
from memotree_storage.model.tokens import CHARS_PER_TOKEN, in_pieces
from memotree_storage.postgres import tree
from memotree_storage.postgres.tree import Branching, Snapshot
from memotree_storage.postgres.tree_pages import PagedNode, Place, Top, page
from memotree_storage.store import Store

from memotree.canvas.node_messages import nodes_at
from memotree.request.messages import DETAIL, SUMMARY, Level
from memotree.v1 import node_service_pb2 as pb

CURSOR: Final[Mapping[str, type]] = {"after": str, "home": str, "position": str}
"""The place of the last node shown. So a token has the same size at any depth."""

_MOST_BYTES: Final = 4 << 20
"""A page with contents ends with the node that makes them this long together."""

_READ_AT_ONCE: Final = 200


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
    nodes = await _messages(snapshot, store, top, list(map(_shown, found.nodes)), min(level, SUMMARY))
    count = len(found.nodes)
    if level >= DETAIL:
        last_id = await _add_contents(snapshot, store, nodes)
        count = next((place + 1 for place, node in enumerate(found.nodes) if node.place.entry_id == last_id), count)
        kept = {node.place.entry_id for node in found.nodes[:count]}
        nodes = [each for each in nodes if each.node.id in kept]
    last = found.nodes[count - 1].place if found.has_more or count < len(found.nodes) else None
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


async def _add_contents(snapshot: Snapshot, store: Store, nodes: Sequence[pb.TreeNode]) -> str:
    """Put the contents into nodes, as far as the page may be long; returns the id of the last node that fits, or "".

    A summary node has none: what would be joined for it stands in the nodes below, which the pages have as well.
    """
    versions = await tree.versions(snapshot, [each.node.id for each in nodes])
    messages = {each.node.id: each.node for each in nodes}
    present = [versions[entry_id] for entry_id in messages if entry_id in versions]
    room = _MOST_BYTES
    for piece in in_pieces(present, _READ_AT_ONCE, _MOST_BYTES // CHARS_PER_TOKEN):
        own = [version for version in piece if version.tokens and version.type != SUMMARY_TYPE]
        contents = await read_nodes(snapshot, store.entries, own)
        for version in piece:
            message = messages[version.entry_id]
            message.level = DETAIL
            if version.entry_id in contents:
                message.content = contents[version.entry_id].content
                room -= len(message.content.encode())
            if room <= 0:
                return version.entry_id
    return ""


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
