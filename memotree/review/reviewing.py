"""Approves, rejects and merges proposals: who may, and when."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from memotree_storage import faults
from memotree_storage.commit.branch_merge import MergeOrder, merge_into_branch
from memotree_storage.commit.proposals import find_proposal
from memotree_storage.commit.refs import delete_branch
from memotree_storage.commit.transaction import repository_of
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import (
    AbortedError,
    FailedPreconditionError,
    InvalidInputError,
    MemoTreeError,
    UnavailableError,
)
from memotree_storage.git.protections import read_protections
from memotree_storage.model.proposal import EventKind, Proposal, ProposalStatus, is_among
from memotree_storage.model.protection import Protection, protection_of
from memotree_storage.model.trailers import PROPOSAL, REVIEWED_BY
from memotree_storage.postgres.contributors import contributors
from memotree_storage.postgres.registry import Workspace

from memotree.history.committing import FollowingSummaries, head_of, message_of
from memotree.history.merging import read_style
from memotree.review.checks import CheckedStates, Checks
from memotree.review.messages import check_said, identity_of
from memotree.review.proposal_calls import OpenedProposal, ProposalCalls, event_by, told_in
from memotree.review.proposals import blockers
from memotree.sessions.merged_summaries import with_renewed_summary
from memotree.sessions.pushed import mirror_pushed
from memotree.v1 import review_service_pb2 as pb


class OwnProposalError(FailedPreconditionError):
    """Nobody approves what they have proposed or committed themselves."""

    reason = "OWN_PROPOSAL"

    def __init__(self, name: str, number: int) -> None:
        super().__init__(
            f"{name} has proposed {number}, or made one of its commits, and so cannot approve it. Ask somebody else."
        )


class ProposalMovedError(AbortedError):
    """The branch of the proposal is at another commit than the caller has seen."""

    reason = "PROPOSAL_MOVED"

    def __init__(self, number: int, head: str) -> None:
        super().__init__(
            f"The branch of proposal {number} is at {head} now. Look at it again (GetProposal, DiffRevisions), and "
            "send the call with that commit."
        )


class ProposalBlockedError(FailedPreconditionError):
    """The protection of the target branch does not allow the merge yet."""

    reason = "PROPOSAL_BLOCKED"

    def __init__(self, number: int, lacking: Sequence[str]) -> None:
        super().__init__(f"Proposal {number} cannot be merged yet. {' '.join(lacking)}")


@dataclass(frozen=True, slots=True)
class Checked:
    """The commits at which the checks of a proposal were run, and what they found."""

    head: str
    checks: Sequence[pb.ProposalCheck]


class Reviewing:
    """Records reviews, and merges what was approved.

    Args:
        calls: Runs the calls.
        checks: Runs the checks of proposals.
        summaries: Renews the summaries above what is merged.
    """

    def __init__(self, calls: ProposalCalls, checks: Checks, summaries: FollowingSummaries | None) -> None:
        self._calls = calls
        self._store = calls.store
        self._checks = checks
        self._summaries = summaries

    async def review(self, request: pb.ReviewProposalRequest) -> pb.ReviewProposalResponse:
        """Approve or reject a proposal; the last missing approval merges one that asks for that."""
        if not request.reviewer.name:
            raise InvalidInputError.at("reviewer.name", "is needed: who reviews.")
        if request.verdict not in {pb.REVIEW_VERDICT_APPROVE, pb.REVIEW_VERDICT_REJECT}:
            raise InvalidInputError.at("verdict", "is needed: APPROVE or REJECT.")
        if not request.head_commit_id:
            raise InvalidInputError.at("head_commit_id", "is needed: the commit that was reviewed, from GetProposal.")
        approves = request.verdict == pb.REVIEW_VERDICT_APPROVE
        text = check_said("text", request.text, required=not approves)
        identity = identity_of(self._calls.limits, request, "reviewer")

        async def make(opened: OpenedProposal) -> pb.ReviewProposalResponse:
            opened.check_open()
            if request.head_commit_id != opened.head:
                raise ProposalMovedError(opened.proposal.number, opened.head)
            if approves:
                await _check_other(opened, identity.author.name)
            kind = EventKind.APPROVED if approves else EventKind.REJECTED
            status = None if approves else ProposalStatus.REJECTED
            changed = await opened.add(event_by(identity, kind, opened.head, text), identity, status)
            told = await told_in(opened.transaction, changed)
            rule = await in_store_thread(_rule, opened)
            needs_checks = rule is not None and rule.needs_checks
            return pb.ReviewProposalResponse(proposal=told, blockers=blockers(told, needs_checks=needs_checks))

        response = await self._calls.run(request, pb.ReviewProposalResponse, make)
        if approves and response.proposal.merge_when_approved and not response.blockers:
            await self._merge_approved(request, response)
        return response

    async def _merge_approved(self, request: pb.ReviewProposalRequest, response: pb.ReviewProposalResponse) -> None:
        """Merge what was approved by the last approval; what stops that is told, since the approval stays."""
        order = pb.MergeProposalRequest(workspace=request.workspace, number=request.number)
        order.author.CopyFrom(request.reviewer)
        try:
            merged = await self.merge(order)
        except UnavailableError:
            response.blockers.append("The merge was not possible now, since a store did not answer. Merge it later.")
        except MemoTreeError as error:
            response.blockers.append(error.message)
        else:
            response.proposal.CopyFrom(merged.proposal)

    async def merge(self, request: pb.MergeProposalRequest) -> pb.MergeProposalResponse:
        """Merge a proposal that its target branch may take."""
        message, identity = message_of(request.message), identity_of(self._calls.limits, request)
        style = read_style(request.style)
        workspace = await self._calls.workspace(request.workspace)
        checked = await self._checked(workspace, request)

        async def make(opened: OpenedProposal) -> pb.MergeProposalResponse:
            proposal = opened.proposal
            if proposal.status is ProposalStatus.MERGED:
                told = await told_in(opened.transaction, proposal)
                return pb.MergeProposalResponse(proposal=told, commit_id=proposal.merge_commit)
            opened.check_open()
            await _check_allowed(opened, checked)
            order = MergeOrder(
                branch=proposal.target,
                source=proposal.branch,
                style=style,
                message=message or _usual_message(proposal),
                identity=identity,
                renew=with_renewed_summary,
                trailers=_trailers(proposal, opened.head),
                passes_protection=True,
            )
            changed = await _merge_and_record(opened, order)
            if request.delete_branch:
                default = workspace.default_branch
                await delete_branch(opened.transaction, proposal.branch, default_branch=default)
            told = await told_in(opened.transaction, changed)
            return pb.MergeProposalResponse(proposal=told, commit_id=changed.merge_commit)

        response = await self._calls.run(request, pb.MergeProposalResponse, make)
        self._store.notice_commit(workspace.workspace_id)
        if self._summaries is not None:
            self._summaries.notice(workspace.workspace_id, response.proposal.target_branch, response.commit_id)
        return response

    async def _checked(self, workspace: Workspace, request: pb.MergeProposalRequest) -> Checked | None:
        """The checks of the proposal as it is now; ``None`` if the protection of its target needs none."""
        workspace_id = workspace.workspace_id
        await mirror_pushed(self._store, workspace_id)
        repository = await repository_of(self._store, workspace_id)
        proposal = (await in_store_thread(find_proposal, repository, request.number)).proposal
        rule = protection_of(await in_store_thread(read_protections, repository), proposal.target)
        if rule is None or not rule.needs_checks or proposal.status is not ProposalStatus.OPEN:
            return None
        async with self._store.database.connection() as conn:
            head = await head_of(conn, workspace_id, proposal.branch)
            target = await head_of(conn, workspace_id, proposal.target)
        return Checked(
            head.commit_id, await self._checks.run(CheckedStates(workspace_id, head.commit_id, target.commit_id))
        )


def _rule(opened: OpenedProposal) -> Protection | None:
    """The protection of the target branch."""
    return protection_of(read_protections(opened.transaction.repository), opened.proposal.target)


async def _check_other(opened: OpenedProposal, name: str) -> None:
    """Refuse the approval of who has a part in the proposal.

    Raises:
        OwnProposalError: They have proposed it or made one of its commits.
    """
    held, proposal = opened.transaction, opened.proposal
    target = await head_of(held.conn, held.workspace_id, proposal.target)
    names = await contributors(held.conn, held.workspace_id, opened.head, target.commit_id)
    if is_among(name, {proposal.author, *names}):
        raise OwnProposalError(name, proposal.number)


async def _check_allowed(opened: OpenedProposal, checked: Checked | None) -> None:
    """Refuse a merge that the protection of the target does not allow, at the moment of the merge.

    Raises:
        ProposalBlockedError: Approvals are missing, or checks fail.
        ProposalMovedError: The branch has moved since the checks were run.
    """
    rule = await in_store_thread(_rule, opened)
    needs_checks = rule is not None and rule.needs_checks
    if needs_checks and (checked is None or checked.head != opened.head):
        raise ProposalMovedError(opened.proposal.number, opened.head)
    told = await told_in(opened.transaction, opened.proposal)
    lacking = blockers(told, needs_checks=needs_checks, checks=() if checked is None else checked.checks)
    if lacking:
        raise ProposalBlockedError(opened.proposal.number, lacking)


async def _merge_and_record(opened: OpenedProposal, order: MergeOrder) -> Proposal:
    """Merge a proposal, then record that. What a crash between the two has merged is found merged, and recorded."""
    head = opened.head

    async def find_commit() -> str:
        return head

    merged = await merge_into_branch(opened.transaction, order, find_commit)
    faults.point("proposal.merged")
    event = replace(event_by(order.identity, EventKind.MERGED, head), commit_id=merged.commit_id)
    return await opened.add(event, order.identity, ProposalStatus.MERGED)


def _approvers(proposal: Proposal, head: str) -> list[str]:
    return sorted(name for name, commit_id in proposal.approvals().items() if commit_id == head)


def _usual_message(proposal: Proposal) -> str:
    subject = f"Merge proposal {proposal.number}: {proposal.title}"
    return f"{subject}\n\n{proposal.description}".rstrip()


def _trailers(proposal: Proposal, head: str) -> Mapping[str, str]:
    return {PROPOSAL: str(proposal.number), REVIEWED_BY: ", ".join(_approvers(proposal, head))}
