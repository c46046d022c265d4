"""Finds stale summaries from the tree alone, by comparing the hash a summary was made of with the current hash.

The check of a node needs only its children. So after a commit only the ancestors of changed nodes are read, however
large the tree is.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import Final

from memotree_storage.model.attribute_names import SUMMARY_OF, SUMMARY_PENDING
from memotree_storage.model.node import SUMMARY_TYPE
from memotree_storage.model.provenance import PENDING_CONTENT, hash_of_children
from memotree_storage.postgres import tree
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot, State

_AT_ONCE: Final = 2000


class Reason(Enum):
    """Why a summary is stale."""

    CONTENT = "content"
    CHILDREN = "children"
    PENDING = "pending"


@dataclass(frozen=True, slots=True)
class Scope:
    """Nodes of one state to check, with the children of the summary nodes among them.

    Attributes:
        levels: The ids of the nodes to check by depth, the deepest first; no node of a level is below another of it.
        versions: The versions of the nodes to check and of the children, by id.
        children: The ids of the children of each summary node to check, in their order; empty if all its children were
            deleted.
    """

    levels: Sequence[Sequence[str]]
    versions: Mapping[str, Version]
    children: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Stale:
    """A node whose summary is stale, and why."""

    version: Version
    reason: Reason


async def around(
    conn: Connection, state: State, changed: Iterable[str], before: Iterable[tuple[State, Collection[str]]] = ()
) -> Scope:
    """Returns the nodes whose summaries a change may have made stale: the changed nodes and all their ancestors.

    Args:
        conn: A connection.
        state: The state to check.
        changed: Ids of nodes that are new, changed, moved or deleted.
        before: Other states, each with those of the nodes that may have had other ancestors there.
    """
    ids = set(changed)
    wanted = ids | await _above(Snapshot(conn, state), ids)
    for other, displaced in before:
        if displaced:
            wanted |= await _above(Snapshot(conn, other), displaced)
    return await scope_of(Snapshot(conn, state), wanted)


async def _above(snapshot: Snapshot, ids: Collection[str]) -> set[str]:
    """The ancestors of nodes, and those that deleted ones had."""
    found = set[str]().union(*(await tree.ancestors(snapshot, ids)).values())
    gone = await tree.versions(snapshot, ids, dead=True)
    parents = {version.parent_id for version in gone.values() if version.parent_id} - found
    return found.union(parents, *(await tree.ancestors(snapshot, parents)).values()) if parents else found


async def without(snapshot: Snapshot, scope: Scope, left_out: Collection[str]) -> Scope:
    """Returns the scope of a session as if some of its changes were not made; the nodes of these are not checked.

    Args:
        snapshot: A snapshot of the session's base.
        scope: The scope with all changes of the session.
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
    """Returns every node of some archives."""
    wanted = [item.entry_id for archive_id in archive_ids for item in await tree.archive_tree(snapshot, archive_id)]
    return await scope_of(snapshot, wanted)


async def scope_of(snapshot: Snapshot, ids: Collection[str]) -> Scope:
    """Returns the given nodes as a scope; those that are not alive are left out."""
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
    """Returns the stale nodes of a scope, the deepest first.

    Args:
        scope: The nodes to check.
        with_models: Whether a chat model is configured; only then pending summaries, which the built-in model made in
            its place, count as stale.
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
    """Returns why a node's summary is stale; ``None`` if it is not stale, or was written by hand.

    Args:
        version: The node.
        scope: The scope that has its children.
        summaries: The current versions of its children.
        below: Ids of stale nodes; the parent of a stale node is stale, too.
        with_models: Whether a chat model is configured.
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
        paths = await tree.ancestors(snapshot, ids[start : start + _AT_ONCE])
        for entry_id, path in paths.items():
            found.setdefault(len(path), []).append(entry_id)
    return [sorted(found[depth]) for depth in sorted(found, reverse=True)]
