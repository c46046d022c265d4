"""Commits that bring the changes of other commits into a branch: merges, reverts and cherry-picks.

1. Merge the states, entry by entry, and check that the result is a tree (`memotree_storage.mirror.state_merge`).
2. Hand it to the write path, which moves the branch from exactly the head that was merged into. If another program was
   faster, begin again.

Each is made alone, not in a group of commits: it takes as long as the other side has changes.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from memotree_storage import faults
from memotree_storage.commit.group_commit import BranchBusyError
from memotree_storage.commit.message import ListedChange, compose
from memotree_storage.commit.refs import BranchNotFoundError
from memotree_storage.commit.transaction import WorkspaceTransaction
from memotree_storage.commit.write_path import NewCommit, write_commit
from memotree_storage.concurrency.threads import in_store_thread_if
from memotree_storage.conflicts import Conflict
from memotree_storage.errors import AbortedError
from memotree_storage.mirror.state_merge import MergedEntry, StateMerge
from memotree_storage.model.trailers import Request
from memotree_storage.ports import FileContent, Signature
from memotree_storage.postgres import history, refs
from memotree_storage.postgres.requests import commit_of_request
from memotree_storage.postgres.tree import State

_ATTEMPTS: Final = 8
_FEW: Final = 50
"""More changes are prepared in a thread, so that other calls can run."""


class MergeConflictError(AbortedError):
    """Both sides changed the same thing differently; ``conflicts`` has each."""

    reason = "MERGE_CONFLICT"

    @classmethod
    def of(cls, conflicts: Sequence[Conflict], remedy: str) -> "MergeConflictError":
        """The error for these conflicts; ``remedy`` says what to do."""
        return cls(f"The two sides have {len(conflicts)} conflict(s), so nothing was written. {remedy}", conflicts)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who commits: the author, the committer, and the call that asked for it."""

    author: Signature
    committer: Signature
    request: Request = field(default_factory=Request)


@dataclass(frozen=True, slots=True)
class Merged:
    """What a branch got.

    Attributes:
        commit_id: The commit that the branch is at now; of a call that was made before, the commit that it made.
        change_count: How many entries it changed.
        changes: These, as far as they were read for this.
        is_new: Whether the branch was moved.
    """

    commit_id: str
    change_count: int = 0
    changes: Sequence[MergedEntry] = ()
    is_new: bool = True


async def on_head(
    transaction: WorkspaceTransaction,
    branch: str,
    request: Request,
    attempt: Callable[[State], Awaitable[Merged | None]],
) -> Merged:
    """Commit on the head of a branch, again if another program has moved it meanwhile.

    Args:
        transaction: Holds the workspace.
        branch: The branch.
        request: The call; the commit that it has made already is returned.
        attempt: Commits on this head; returns ``None`` if the branch was moved.

    Raises:
        BranchNotFoundError: There is no such branch.
        BranchBusyError: Another program kept moving it.
    """
    conn, workspace_id = transaction.conn, transaction.workspace_id
    for _ in range(_ATTEMPTS):
        await transaction.follow_git()
        head = await refs.branch_head(conn, workspace_id, branch)
        if head is None:
            raise BranchNotFoundError(branch)
        earlier = await commit_of_request(conn, workspace_id, request, head=head.commit_id)
        if earlier is not None:
            return Merged(earlier.commit_id, await history.count_touched(conn, workspace_id, earlier.commit_id))
        merged = await attempt(head)
        if merged is not None:
            return merged
    raise BranchBusyError.of(branch, _ATTEMPTS)


async def write_merge(
    transaction: WorkspaceTransaction,
    branch: str,
    merge: StateMerge,
    identity: Identity,
    message: str,
    *,
    parents: Sequence[str] = (),
    trailers: Mapping[str, str] | None = None,
    passes_protection: bool = False,
) -> Merged | None:
    """Write the commit of a merge that has no conflict.

    Args:
        transaction: Holds the workspace.
        branch: A branch that is at ``merge.ours``.
        merge: What changes.
        identity: Who commits.
        message: Subject and body; the list of changes and the trailers are added.
        parents: Further parents.
        trailers: Further trailers.
        passes_protection: Whether the branch may be a protected one.

    Returns:
        The commit; ``None`` if the branch was moved meanwhile.

    Raises:
        InvalidNodeError, InvalidArchiveError: A merged entry breaks a limit that each side kept.
    """

    def made() -> NewCommit:
        changed = merge.changed
        listed = [ListedChange(change.ours, change.entry) for change in changed]
        return NewCommit(
            branch=branch,
            parent=merge.ours,
            entries={change.entry_id: change.entry for change in changed},
            at_parent=merge.at_ours,
            message=compose(message, listed, {**(trailers or {}), **identity.request.trailers()}),
            author=identity.author,
            committer=identity.committer,
            merged=parents,
            files={path: _content(transaction, blob) for path, blob in merge.files.items()},
            passes_protection=passes_protection,
        )

    faults.point("merge.planned")
    outcome = await write_commit(transaction, await in_store_thread_if(len(merge.changes) > _FEW, made))
    return None if outcome is None else Merged(outcome.commit_id, merge.change_count, merge.changed)


def _content(transaction: WorkspaceTransaction, blob: str | None) -> FileContent | None:
    return None if blob is None else partial(transaction.repository.read_blob, blob)
