"""Merging a commit into a branch: a merge commit, a squashed one, or a fast-forward."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from memotree_storage.commit.merge_commit import Identity, MergeConflictError, Merged, on_head, write_merge
from memotree_storage.commit.refs import FindCommit
from memotree_storage.commit.transaction import WorkspaceTransaction
from memotree_storage.commit.write_path import move_ref
from memotree_storage.errors import FailedPreconditionError
from memotree_storage.mirror.change_selection import Selection
from memotree_storage.mirror.staged_merge import RenewSummary
from memotree_storage.mirror.state_merge import merge_states
from memotree_storage.postgres import history, registry
from memotree_storage.postgres.line_joins import join_lines
from memotree_storage.postgres.merge_bases import is_ancestor
from memotree_storage.postgres.refs import BRANCHES
from memotree_storage.postgres.tree import State

_REMEDY: Final = (
    "PreviewMerge lists them all. Merge in a session to resolve them there (ListConflicts, ResolveConflicts), or make "
    "the nodes equal on both branches and merge again."
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
        identity: Who merges.
        renew: Renews the summary of a node whose content is merged.
        selection: Which changes are brought, in a squashed merge; all if ``None``.
        trailers: Further trailers of the commit.
        passes_protection: Whether the branch may be a protected one, because the other side was approved.
    """

    branch: str
    source: str
    style: MergeStyle
    message: str
    identity: Identity
    renew: RenewSummary | None = None
    selection: Selection | None = None
    trailers: Mapping[str, str] = field(default_factory=dict)
    passes_protection: bool = False


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
        BranchProtectedError: The branch is protected, and this is not the merge of an approved proposal.
        BranchBusyError: Another program kept moving the branch.
    """
    conn, workspace_id, store = transaction.conn, transaction.workspace_id, transaction.store

    async def attempt(head: State) -> Merged | None:
        theirs = await find_commit()
        if order.style is MergeStyle.FAST_FORWARD:
            return await _fast_forward(transaction, order, head, State(workspace_id, theirs))
        entries, repository = store.entries, transaction.repository
        merge = await merge_states(
            *(conn, entries, repository, head, theirs),
            max_depth=store.max_depth,
            renew=order.renew,
            selection=order.selection,
        )
        squash = order.style is MergeStyle.SQUASH
        if merge.is_merged or (squash and merge.is_empty):
            return Merged(head.commit_id, is_new=False)
        if merge.conflicts:
            raise MergeConflictError.of(merge.conflicts, _REMEDY)
        message = order.message or f"Merge {order.source} into {order.branch}"
        parents = () if squash else (theirs,)
        return await write_merge(
            *(transaction, order.branch, merge, order.identity, message),
            parents=parents,
            trailers=order.trailers,
            passes_protection=order.passes_protection,
        )

    return await on_head(transaction, order.branch, order.identity.request, attempt)


async def _fast_forward(
    transaction: WorkspaceTransaction, order: MergeOrder, head: State, theirs: State
) -> Merged | None:
    """Move a branch to a commit that has all of its history; ``None`` if the branch was moved meanwhile."""
    conn, workspace_id, branch = transaction.conn, transaction.workspace_id, order.branch
    if await is_ancestor(conn, workspace_id, theirs.commit_id, head.commit_id):
        return Merged(head.commit_id, is_new=False)
    if not await is_ancestor(conn, workspace_id, head.commit_id, theirs.commit_id):
        raise NotFastForwardError(branch)
    changed = await history.count_differing(conn, head, theirs, limit=history.EVERY)
    old, new, passes = head.commit_id, theirs.commit_id, order.passes_protection
    if not await move_ref(transaction, BRANCHES + branch, old, new, new, passes_protection=passes):
        return None
    if branch == await registry.default_branch(conn, workspace_id):
        await join_lines(conn, workspace_id, branch, theirs.commit_id)
    return Merged(theirs.commit_id, changed.total)
