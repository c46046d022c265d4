"""Proposes changes, and lists, edits and comments on what is proposed."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Protocol, TypeVar

from google.protobuf.message import Message
from memotree_storage.commit.merge_commit import Identity
from memotree_storage.commit.proposals import (
    ProposalExistsError,
    find_proposal,
    open_proposal,
)
from memotree_storage.commit.rebase import ConflictError
from memotree_storage.commit.refs import BranchNotFoundError
from memotree_storage.commit.session_commit import NothingToCommitError
from memotree_storage.commit.transaction import WorkspaceTransaction, repository_of, workspace_transaction
from memotree_storage.concurrency.cancellation import CommitPoint, finish_past_commit_point
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import FailedPreconditionError, InvalidInputError
from memotree_storage.git.proposals import ProposalIndex, read_index, read_proposal
from memotree_storage.git.protections import read_protections
from memotree_storage.model.proposal import EventKind, Proposal, ProposalStatus
from memotree_storage.model.protection import protection_of
from memotree_storage.postgres import refs, sessions
from memotree_storage.postgres.merge_bases import is_ancestor
from memotree_storage.postgres.registry import Workspace
from memotree_storage.postgres.session_conflicts import conflicts_of
from memotree_storage.postgres.tree import Snapshot, State

from memotree.history.committing import head_of
from memotree.request import lookup
from memotree.request.idempotency import kept_request_id, run_once
from memotree.request.pages import PageTokens, fitting, page_size
from memotree.review.checks import CheckedStates, Checks
from memotree.review.messages import (
    check_said,
    check_title,
    event_message,
    identity_of,
    read_status,
)
from memotree.review.proposal_calls import OpenedProposal, ProposalCalls, event_by, told_in, told_proposals
from memotree.sessions.pushed import mirror_pushed
from memotree.v1 import review_service_pb2 as pb
from memotree.v1 import session_service_pb2, types_pb2

_MOST_READ: Final = 1000
"""Proposals that one call of ListProposals reads."""

_MOST_CONFLICTS: Final = 100
_FIELD_CHARS: Final = 100

Response = TypeVar("Response", bound=Message)


class ProposalEmptyError(FailedPreconditionError):
    """The target branch has all that is proposed."""

    reason = "PROPOSAL_EMPTY"


class ProposalMergedError(FailedPreconditionError):
    """The proposal is merged, and that stays so."""

    reason = "PROPOSAL_MERGED"


class CommitsSessions(Protocol):
    """Commits the changes of sessions."""

    async def commit_changes(
        self, request: session_service_pb2.CommitChangesRequest
    ) -> session_service_pb2.CommitChangesResponse:
        """Make one commit of a session's changes."""
        ...


class Proposals:
    """Makes proposals, reads them, and records what is said about them.

    Args:
        calls: Runs the calls.
        pages: Makes page tokens.
        sessions: Commits the sessions whose changes are proposed.
        checks: Runs their checks.
    """

    def __init__(self, calls: ProposalCalls, pages: PageTokens, sessions: CommitsSessions, checks: Checks) -> None:
        self._calls = calls
        self._store = calls.store
        self._pages = pages
        self._sessions = sessions
        self._checks = checks

    # --- Proposing ---------------------------------------------------------------------------------------------------

    async def create(self, request: pb.CreateProposalRequest) -> pb.CreateProposalResponse:
        """Propose a branch, or the changes of a session on a new branch, to which they are committed then."""
        check_title(request.title)
        check_said("description", request.description)
        if bool(request.session_id) == bool(request.branch):
            raise InvalidInputError.at("session_id", "is needed, or branch in its place; not both.")
        workspace = await self._calls.workspace(request.workspace)
        response = await finish_past_commit_point(partial(self._create, request, workspace))
        if request.session_id:
            committed = await self._sessions.commit_changes(_commit_request(request))
            response.proposal.head_commit_id = committed.commit_id
            response.warnings.extend(committed.warnings)
        return response

    async def _create(
        self, request: pb.CreateProposalRequest, workspace: Workspace, commit_point: CommitPoint
    ) -> pb.CreateProposalResponse:
        workspace_id, session_id = workspace.workspace_id, request.session_id
        async with workspace_transaction(self._store, workspace_id, commit_point, session_id=session_id) as held:

            async def make() -> pb.CreateProposalResponse:
                if session_id:
                    proposal = await self._of_session(held, request)
                else:
                    proposal = await self._of_branch(held, request, request.target_branch or workspace.default_branch)
                return pb.CreateProposalResponse(proposal=await told_in(held, proposal))

            return await run_once(held.conn, workspace_id, request, pb.CreateProposalResponse, make)

    async def _of_session(self, held: WorkspaceTransaction, request: pb.CreateProposalRequest) -> Proposal:
        conn, workspace_id = held.conn, held.workspace_id
        await sessions.hold_session(conn, workspace_id, request.session_id)
        session = await sessions.find_session(conn, workspace_id, request.session_id)
        index = await in_store_thread(read_index, held.repository)
        taken = next((number for number, one in index.open.items() if one.branch == session.branch), None)
        if taken is not None and not (
            request.request_id and index.open[taken].request_id == kept_request_id(request.request_id)
        ):
            raise ProposalExistsError(taken, session.branch)
        if not session.change_count and session.merged is None and not session.files:
            raise NothingToCommitError("The session has no changes to propose. Change a node first.")
        if session.rewound:
            raise sessions.SessionRewoundError.of(session.branch, session.base_commit)
        if session.conflict_count:
            kept = await conflicts_of(conn, session.session_id, of_values=True, limit=_MOST_CONFLICTS)
            raise ConflictError.unresolved([one.conflict for one in kept])
        target = request.target_branch or session.branch
        await head_of(conn, workspace_id, target)
        identity = identity_of(self._calls.limits, request, name=session.agent)
        draft = _draft(request, identity, branch="", target=target)
        proposal = await open_proposal(held, draft, identity, session.base_commit)
        await sessions.set_branch(conn, session.session_id, proposal.branch)
        return proposal

    async def _of_branch(self, held: WorkspaceTransaction, request: pb.CreateProposalRequest, target: str) -> Proposal:
        conn, workspace_id = held.conn, held.workspace_id
        if request.branch == target:
            raise InvalidInputError.at("target_branch", "is the branch that is proposed; name another one.")
        head, onto = await head_of(conn, workspace_id, request.branch), await head_of(conn, workspace_id, target)
        if await is_ancestor(conn, workspace_id, head.commit_id, onto.commit_id):
            raise ProposalEmptyError(f"Branch {target} has all commits of {request.branch} already.")
        identity = identity_of(self._calls.limits, request)
        return await open_proposal(held, _draft(request, identity, request.branch, target), identity)

    # --- Reading -----------------------------------------------------------------------------------------------------

    async def get(self, request: pb.GetProposalRequest) -> pb.GetProposalResponse:
        """A proposal, what it lacks, and a page of its events."""
        size = page_size(request.page_size)
        cursor = self._pages.read(request, {"after": int})
        workspace = await self._calls.workspace(request.workspace)
        workspace_id = workspace.workspace_id
        await mirror_pushed(self._store, workspace_id)
        repository = await repository_of(self._store, workspace_id)
        proposal = (await in_store_thread(find_proposal, repository, request.number)).proposal
        protections = await in_store_thread(read_protections, repository)
        async with self._store.database.connection() as conn:
            (told,) = await told_proposals(conn, workspace_id, protections, [proposal])
            target = await refs.branch_head(conn, workspace_id, proposal.target)
        checks = []
        if request.run_checks and told.head_commit_id and target is not None:
            checks = await self._checks.run(CheckedStates(workspace_id, told.head_commit_id, target.commit_id))
        after = max(0, cursor["after"]) if cursor else 0
        events = fitting(event_message(event) for event in proposal.events[after : after + size])
        end = after + len(events)
        rule = protection_of(protections, proposal.target)
        lacking = blockers(told, needs_checks=rule is not None and rule.needs_checks, checks=checks)
        return pb.GetProposalResponse(
            proposal=told,
            blockers=lacking,
            checks=checks,
            events=events,
            next_page_token=self._pages.write(request, {"after": end} if end < len(proposal.events) else None),
        )

    async def list(self, request: pb.ListProposalsRequest) -> pb.ListProposalsResponse:
        """Proposals, newest first."""
        size = page_size(request.page_size)
        wanted = read_status(request.status)
        cursor = self._pages.read(request, {"before": int})
        workspace_id = (await self._calls.workspace(request.workspace)).workspace_id
        await mirror_pushed(self._store, workspace_id)
        repository = await repository_of(self._store, workspace_id)
        index = await in_store_thread(read_index, repository)
        before = cursor["before"] if cursor else index.next_number
        numbers = _numbers(index, before, only_open=wanted is ProposalStatus.OPEN)

        def read() -> tuple[list[Proposal], int | None]:
            found: list[Proposal] = []
            for place, number in enumerate(numbers):
                if len(found) == size or place == _MOST_READ:
                    return found, numbers[place - 1]
                one = read_proposal(repository, index, number)
                if one is not None and wanted in {None, one.status} and request.target_branch in {"", one.target}:
                    found.append(one)
            return found, None

        found, last = await in_store_thread(read)
        protections = await in_store_thread(read_protections, repository)
        async with self._store.database.connection() as conn:
            told = await told_proposals(conn, workspace_id, protections, found)
        shown = fitting(told)
        if len(shown) < len(told):
            last = shown[-1].number
        return pb.ListProposalsResponse(
            proposals=shown, next_page_token=self._pages.write(request, None if last is None else {"before": last})
        )

    # --- Changing ----------------------------------------------------------------------------------------------------

    async def update(self, request: pb.UpdateProposalRequest) -> pb.UpdateProposalResponse:
        """Change what a proposal says, withdraw it, or open it again."""
        title = check_title(request.title) if request.HasField("title") else None
        description = check_said("description", request.description) if request.HasField("description") else None
        text, status = check_said("text", request.text), read_status(request.status)
        if status not in {None, ProposalStatus.OPEN, ProposalStatus.WITHDRAWN}:
            raise InvalidInputError.at("status", "must be OPEN or WITHDRAWN; reviews and merges make the others.")
        if title is None and description is None and status is None:
            raise InvalidInputError.at("title", "is needed, or description or status.")
        identity = identity_of(self._calls.limits, request)

        async def make(opened: OpenedProposal) -> pb.UpdateProposalResponse:
            proposal = opened.proposal
            if proposal.status is ProposalStatus.MERGED:
                raise ProposalMergedError(f"Proposal {proposal.number} is merged; propose another change.")
            kind = EventKind.EDITED
            if status is not None and status is not proposal.status:
                kind = EventKind.WITHDRAWN if status is ProposalStatus.WITHDRAWN else EventKind.REOPENED
                await _check_reopened(opened, status)
            event = event_by(identity, kind, opened.head, text)
            edited = _edited(proposal, title, description).with_event(event, status)
            changed = await opened.change(lambda _: edited, identity)
            return pb.UpdateProposalResponse(proposal=await told_in(opened.transaction, changed))

        return await self._calls.run(request, pb.UpdateProposalResponse, make)

    async def comment(self, request: pb.CommentProposalRequest) -> pb.CommentProposalResponse:
        """Comment on a proposal, whatever became of it."""
        text = check_said("text", request.text, required=True)
        if request.field and not request.node_id:
            raise InvalidInputError.at("node_id", "is needed with field.")
        if len(request.field) > _FIELD_CHARS or not request.field.isprintable():
            raise InvalidInputError.at("field", "is no name of a field.")
        identity = identity_of(self._calls.limits, request)

        async def make(opened: OpenedProposal) -> pb.CommentProposalResponse:
            about = await _meant(opened, request.node_id) if request.node_id else ""
            event = event_by(identity, EventKind.COMMENTED, opened.head, text, about, request.field)
            changed = await opened.add(event, identity)
            return pb.CommentProposalResponse(proposal=await told_in(opened.transaction, changed))

        return await self._calls.run(request, pb.CommentProposalResponse, make)


async def _meant(opened: OpenedProposal, text: str) -> str:
    """The id of the node or archive of a proposal that a text names; one that it deletes needs its whole id."""
    held = opened.transaction
    snapshot = Snapshot(held.conn, State(held.workspace_id, opened.head or opened.proposal.merge_commit))
    return await lookup.full_id(snapshot, text, archives=True)


def blockers(told: pb.Proposal, *, needs_checks: bool, checks: Sequence[pb.ProposalCheck] = ()) -> list[str]:
    """What is missing until a proposal can be merged, a sentence each."""
    if told.status != pb.PROPOSAL_STATUS_OPEN:
        return [f"It is {pb.ProposalStatus.Name(told.status).removeprefix('PROPOSAL_STATUS_').lower()}."]
    if not told.head_commit_id:
        return [f"Its branch {told.branch} was deleted."]
    found = []
    lacking = told.required_approvals - len(told.approved_by)
    if lacking > 0:
        stale = f" Those of {', '.join(told.stale_approvals)} are of an earlier commit." if told.stale_approvals else ""
        found.append(f"It needs {lacking} more approval(s) of others.{stale}")
    failed = [check for check in checks if not check.passed]
    if needs_checks:
        found += [f"Its check of {check.name} fails: {check.detail}" for check in failed]
    else:
        found += [f"It does not merge: {check.detail}" for check in failed if check.name == "conflicts"]
    return found


async def _check_reopened(opened: OpenedProposal, status: ProposalStatus) -> None:
    """Refuse to open a proposal again whose branch is gone, or has another open one."""
    if status is not ProposalStatus.OPEN:
        return
    if not opened.head:
        raise BranchNotFoundError(opened.proposal.branch)
    for number, one in opened.found.index.open.items():
        if one.branch == opened.proposal.branch:
            raise ProposalExistsError(number, one.branch)


def _edited(proposal: Proposal, title: str | None, description: str | None) -> Proposal:
    return replace(
        proposal,
        title=proposal.title if title is None else title,
        description=proposal.description if description is None else description,
    )


def _numbers(index: ProposalIndex, before: int, *, only_open: bool) -> range | list[int]:
    """The numbers below one, from the greatest down."""
    if only_open:
        return sorted((number for number in index.open if number < before), reverse=True)
    return range(min(before, index.next_number) - 1, 0, -1)


def _draft(request: pb.CreateProposalRequest, identity: Identity, branch: str, target: str) -> Proposal:
    return Proposal(
        number=0,
        title=check_title(request.title),
        description=check_said("description", request.description),
        author=identity.author.name,
        branch=branch,
        target=target,
        created_at=identity.author.when,
        merge_when_approved=request.merge_when_approved,
        request=identity.request,
    )


def _commit_request(request: pb.CreateProposalRequest) -> session_service_pb2.CommitChangesRequest:
    """The commit of the session's changes. Its request id follows from that of the call, which is taken already."""
    given = request.request_id.encode()
    return session_service_pb2.CommitChangesRequest(
        workspace=request.workspace,
        session_id=request.session_id,
        message=f"{request.title.strip()}\n\n{request.description.strip()}".strip(),
        author=request.author if request.HasField("author") else types_pb2.CommitAuthor(),
        request_id=f"proposal-{hashlib.sha256(given).hexdigest()[:32]}" if given else "",
    )
