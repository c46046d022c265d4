"""Restoring entries of another commit on a branch, as one new commit."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from memotree_storage.commit.merge_commit import Identity, MergeConflictError, Merged, on_head, write_merge
from memotree_storage.commit.session_commit import NothingToCommitError
from memotree_storage.commit.transaction import WorkspaceTransaction
from memotree_storage.mirror.state_merge import StateMerge
from memotree_storage.mirror.state_restore import Restored, restore_entries
from memotree_storage.model.node import Archive
from memotree_storage.postgres.tree import State

_REMEDY: Final = (
    "What stands around them has changed since. Restore in a session to resolve that there (ListConflicts, "
    "ResolveConflicts), or restore more of the tree."
)

FindRestored = Callable[[], Awaitable[tuple[State, Restored]]]
"""Finds the commit at which the entries are as wanted, and these, in the mirror as it is then."""


@dataclass(frozen=True, slots=True)
class RestoreOrder:
    """What to restore.

    Attributes:
        branch: The branch that gets it.
        message: Subject and body; "" for one that names what was restored.
        identity: Who commits.
    """

    branch: str
    message: str
    identity: Identity


async def restore_on_branch(transaction: WorkspaceTransaction, order: RestoreOrder, find: FindRestored) -> Merged:
    """Restore entries on a branch, in a transaction that holds the workspace.

    Raises:
        BranchNotFoundError: There is no such branch.
        MergeConflictError: The result would not be a tree.
        NothingToCommitError: They are as wanted already.
        BranchBusyError: Another program kept moving the branch.
    """
    conn, store = transaction.conn, transaction.store

    async def attempt(head: State) -> Merged | None:
        source, restored = await find()
        merge = await restore_entries(conn, store.entries, head, source, restored, max_depth=store.max_depth)
        check_restored(merge, source)
        message = order.message or _message(merge, source)
        return await write_merge(transaction, order.branch, merge, order.identity, message)

    return await on_head(transaction, order.branch, order.identity.request, attempt)


def check_restored(merge: StateMerge, source: State) -> None:
    """Refuse to restore what cannot be restored, or is as wanted.

    Raises:
        MergeConflictError: The result would not be a tree.
        NothingToCommitError: They are as wanted already.
    """
    if merge.conflicts:
        raise MergeConflictError.of(merge.conflicts, _REMEDY)
    if merge.is_empty:
        raise NothingToCommitError(f"All of it is as it was at commit {source.commit_id} already; nothing was written.")


def _message(merge: StateMerge, source: State) -> str:
    first = next(entry for change in merge.changes if (entry := change.entry or change.ours) is not None)
    title = first.name if isinstance(first, Archive) else first.title
    more = f" and {merge.change_count - 1} more" if merge.change_count > 1 else ""
    return f'Restore "{title or first.id}"{more}\n\nAs of commit {source.commit_id}.'
