"""Merging a commit into a branch: a merge commit, a squashed one, or a fast-forward.

1. Merge the two states, entry by entry, and check that the result is a tree (`memotree_storage.mirror.state_merge`).
2. Hand it to the write path, which moves the branch from exactly the head that was merged into. If another program was
   faster, begin again.

A merge is made alone, not in a group of commits: it takes as long as the other side has changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Final

from memotree_storage import faults
from memotree_storage.commit.group_commit import BranchBusyError
from memotree_storage.commit.message import ListedChange, compose
from memotree_storage.commit.refs import BranchNotFoundError, FindCommit
from memotree_storage.commit.session_commit import check_limits
from memotree_storage.commit.transaction import WorkspaceTransaction
from memotree_storage.commit.write_path import NewCommit, move_ref, write_commit
from memotree_storage.concurrency.threads import in_store_thread_if
from memotree_storage.conflicts import Conflict
from memotree_storage.errors import AbortedError, FailedPreconditionError
from memotree_storage.mirror.state_merge import StateMerge, merge_states
from memotree_storage.model.trailers import Request
from memotree_storage.ports import FileContent, Signature
from memotree_storage.postgres import refs, registry
from memotree_storage.postgres.line_joins import join_lines
from memotree_storage.postgres.refs import BRANCHES
from memotree_storage.postgres.requests import commit_of_request

_ATTEMPTS: Final = 8
_FEW: Final = 50


class MergeConflictError(AbortedError):
    """Both sides of a merge changed the same thing differently; ``conflicts`` has each."""

    reason = "MERGE_CONFLICT"

    @classmethod
    def of(cls, conflicts: Sequence[Conflict]) -> "MergeConflictError":
        """The error for these conflicts."""
        return cls(
            f"The two sides have {len(conflicts)} conflict(s), so nothing was written; PreviewMerge lists them all. "
            "Make the nodes equal on both branches, and merge again.",
            conflicts,
        )


class NotFastForwardError(FailedPreconditionError):
    """The branch has commits that the other side lacks."""

    reason = "NOT_FAST_FORWARD"

    def __init__(self, branch: str) -> None:
        super().__init__(
            f"Branch {branch} has commits that the other side lacks, so it cannot be moved there; nothing was written. "
            "Merge with a commit."
        )


class MergeStyle(Enum):
    """How a merge is recorded."""

    COMMIT = "commit"
    """A commit with both sides as parents, also where the branch could just be moved."""

    FAST_FORWARD = "fast_forward"
    """The branch is moved to the other side, which must have all of its commits."""

    SQUASH = "squash"
    """A commit with the branch alone as its parent: what the other side changed, without its history."""


@dataclass(frozen=True, slots=True)
class MergeOrder:
    """What to merge.

    Attributes:
        branch: The branch that gets the other side.
        source: What the caller calls the other side, for the message.
        style: How it is recorded.
        message: Subject and body of the commit; "" for "Merge <source> into <branch>".
        author: Its author.
        committer: Its committer.
        request: The call that asked for it.
    """

    branch: str
    source: str
    style: MergeStyle
    message: str
    author: Signature
    committer: Signature
    request: Request = field(default_factory=Request)


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge gave.

    Attributes:
        commit_id: The commit that the branch is at now.
        merge: What it changed; nothing if the branch had all of it already, or if an earlier call with this request id
            has made the commit, whose answer was lost.
        is_new: Whether the branch was moved.
    """

    commit_id: str
    merge: StateMerge
    is_new: bool


async def merge_into_branch(transaction: WorkspaceTransaction, order: MergeOrder, find_commit: FindCommit) -> Merged:
    """Merge a commit into a branch, in a transaction that holds the workspace.

    Args:
        transaction: Holds the workspace.
        order: What to merge.
        find_commit: Finds the commit of the other side, in the mirror as it is then.

    Raises:
        BranchNotFoundError: There is no such branch.
        MergeConflictError: Both sides changed one thing differently, or the result would not be a tree.
        NotFastForwardError: Only a fast-forward was asked for, and it is not possible.
        UnrelatedHistoriesError, FileConflictError, UnreadableFilesError: The two cannot be merged by entries.
        InvalidNodeError, InvalidArchiveError: A merged entry breaks a limit that each side kept.
        BranchBusyError: Another program kept moving the branch.
    """
    for _ in range(_ATTEMPTS):
        await transaction.follow_git()
        conn, workspace_id, store = transaction.conn, transaction.workspace_id, transaction.store
        head = await refs.branch_head(conn, workspace_id, order.branch)
        if head is None:
            raise BranchNotFoundError(order.branch)
        earlier = await commit_of_request(conn, workspace_id, order.request, head=head.commit_id)
        if earlier is not None:
            return Merged(earlier.commit_id, StateMerge(head.commit_id, earlier.commit_id, ()), is_new=True)
        merge = await merge_states(
            conn, store.entries, transaction.repository, head, await find_commit(), max_depth=store.max_depth
        )
        if merge.is_merged:
            return Merged(head.commit_id, merge, is_new=False)
        record = _fast_forward if order.style is MergeStyle.FAST_FORWARD else _commit
        merged = await record(transaction, order, merge)
        if merged is not None:
            return merged
    raise BranchBusyError.of(order.branch, _ATTEMPTS)


async def _commit(transaction: WorkspaceTransaction, order: MergeOrder, merge: StateMerge) -> Merged | None:
    """Make the commit of a merge; ``None`` if the branch was moved meanwhile."""
    if merge.conflicts:
        raise MergeConflictError.of(merge.conflicts)
    if order.style is MergeStyle.SQUASH and not merge.changes and not merge.files:
        return Merged(merge.ours, merge, is_new=False)
    faults.point("merge.planned")
    new = await in_store_thread_if(len(merge.changes) > _FEW, _new_commit, transaction, order, merge)
    outcome = await write_commit(transaction, new)
    return None if outcome is None else Merged(outcome.commit_id, merge, is_new=True)


async def _fast_forward(transaction: WorkspaceTransaction, order: MergeOrder, merge: StateMerge) -> Merged | None:
    """Move the branch to the other side; ``None`` if it was moved meanwhile."""
    if not merge.is_fast_forward:
        raise NotFastForwardError(order.branch)
    conn, workspace_id, branch = transaction.conn, transaction.workspace_id, order.branch
    if not await move_ref(transaction, BRANCHES + branch, merge.ours, merge.theirs, merge.theirs):
        return None
    if branch == await registry.default_branch(conn, workspace_id):
        await join_lines(conn, workspace_id, branch, merge.theirs)
    return Merged(merge.theirs, merge, is_new=True)


def _new_commit(transaction: WorkspaceTransaction, order: MergeOrder, merge: StateMerge) -> NewCommit:
    for change in merge.changes:
        check_limits(change.entry)
    changed = [change for change in merge.changes if change.entry != change.ours]
    message = compose(
        order.message or f"Merge {order.source} into {order.branch}",
        [ListedChange(change.ours, change.entry) for change in changed],
        order.request.trailers(),
    )
    return NewCommit(
        branch=order.branch,
        parent=merge.ours,
        entries={change.entry_id: change.entry for change in changed},
        at_parent=merge.at_ours,
        message=message,
        author=order.author,
        committer=order.committer,
        merged=() if order.style is MergeStyle.SQUASH else (merge.theirs,),
        files={path: _content(transaction, blob) for path, blob in merge.files.items()},
    )


def _content(transaction: WorkspaceTransaction, blob: str | None) -> FileContent | None:
    return None if blob is None else partial(transaction.repository.read_blob, blob)
