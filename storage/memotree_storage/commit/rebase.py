"""Rebasing a session onto another commit, and the entries that its changes were derived from."""

from collections.abc import Iterable, Sequence

from memotree_storage.commit.session_merge import fitting_files
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.conflicts import Conflict
from memotree_storage.errors import AbortedError
from memotree_storage.mirror.staged_merge import check_merged, merge_onto, path_of, refresh_conflicts, restage_merged
from memotree_storage.model.codec import decode_entry
from memotree_storage.model.node import Entry
from memotree_storage.postgres import sessions, staging
from memotree_storage.postgres.session_conflicts import set_tree_conflicts
from memotree_storage.postgres.sessions import Session
from memotree_storage.postgres.staging import Staged
from memotree_storage.postgres.tree import Snapshot
from memotree_storage.store import Store


class ConflictError(AbortedError):
    """Both the session and the branch changed the same field of the same node; ``conflicts`` has each."""

    reason = "CONFLICT"

    @classmethod
    def unresolved(cls, conflicts: Sequence[Conflict]) -> "ConflictError":
        """The error for conflicts that the session keeps."""
        return cls(
            "The session has conflicts that are not resolved. Nothing was committed and everything is still staged. "
            "Choose for each of them (ListConflicts, ResolveConflicts), and commit again.",
            conflicts,
        )

    @classmethod
    def of(cls, conflicts: Sequence[Conflict]) -> "ConflictError":
        """The error for these conflicts."""
        return cls(
            f"The branch has moved and {len(conflicts)} change(s) of this session conflict with it. Nothing was "
            "committed and everything is still staged. Rebase the session with keep_conflicts (RebaseSession), and "
            "choose for each of them (ListConflicts, ResolveConflicts); or discard those changes (DiscardChanges).",
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


async def rebase_session(snapshot: Snapshot, store: Store, session: Session, *, keep_conflicts: bool = False) -> None:
    """Rebase all changes of a session onto another commit, in a transaction that holds the session.

    Args:
        snapshot: The commit.
        store: An open store.
        session: The session.
        keep_conflicts: Rebase it also if there are conflicts, which the session keeps until they are resolved. Of a
            file that is no entry and that both sides changed, it keeps the branch's version.

    Raises:
        ConflictError: Both sides changed the same field, or the result would not be a tree; nothing was changed.
    """
    conn, session_id = snapshot.conn, session.session_id
    rows = await staging.staged(conn, session_id)
    merging = await merge_onto(snapshot, store.entries, rows, brings=session.brings)
    checked = await check_merged(snapshot, merging, set(), store.max_depth, is_merge=session.brings)
    conflicts = [*merging.conflicts, *checked.conflicts]
    if conflicts and not keep_conflicts:
        raise ConflictError.of(conflicts)
    await restage_merged(conn, session_id, merging, brings=session.brings)
    await sessions.set_base(conn, session_id, snapshot.state.commit_id)
    await refresh_conflicts(snapshot, store.entries, session_id)
    await set_tree_conflicts(conn, session_id, checked.conflicts)
    if keep_conflicts and session.files:
        repository = store.repositories.get(session.workspace_id)
        files = await in_store_thread(fitting_files, repository, session.files, snapshot.state.commit_id)
        await sessions.set_merged(conn, session_id, session.merged, files)
