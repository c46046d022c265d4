"""Merging staged changes onto another base: three ways, per node and field, from the blob each was derived from."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from memotree_storage.commit.tree_check import check_tree
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import AbortedError, Conflict
from memotree_storage.model.codec import decode_entry
from memotree_storage.model.merge import merge_entries
from memotree_storage.model.node import Entry
from memotree_storage.model.paths import archive_path, node_path
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
        """The error for these conflicts."""
        return cls(
            f"The branch has moved and {len(conflicts)} change(s) of this session conflict with it. Nothing was "
            "committed and everything is still staged. Discard those changes (DiscardChanges), rebase the session "
            "(RebaseSession) and make them again.",
            conflicts,
        )


@dataclass(frozen=True, slots=True)
class MergedChange:
    """One staged change on a new base.

    Attributes:
        row: The staged change.
        entry: The merged entry; ``None`` if it is deleted.
        theirs: The entry on the new base; ``None`` if it is not alive there.
        theirs_blob: Its blob.
        conflicts: The fields that both sides changed.
    """

    row: Staged
    entry: Entry | None
    theirs: Entry | None
    theirs_blob: str | None
    conflicts: tuple[Conflict, ...] = ()


@dataclass(slots=True)
class MergedChanges:
    """Staged changes on a new base; ``at_head`` has the versions of their entries there, by id."""

    merged: list[MergedChange] = field(default_factory=list)
    at_head: Mapping[str, Version] = field(default_factory=dict)

    @property
    def conflicts(self) -> list[Conflict]:
        """The conflicts of all changes."""
        return [conflict for item in self.merged for conflict in item.conflicts]


async def merge_onto(snapshot: Snapshot, store: Store, rows: Sequence[Staged]) -> MergedChanges:
    """Merge staged changes onto a state. A change is taken unchanged if its entry is as it was derived from there."""
    at_head = await tree.versions(snapshot, [row.entry_id for row in rows])
    wanted = [row for row in rows if row.derived_blob and row.derived_blob != _blob(at_head.get(row.entry_id))]
    theirs = await store.entries.load(snapshot.state.workspace_id, list(at_head.values()))
    bases = await in_store_thread(read_bases, store, snapshot.state.workspace_id, wanted)
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


def read_bases(store: Store, workspace_id: str, rows: Iterable[Staged], *, lost: bool = False) -> dict[str, Entry]:
    """The entries that staged changes were derived from, by id. Blocks; call it in a thread.

    Args:
        store: An open store.
        workspace_id: The workspace.
        rows: The staged changes.
        lost: Leave out those that the repository lacks: a restored backup may be older than a session.
    """
    repository = store.repositories.get(workspace_id)
    found = {}
    for row in rows:
        if row.derived_blob and not (lost and not repository.exists(row.derived_blob)):
            path = archive_path(row.entry_id) if row.version.is_archive else node_path(row.entry_id)
            found[row.entry_id] = decode_entry(path, repository.read_blob(row.derived_blob))
    return found


async def carry_over(snapshot: Snapshot, store: Store, session_id: str) -> None:
    """Rebase what is still staged: clean merges get the new base, conflicting changes keep the blob they came from.

    A change that conflicts is merged again when it is committed; that commit then reports the conflict.
    """
    rows = await staging.staged(snapshot.conn, session_id)
    for item in (await merge_onto(snapshot, store, rows)).merged:
        if not item.conflicts and item.theirs_blob != item.row.derived_blob:
            await staging.restage(snapshot.conn, session_id, item.row, item.entry, item.theirs_blob)


async def rebase_session(snapshot: Snapshot, store: Store, session_id: str) -> None:
    """Rebase all changes of a session onto another commit, in a transaction that holds the session.

    Raises:
        ConflictError: Both sides changed the same field, or the result would not be a tree; nothing was changed.
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
