"""Rebasing a session onto another commit, and the entries that its changes were derived from."""

from collections.abc import Iterable, Sequence

from memotree_storage.conflicts import Conflict
from memotree_storage.errors import AbortedError
from memotree_storage.mirror.staged_merge import check_merged, merge_onto, path_of
from memotree_storage.model.codec import decode_entry
from memotree_storage.model.node import Entry
from memotree_storage.postgres import sessions, staging
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
            found[row.entry_id] = decode_entry(path_of(row), repository.read_blob(row.derived_blob))
    return found


async def rebase_session(snapshot: Snapshot, store: Store, session_id: str) -> None:
    """Rebase all changes of a session onto another commit, in a transaction that holds the session.

    Raises:
        ConflictError: Both sides changed the same field, or the result would not be a tree; nothing was changed.
    """
    merging = await merge_onto(snapshot, store.entries, await staging.staged(snapshot.conn, session_id))
    checked = await check_merged(snapshot, merging, set(), store.max_depth)
    conflicts = [*merging.conflicts, *checked.conflicts]
    if conflicts:
        raise ConflictError.of(conflicts)
    for item in merging.merged:
        if item.theirs_blob != item.row.derived_blob:
            await staging.restage(snapshot.conn, session_id, item.row, item.entry, item.theirs_blob)
    await staging.mark_conflicts(snapshot.conn, session_id, [])
    await sessions.set_base(snapshot.conn, session_id, snapshot.state.commit_id)
