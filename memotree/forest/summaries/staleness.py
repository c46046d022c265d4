"""Which summaries are out of date, told from the tree alone: what a summary was made of is compared with what is there.

A node is looked at with its children only, so that after a commit just the ancestors of what changed are read, however
large the tree is.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import Final

from memotree_storage.model.attributes import SUMMARY_OF, SUMMARY_PENDING
from memotree_storage.model.node import SUMMARY_TYPE
from memotree_storage.model.provenance import PENDING_CONTENT, hash_of_children
from memotree_storage.postgres import tree
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot, State

_AT_ONCE: Final = 2000


class Reason(Enum):
    """Why a summary is to be made anew."""

    CONTENT = "content"
    CHILDREN = "children"
    PENDING = "pending"


@dataclass(frozen=True, slots=True)
class Scope:
    """Some nodes of one state with the children of those that are summed up from them.

    Attributes:
        levels: The nodes to look at by their depth, the deepest first; none of a level is below another of it.
        versions: Every node of the scope, and the children, by id.
        children: The ids directly below each node to look at that is summed up from its children, in their order; none
            below one whose children have all gone, which has nothing left to tell.
    """

    levels: Sequence[Sequence[str]]
    versions: Mapping[str, Version]
    children: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Stale:
    """A node whose summary is to be made anew, and why."""

    version: Version
    reason: Reason


async def around(conn: Connection, states: Sequence[State], changed: Iterable[str]) -> Scope:
    """What may have become stale when some nodes changed: they and everything above them.

    Args:
        conn: A connection.
        states: The state to look at, and others (the one before the change) where the nodes may have stood elsewhere.
        changed: Ids of nodes that are new, changed, moved or deleted.
    """
    ids = set(changed)
    wanted = set(ids)
    for state in states:
        wanted.update(*(await tree.ancestors(Snapshot(conn, state), ids)).values())
        gone = await tree.versions(Snapshot(conn, state), ids, dead=True)
        parents = {version.parent_id for version in gone.values() if version.parent_id} - wanted
        wanted |= parents
        wanted.update(*(await tree.ancestors(Snapshot(conn, state), parents)).values())
    return await scope_of(Snapshot(conn, states[0]), wanted)


async def without(snapshot: Snapshot, scope: Scope, left_out: Collection[str]) -> Scope:
    """A scope of a session as if some of its changes were not made; the nodes of those are not looked at.

    Args:
        snapshot: The state that the session changes.
        scope: What was read in the session.
        left_out: Ids of the nodes whose changes do not count.
    """
    before = await _versions(snapshot, left_out)
    versions = {entry_id: found for entry_id, found in scope.versions.items() if entry_id not in left_out} | before
    levels = [[entry_id for entry_id in level if entry_id not in left_out] for level in scope.levels]
    children = {
        parent: sorted(
            [
                *(child for child in below if child not in left_out),
                *(child for child, version in before.items() if version.parent_id == parent),
            ],
            key=lambda child: (versions[child].position, child),
        )
        for parent, below in scope.children.items()
        if parent not in left_out
    }
    return Scope(levels, versions, children)


async def everywhere(snapshot: Snapshot, archive_ids: Iterable[str]) -> Scope:
    """Every node of some archives."""
    wanted = [item.entry_id for archive_id in archive_ids for item in await tree.archive_tree(snapshot, archive_id)]
    return await scope_of(snapshot, wanted)


async def scope_of(snapshot: Snapshot, ids: Collection[str]) -> Scope:
    """The given nodes as a scope; those that are not alive are left out."""
    versions = await _versions(snapshot, ids)
    derived = [entry_id for entry_id, version in versions.items() if version.type == SUMMARY_TYPE]
    children: dict[str, Sequence[str]] = dict.fromkeys(derived, ())
    for start in range(0, len(derived), _AT_ONCE):
        children |= await tree.directly_below(snapshot, derived[start : start + _AT_ONCE])
    missing = {child for below in children.values() for child in below} - versions.keys()
    looked_at = [entry_id for entry_id, version in versions.items() if not version.is_archive]
    levels = await _levels(snapshot, looked_at)
    versions |= await _versions(snapshot, missing)
    return Scope(levels, versions, children)


def stale(scope: Scope, *, with_models: bool) -> list[Stale]:
    """The stale nodes of a scope, the deepest first.

    Args:
        scope: The nodes.
        with_models: Whether a chat model is there: only then a summary that stands in for its own counts.
    """
    found: dict[str, Stale] = {}
    for entry_id in chain.from_iterable(scope.levels):
        reason = reason_of(scope.versions[entry_id], scope, scope.versions, found, with_models=with_models)
        if reason is not None:
            found[entry_id] = Stale(scope.versions[entry_id], reason)
    return list(found.values())


def reason_of(
    version: Version,
    scope: Scope,
    summaries: Mapping[str, Version],
    below: Collection[str] = (),
    *,
    with_models: bool,
) -> Reason | None:
    """Why a node's summary is to be made anew; ``None`` when it is not, or was written by hand.

    Args:
        version: The node.
        scope: Where it stands.
        summaries: The children as they are now.
        below: Ids of nodes that are stale: what stands above one will be.
        with_models: Whether a chat model is there.
    """
    made_of = version.attributes.get(SUMMARY_OF)
    if made_of is None:
        return None
    pending = version.attributes.get(SUMMARY_PENDING, "")
    if pending == PENDING_CONTENT:
        return Reason.CONTENT
    children = scope.children.get(version.entry_id)
    if version.type == SUMMARY_TYPE and children is not None:
        now = hash_of_children((child, summaries[child].summary) for child in children)
        if now != made_of or any(child in below for child in children):
            return Reason.CHILDREN
    return Reason.PENDING if pending and with_models else None


async def _versions(snapshot: Snapshot, ids: Iterable[str]) -> dict[str, Version]:
    wanted = list(ids)
    found: dict[str, Version] = {}
    for start in range(0, len(wanted), _AT_ONCE):
        found |= await tree.versions(snapshot, wanted[start : start + _AT_ONCE])
    return found


async def _levels(snapshot: Snapshot, ids: Sequence[str]) -> list[list[str]]:
    found: dict[int, list[str]] = {}
    for start in range(0, len(ids), _AT_ONCE):
        ways = await tree.ancestors(snapshot, ids[start : start + _AT_ONCE])
        for entry_id, way in ways.items():
            found.setdefault(len(way), []).append(entry_id)
    return [sorted(found[depth]) for depth in sorted(found, reverse=True)]
