"""Reverting a commit, and picking one from elsewhere (cherry-pick): both are new commits on a branch."""

from dataclasses import dataclass, replace
from typing import Final

from memotree_storage.commit.merge_commit import Identity, MergeConflictError, Merged, on_head, write_merge
from memotree_storage.commit.refs import FindCommit
from memotree_storage.commit.session_commit import NothingToCommitError
from memotree_storage.commit.transaction import WorkspaceTransaction
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import FailedPreconditionError, InvalidInputError
from memotree_storage.mirror.change_selection import Selection
from memotree_storage.mirror.entries import EntryReader
from memotree_storage.mirror.staged_merge import RenewSummary
from memotree_storage.mirror.state_merge import StateMerge, bring_difference
from memotree_storage.ports import CommitInfo, CommitReader
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.tree import State

_REMEDY: Final = (
    "The branch has changed the same since. The conflicts say what it has and what it would get; bring it into a "
    "session to resolve them there (ListConflicts, ResolveConflicts)."
)


class NoParentError(FailedPreconditionError):
    """The first commit of a history changes nothing that could be reverted or picked."""

    reason = "NO_PARENT"


@dataclass(frozen=True, slots=True)
class Pick:
    """A commit whose changes are brought into a branch, or taken back there.

    Attributes:
        commit_id: The commit; "" as long as it is not looked up.
        parent_number: Which parent its changes are counted from, the first one is 1; 0 for its only parent.
        reverts: Whether they are taken back.
    """

    commit_id: str
    parent_number: int = 0
    reverts: bool = False


@dataclass(frozen=True, slots=True)
class PickOrder:
    """What to pick or revert on a branch.

    Attributes:
        branch: The branch.
        pick: The commit.
        message: Subject and body; "" for those that git gives.
        identity: Who commits.
        keeps_author: Whether the author of the commit is kept, in place of that of ``identity``.
        renew: Renews the summary of a node whose content is merged.
        selection: Which of its changes are picked; all if ``None``.
    """

    branch: str
    pick: Pick
    message: str
    identity: Identity
    keeps_author: bool = False
    renew: RenewSummary | None = None
    selection: Selection | None = None


async def preview_pick(
    conn: Connection,
    entries: EntryReader,
    repository: CommitReader,
    head: State,
    pick: Pick,
    *,
    max_depth: int | None = None,
    renew: RenewSummary | None = None,
    selection: Selection | None = None,
) -> StateMerge:
    """Tell what a pick would change on a state, without writing anything.

    Raises:
        NoParentError: The commit has no parent.
        InvalidInputError: It is a merge and no parent was chosen, or it has no such parent.
        FileConflictError, UnreadableFilesError: The changes are not of entries alone.
    """
    info = await in_store_thread(repository.commit_info, pick.commit_id)
    parent = _parent(info, pick)
    base, theirs = (pick.commit_id, parent) if pick.reverts else (parent, pick.commit_id)
    return await bring_difference(
        *(conn, entries, repository, head, base, theirs),
        max_depth=max_depth,
        renew=renew,
        selection=selection,
        changed_by=pick.commit_id,
    )


def conflict_error(merge: StateMerge) -> MergeConflictError:
    """The error for a pick that conflicts."""
    return MergeConflictError.of(merge.conflicts, _REMEDY)


async def pick_commit(transaction: WorkspaceTransaction, order: PickOrder, find_commit: FindCommit) -> Merged:
    """Pick or revert a commit on a branch, in a transaction that holds the workspace.

    Args:
        transaction: Holds the workspace.
        order: What to pick.
        find_commit: Finds the commit. It is not called if this call has made its commit before: by then the name may
            mean another one.

    Raises:
        BranchNotFoundError: There is no such branch.
        NoParentError, InvalidInputError, FileConflictError, UnreadableFilesError: See `preview_pick`.
        MergeConflictError: The branch has changed the same since, or the result would not be a tree.
        NothingToCommitError: The branch is as it would be already.
        BranchBusyError: Another program kept moving the branch.
    """
    conn, store, repository = transaction.conn, transaction.store, transaction.repository

    async def attempt(head: State) -> Merged | None:
        pick = replace(order.pick, commit_id=await find_commit())
        merge = await preview_pick(
            *(conn, store.entries, repository, head, pick),
            max_depth=store.max_depth,
            renew=order.renew,
            selection=order.selection,
        )
        if merge.conflicts:
            raise conflict_error(merge)
        if merge.is_empty:
            raise NothingToCommitError(
                f"Branch {order.branch} has {'nothing' if pick.reverts else 'all'} of the changes of commit "
                f"{pick.commit_id} already; nothing was written."
            )
        info = await in_store_thread(repository.commit_info, pick.commit_id)
        identity = replace(order.identity, author=info.author) if order.keeps_author else order.identity
        return await write_merge(transaction, order.branch, merge, identity, _message(info, replace(order, pick=pick)))

    return await on_head(transaction, order.branch, order.identity.request, attempt)


def _parent(info: CommitInfo, pick: Pick) -> str:
    if not info.parents:
        raise NoParentError(
            f"Commit {info.commit_id} is the first one of its history, so there is no state before it. Name a later "
            "one."
        )
    if not pick.parent_number and len(info.parents) > 1:
        raise InvalidInputError.at(
            "parent_number",
            f"is needed, since commit {info.commit_id} is a merge: 1 counts its changes from the branch that got it, 2 "
            "from the side that was merged.",
        )
    number = pick.parent_number or 1
    if not 1 <= number <= len(info.parents):
        raise InvalidInputError.at("parent_number", f"is {number}, and the commit has {len(info.parents)} parent(s).")
    return info.parents[number - 1]


def _message(info: CommitInfo, order: PickOrder) -> str:
    """The message as git would give it."""
    subject = info.message.split("\n", 1)[0]
    if not order.pick.reverts:
        return f"{order.message or subject}\n\n(cherry picked from commit {info.commit_id})"
    told = f"This reverts commit {info.commit_id}"
    if len(info.parents) > 1:
        told += f", reversing changes made to {_parent(info, order.pick)}"
    message = order.message or f'Revert "{subject}"'
    return f"{message}\n\n{told}."
