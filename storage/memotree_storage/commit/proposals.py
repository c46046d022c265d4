"""Proposals and protections, changed while the workspace is held; see `memotree_storage.model.proposal`.

A proposal is recorded after what it is about has happened: after its branch was made, and after its merge. So a crash
in between leaves a branch without a proposal, or a merge that the repeated call finds made.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from memotree_storage import faults
from memotree_storage.commit.merge_commit import Identity
from memotree_storage.commit.refs import BranchNotFoundError
from memotree_storage.commit.transaction import WorkspaceTransaction
from memotree_storage.commit.write_path import move_ref
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import AlreadyExistsError, FailedPreconditionError, NotFoundError
from memotree_storage.git.proposals import ProposalIndex, read_index, read_proposal, write_proposal
from memotree_storage.model.proposal import MOST_EVENTS, EventKind, Proposal, ProposalEvent, ProposalStatus
from memotree_storage.ports import CommitReader
from memotree_storage.postgres import refs
from memotree_storage.postgres.refs import BRANCHES, TAGS

MOST_OPEN: Final = 1000
"""The most open proposals of a workspace: their index is read with each call."""

BRANCH_FOLDER: Final = "proposals"
"""The branch of a proposal that is made from a session is in this folder and has its number."""


_VERBS: Final = {
    EventKind.COMMENTED: "Comment on",
    EventKind.APPROVED: "Approve",
    EventKind.REJECTED: "Reject",
    EventKind.EDITED: "Edit",
    EventKind.WITHDRAWN: "Withdraw",
    EventKind.REOPENED: "Reopen",
    EventKind.MERGED: "Merge",
}


class ProposalNotFoundError(NotFoundError):
    """The workspace has no proposal of that number."""

    reason = "PROPOSAL_NOT_FOUND"

    def __init__(self, number: int) -> None:
        super().__init__(f"There is no proposal {number}. List them with ListProposals.", "proposal", str(number))


class ProposalExistsError(AlreadyExistsError):
    """The branch is proposed already."""

    reason = "PROPOSAL_EXISTS"

    def __init__(self, number: int, branch: str) -> None:
        super().__init__(
            f"Branch {branch} is proposed already, by the open proposal {number}. Commit to the branch: the proposal "
            "has each new commit.",
            "proposal",
            str(number),
        )


class TooManyProposalsError(FailedPreconditionError):
    """The workspace has as many open proposals as it can have, or the proposal as many events."""

    reason = "TOO_MANY_PROPOSALS"


class ProposalClosedError(FailedPreconditionError):
    """The proposal is not open."""

    reason = "PROPOSAL_CLOSED"

    def __init__(self, proposal: Proposal) -> None:
        way_out = "" if proposal.status is ProposalStatus.MERGED else " Reopen it first (UpdateProposal)."
        super().__init__(f"Proposal {proposal.number} is {proposal.status.value}.{way_out}")


@dataclass(frozen=True, slots=True)
class FoundProposal:
    """A proposal, and the index that it was read with."""

    index: ProposalIndex
    proposal: Proposal


def find_proposal(repository: CommitReader, number: int) -> FoundProposal:
    """The proposal of a number.

    Raises:
        ProposalNotFoundError: There is none.
        ProposalDamagedError: Its file cannot be read.
    """
    index = read_index(repository)
    proposal = read_proposal(repository, index, number)
    if proposal is None:
        raise ProposalNotFoundError(number)
    return FoundProposal(index, proposal)


async def proposed_head(transaction: WorkspaceTransaction, proposal: Proposal) -> str:
    """The commit at which the branch of a proposal is.

    Raises:
        BranchNotFoundError: The branch was deleted.
    """
    head = await refs.branch_head(transaction.conn, transaction.workspace_id, proposal.branch)
    if head is None:
        raise BranchNotFoundError(proposal.branch)
    return head.commit_id


async def open_proposal(
    transaction: WorkspaceTransaction, draft: Proposal, identity: Identity, start: str | None = None
) -> Proposal:
    """Record a new proposal.

    Args:
        transaction: Holds the workspace.
        draft: The proposal, with any number; without a branch, one is made.
        identity: Who proposes.
        start: The commit at which the new branch begins; needed without a branch.

    Returns:
        The proposal; that of an earlier call with the same request id, if there is one.

    Raises:
        ProposalExistsError: The branch has an open proposal.
        TooManyProposalsError: There are too many open ones.
        BranchNotFoundError: There is no such branch.
    """
    repository = transaction.repository
    index = await in_store_thread(read_index, repository)
    earlier = await _earlier(repository, index, draft)
    if earlier is not None:
        return earlier
    if len(index.open) >= MOST_OPEN:
        raise TooManyProposalsError(
            f"The workspace has {len(index.open)} open proposals, and {MOST_OPEN} is the limit. Merge, reject or "
            "withdraw some first."
        )
    taken = next((number for number, one in index.open.items() if draft.branch and one.branch == draft.branch), None)
    if taken is not None:
        raise ProposalExistsError(taken, draft.branch)
    proposal = replace(draft, number=index.next_number)
    if not proposal.branch:
        assert start is not None  # noqa: S101 - whoever gives no branch gives a start
        proposal = replace(proposal, branch=await _branch_for(transaction, proposal.number, start))
    head = await proposed_head(transaction, proposal)
    faults.point("proposal.branched")
    message = f"Propose {proposal.number}: {proposal.title}\n\n{proposal.description}".rstrip()
    await _write(transaction, index, proposal, message, identity, head)
    return proposal


async def _earlier(repository: CommitReader, index: ProposalIndex, draft: Proposal) -> Proposal | None:
    """The open proposal that an earlier call with the same request id has made and could not answer."""
    if not draft.request.id:
        return None
    for number, one in index.open.items():
        if one.request_id == draft.request.id:
            found = await in_store_thread(read_proposal, repository, index, number)
            if found is not None and found.request == draft.request:
                return found
    return None


async def _branch_for(transaction: WorkspaceTransaction, number: int, start: str) -> str:
    """Make the branch of a proposal. A name that is taken, if only because a crash cut off the call, gets a suffix."""
    for suffix in ("", *(f"-{again}" for again in range(2, MOST_OPEN))):
        name = f"{BRANCH_FOLDER}/{number}{suffix}"
        if await refs.find_ref(transaction.conn, transaction.workspace_id, TAGS, name):
            continue  # the name would mean two things
        if await move_ref(transaction, BRANCHES + name, None, start, start):
            return name
    raise TooManyProposalsError(f"There are too many branches {BRANCH_FOLDER}/{number}-…; delete those nobody needs.")


async def change_proposal(
    transaction: WorkspaceTransaction,
    found: FoundProposal,
    change: Callable[[Proposal], Proposal],
    identity: Identity,
    head: str,
) -> Proposal:
    """Record that something happened to a proposal.

    Args:
        transaction: Holds the workspace since before the proposal was read.
        found: The proposal as it was read.
        change: Adds an event.
        identity: Who did it.
        head: The commit at which the proposed branch is.

    Raises:
        TooManyProposalsError: The proposal has too many events.
    """
    changed = change(found.proposal)
    if len(changed.events) > MOST_EVENTS:
        raise TooManyProposalsError(
            f"Proposal {changed.number} has {MOST_EVENTS} events, which is the limit. Withdraw it, and propose its "
            "branch again."
        )
    await _write(transaction, found.index, changed, _told(changed, changed.events[-1]), identity, head)
    return changed


def _told(proposal: Proposal, event: ProposalEvent) -> str:
    """What happened, for ``git log``: the verb, the number, and what was said."""
    return f"{_VERBS[event.kind]} {proposal.number}: {proposal.title}\n\n{event.text}".rstrip()


async def _write(
    transaction: WorkspaceTransaction,
    index: ProposalIndex,
    proposal: Proposal,
    message: str,
    identity: Identity,
    head: str,
) -> None:
    await transaction.change_git(
        write_proposal,
        *(transaction.repository, index, proposal, message, identity.author, identity.committer),
        keeps=head,
    )
    faults.point("proposal.recorded")
