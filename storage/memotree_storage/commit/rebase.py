"""Staged changes over another base: a three-way merge per node and field, from the blob each was derived from."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memotree_storage.commit.tree_check import check_tree
from memotree_storage.errors import AbortedError, Conflict
from memotree_storage.model.codec import archive_path, decode_entry, node_path
from memotree_storage.model.merge import merge_entries
from memotree_storage.model.node import Entry
from memotree_storage.postgres import sessions, staging, tree
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.staging import Staged
from memotree_storage.postgres.tree import Snapshot
from memotree_storage.store import Store


class ConflictError(AbortedError):
    """Both the session and the branch changed the same field of the same node; ``conflicts`` has each."""

    reason = "CONFLICT"

    @classmethod
    def of(cls, conflicts: Sequence[Conflict]) -> "ConflictError":
        """The error that lists the conflicts."""
        return cls(
            f"The branch has moved and {len(conflicts)} change(s) of this session conflict with it. Nothing was "
            "committed and everything is still staged. Discard those changes (DiscardChanges), rebase the session "
            "(RebaseSession) and make them again.",
            conflicts,
        )


@dataclass(frozen=True, slots=True)
class MergedChange:
    """One staged change on a new base: the entry as it shall be, the entry and blob there, and what conflicts."""

    row: Staged
    entry: Entry | None
    theirs: Entry | None
    theirs_blob: str | None
    conflicts: tuple[Conflict, ...] = ()


@dataclass(slots=True)
class MergedChanges:
    """Staged changes on a new base, with all conflicts, and the versions that their entries have there."""

    merged: list[MergedChange] = field(default_factory=list)
    at_head: Mapping[str, Version] = field(default_factory=dict)

    @property
    def conflicts(self) -> list[Conflict]:
        """Every conflict."""
        return [conflict for item in self.merged for conflict in item.conflicts]


async def merge_onto(snapshot: Snapshot, store: Store, rows: Sequence[Staged]) -> MergedChanges:
    """Merge staged changes onto a state; a change whose node did not change there is taken as it is."""
    at_head = await tree.versions(snapshot, [row.entry_id for row in rows])
    wanted = [row for row in rows if row.derived_blob and row.derived_blob != _blob(at_head.get(row.entry_id))]
    theirs = await store.entries.load(snapshot.state.workspace_id, list(at_head.values()))
    bases = await asyncio.to_thread(_read_bases, store, snapshot.state.workspace_id, wanted)
    return MergedChanges([_merge(row, at_head.get(row.entry_id), theirs, bases) for row in rows], at_head)


def _merge(
    row: Staged, at_head: Version | None, theirs: Mapping[str, Entry], bases: Mapping[str, Entry]
) -> MergedChange:
    ours, blob = row.entry, _blob(at_head)
    other = theirs[blob] if blob else None
    if blob == row.derived_blob:
        return MergedChange(row, ours, other, blob)
    base = bases[row.entry_id] if row.derived_blob else None
    result = merge_entries(base, ours, other)
    return MergedChange(row, result.entry, other, blob, result.conflicts)


def _blob(version: Version | None) -> str | None:
    return version.blob if version else None


def _read_bases(store: Store, workspace_id: str, rows: Sequence[Staged]) -> dict[str, Entry]:
    repository = store.repositories.get(workspace_id)
    found = {}
    for row in rows:
        path = archive_path(row.entry_id) if row.version.is_archive else node_path(row.entry_id)
        found[row.entry_id] = decode_entry(path, repository.read_blob(row.derived_blob or ""))
    return found


async def carry_over(snapshot: Snapshot, store: Store, session_id: str) -> None:
    """Lay what is still staged over a new base: clean merges are taken, conflicting changes keep what they came from.

    A change that conflicts is merged again at its own commit, which then names the conflict.
    """
    rows = await staging.staged(snapshot.conn, session_id)
    for item in (await merge_onto(snapshot, store, rows)).merged:
        if not item.conflicts and item.theirs_blob != item.row.derived_blob:
            await staging.restage(snapshot.conn, session_id, item.row, item.entry, item.theirs_blob)


async def rebase_session(snapshot: Snapshot, store: Store, session_id: str) -> None:
    """Lay all changes of a session over another commit, in a transaction that holds the session.

    Raises:
        ConflictError: Both sides changed the same field, or the result would be no tree; nothing was changed.
    """
    merging = await merge_onto(snapshot, store, await staging.staged(snapshot.conn, session_id))
    entries: dict[str, Entry | None] = {item.row.entry_id: item.entry for item in merging.merged}
    checked = await check_tree(snapshot, entries, set())
    conflicts = [*merging.conflicts, *checked.conflicts]
    if conflicts:
        raise ConflictError.of(conflicts)
    for item in merging.merged:
        if item.theirs_blob != item.row.derived_blob:
            await staging.restage(snapshot.conn, session_id, item.row, item.entry, item.theirs_blob)
    await sessions.set_base(snapshot.conn, session_id, snapshot.state.commit_id)
