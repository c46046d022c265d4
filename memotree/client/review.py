"""The review of changes in a workspace: proposals, protected branches, and memory tests."""

from collections.abc import AsyncIterator, Iterable

from memotree.client.default_agent import default_agent
from memotree.client.enums import MergeStyle, MergeStyleName, ProposalStatus, ProposalStatusName, to_wire
from memotree.client.history_values import Author
from memotree.client.node_values import NodeRef, node_id
from memotree.client.paging import pages
from memotree.client.review_values import (
    MemoryTest,
    MemoryTestResult,
    Proposal,
    ProposalDetail,
    Protection,
    PushPolicy,
    Review,
)
from memotree.client.revision import MOST_PER_PAGE
from memotree.client.transport import Transport
from memotree.v1 import review_service_pb2 as pb


class AsyncReviews:
    """Proposes, reviews and merges changes of one workspace, protects its branches, and tests its memory."""

    _transport: Transport
    _workspace: str

    async def propose(
        self,
        title: str,
        description: str = "",
        *,
        session: str = "",
        branch: str = "",
        target: str = "",
        author: Author | None = None,
        merge_when_approved: bool = False,
        request_id: str = "",
    ) -> Proposal:
        """Proposes the changes of a session, which are committed to a branch of their own, or an existing branch.

        Args:
            title: One line.
            description: Why.
            session: The id of an open session; it goes on on the branch of the proposal.
            branch: In its place: the branch.
            target: The branch that shall get the changes; that of the session, or the default branch, if empty.
            author: Who proposes; the session's agent, or for a branch your agent, if ``None``.
            merge_when_approved: Whether the last missing approval merges it.
            request_id: An id of your choice for this call; a new one if empty.
        """
        by = author or (None if session else Author(default_agent()))
        request = pb.CreateProposalRequest(
            workspace=self._workspace,
            title=title,
            description=description,
            author=None if by is None else by.to_wire(),
            session_id=session,
            branch=branch,
            target_branch=target,
            merge_when_approved=merge_when_approved,
            request_id=request_id,
        )
        return Proposal.from_wire((await self._transport.call(request, pb.CreateProposalResponse)).proposal)

    async def proposal(self, number: int, *, run_checks: bool = False) -> ProposalDetail:
        """A proposal with what is missing until it can be merged, and what happened to it.

        Args:
            number: Its number.
            run_checks: Whether to run its checks: its structure, its conflicts, and the memory tests of its branch.
        """
        request = pb.GetProposalRequest(
            workspace=self._workspace, number=number, run_checks=run_checks, page_size=MOST_PER_PAGE
        )
        answers = pages(self._transport, request, pb.GetProposalResponse, lambda page: [page])
        return ProposalDetail.from_wire([page async for page in answers])

    def proposals(self, *, status: ProposalStatusName | None = None, target: str = "") -> AsyncIterator[Proposal]:
        """The proposals, newest first: all, or those with a status or for a branch."""
        request = pb.ListProposalsRequest(
            workspace=self._workspace,
            status=to_wire(ProposalStatus, status),
            target_branch=target,
            page_size=MOST_PER_PAGE,
        )
        return pages(
            self._transport, request, pb.ListProposalsResponse, lambda page: map(Proposal.from_wire, page.proposals)
        )

    async def change_proposal(
        self,
        number: int,
        *,
        title: str | None = None,
        description: str | None = None,
        status: ProposalStatusName | None = None,
        text: str = "",
        author: Author | None = None,
        request_id: str = "",
    ) -> Proposal:
        """Changes title or description of a proposal, withdraws it, or opens it again.

        Args:
            number: Its number.
            title: The new title; as it is if ``None``.
            description: The new description; likewise.
            status: ``"WITHDRAWN"`` or ``"OPEN"``; likewise.
            text: Why.
            author: Who does it; your agent if ``None``.
            request_id: An id of your choice for this call; a new one if empty.
        """
        request = pb.UpdateProposalRequest(
            workspace=self._workspace,
            number=number,
            author=(author or Author(default_agent())).to_wire(),
            title=title,
            description=description,
            status=to_wire(ProposalStatus, status),
            text=text,
            request_id=request_id,
        )
        return Proposal.from_wire((await self._transport.call(request, pb.UpdateProposalResponse)).proposal)

    async def comment(
        self,
        number: int,
        text: str,
        *,
        node: NodeRef | None = None,
        field: str = "",
        author: Author | None = None,
        request_id: str = "",
    ) -> Proposal:
        """Comments on a proposal, or on a node or field in it.

        Args:
            number: The number of the proposal.
            text: The comment.
            node: The node or archive that it is about.
            field: The field of it.
            author: Who comments; your agent if ``None``.
            request_id: An id of your choice for this call; a new one if empty.
        """
        request = pb.CommentProposalRequest(
            workspace=self._workspace,
            number=number,
            author=(author or Author(default_agent())).to_wire(),
            text=text,
            node_id="" if node is None else node_id(node),
            field=field,
            request_id=request_id,
        )
        return Proposal.from_wire((await self._transport.call(request, pb.CommentProposalResponse)).proposal)

    async def approve(
        self, number: int, commit: str, text: str = "", *, reviewer: Author | None = None, request_id: str = ""
    ) -> Review:
        """Approves a proposal at the commit that the reviewer has seen; not one's own.

        Args:
            number: The number of the proposal.
            commit: Its ``head_commit_id`` as it was reviewed.
            text: What there is to say.
            reviewer: Who approves; your agent if ``None``.
            request_id: An id of your choice for this call; a new one if empty.

        Raises:
            AbortedError: The branch of the proposal has moved since.
        """
        return await self._review(number, commit, pb.REVIEW_VERDICT_APPROVE, text, reviewer, request_id)

    async def reject(
        self, number: int, commit: str, text: str, *, reviewer: Author | None = None, request_id: str = ""
    ) -> Review:
        """Rejects a proposal at the commit that the reviewer has seen, and so closes it; ``text`` says why.

        Raises:
            AbortedError: The branch of the proposal has moved since.
        """
        return await self._review(number, commit, pb.REVIEW_VERDICT_REJECT, text, reviewer, request_id)

    async def _review(
        self,
        number: int,
        commit: str,
        verdict: pb.ReviewVerdict.ValueType,
        text: str,
        reviewer: Author | None,
        request_id: str,
    ) -> Review:
        request = pb.ReviewProposalRequest(
            workspace=self._workspace,
            number=number,
            reviewer=(reviewer or Author(default_agent())).to_wire(),
            verdict=verdict,
            text=text,
            head_commit_id=commit,
            request_id=request_id,
        )
        return Review.from_wire(await self._transport.call(request, pb.ReviewProposalResponse))

    async def merge_proposal(
        self,
        number: int,
        *,
        style: MergeStyleName | None = None,
        message: str = "",
        delete_branch: bool = False,
        author: Author | None = None,
        request_id: str = "",
    ) -> Proposal:
        """Merges a proposal into its target branch, if the protection of that allows it.

        Args:
            number: The number of the proposal.
            style: How it is recorded; by default as a commit with both sides as parents.
            message: The commit message; one that names the proposal if empty.
            delete_branch: Whether its branch is deleted then; its commits stay in Git.
            author: Who merges; your agent if ``None``.
            request_id: An id of your choice for this call; a new one if empty.

        Raises:
            FailedPreconditionError: Approvals are missing, or checks fail that the protection needs.
            AbortedError: Both sides changed the same thing differently; ``conflicts`` lists it.
        """
        request = pb.MergeProposalRequest(
            workspace=self._workspace,
            number=number,
            author=(author or Author(default_agent())).to_wire(),
            style=to_wire(MergeStyle, style),
            message=message,
            delete_branch=delete_branch,
            request_id=request_id,
        )
        return Proposal.from_wire((await self._transport.call(request, pb.MergeProposalResponse)).proposal)

    # --- Protected branches ------------------------------------------------------------------------------------------

    async def protect(
        self,
        pattern: str,
        *,
        required_approvals: int = 1,
        checks_required: bool = False,
        author: Author | None = None,
    ) -> Protection:
        """Protects branches, so that they change only by the merge of an approved proposal.

        Args:
            pattern: The name of a branch, or the beginning of names with "*" at its end.
            required_approvals: How many others must approve a proposal.
            checks_required: Whether its checks must pass, too.
            author: Who protects them; your agent if ``None``.
        """
        request = pb.ProtectBranchesRequest(
            workspace=self._workspace,
            pattern=pattern,
            required_approvals=required_approvals,
            checks_required=checks_required,
            author=(author or Author(default_agent())).to_wire(),
        )
        return Protection.from_wire((await self._transport.call(request, pb.ProtectBranchesResponse)).protection)

    async def unprotect(self, pattern: str, *, author: Author | None = None) -> None:
        """Ends the protection of a pattern."""
        request = pb.UnprotectBranchesRequest(
            workspace=self._workspace, pattern=pattern, author=(author or Author(default_agent())).to_wire()
        )
        await self._transport.call(request, pb.UnprotectBranchesResponse)

    async def protections(self) -> list[Protection]:
        """The protections, ordered by pattern."""
        request = pb.ListProtectionsRequest(workspace=self._workspace)
        answer = await self._transport.call(request, pb.ListProtectionsResponse)
        return [Protection.from_wire(one) for one in answer.protections]

    # --- Pushes ------------------------------------------------------------------------------------------------------

    async def set_push_policy(
        self, *, strict: bool = False, rewindable: Iterable[str] = (), author: Author | None = None
    ) -> PushPolicy:
        """Sets what pushes with git may do.

        Args:
            strict: Whether a push is refused that brings faults into a branch; else it is taken in, and told.
            rewindable: The branches that a push may rewind: names, or beginnings of names with "*" at their end.
            author: Who sets it; your agent if ``None``.
        """
        request = pb.SetPushPolicyRequest(
            workspace=self._workspace,
            strict=strict,
            rewindable=rewindable,
            author=(author or Author(default_agent())).to_wire(),
        )
        return PushPolicy.from_wire((await self._transport.call(request, pb.SetPushPolicyResponse)).policy)

    async def push_policy(self) -> PushPolicy:
        """What pushes with git may do."""
        request = pb.GetPushPolicyRequest(workspace=self._workspace)
        return PushPolicy.from_wire((await self._transport.call(request, pb.GetPushPolicyResponse)).policy)

    # --- Memory tests ------------------------------------------------------------------------------------------------

    async def put_memory_tests(
        self,
        tests: Iterable[MemoryTest] = (),
        *,
        deleted: Iterable[str] = (),
        branch: str = "",
        message: str = "",
        author: Author | None = None,
        request_id: str = "",
    ) -> str:
        """Writes and deletes memory tests in one commit; returns the commit.

        Args:
            tests: The tests; one of the same name is replaced.
            deleted: The names of tests to delete.
            branch: The branch; the default branch if empty.
            message: The commit message; one that names the tests if empty.
            author: The author of the commit; your agent if ``None``.
            request_id: An id of your choice for this call; a new one if empty.
        """
        request = pb.PutMemoryTestsRequest(
            workspace=self._workspace,
            branch=branch,
            tests=[test.to_wire() for test in tests],
            deleted_names=deleted,
            author=(author or Author(default_agent())).to_wire(),
            message=message,
            request_id=request_id,
        )
        return (await self._transport.call(request, pb.PutMemoryTestsResponse)).commit_id

    def check_memory(
        self, at: str = "", *, tests_at: str = "", names: Iterable[str] = (), list_only: bool = False
    ) -> AsyncIterator[MemoryTestResult]:
        """Runs memory tests, by name; each asks Recall its question.

        Args:
            at: The branch, tag, commit or session that is asked; the default branch if empty.
            tests_at: The revision that has the tests; the same if empty.
            names: Only these tests.
            list_only: Whether only to list them.
        """
        request = pb.CheckMemoryRequest(
            workspace=self._workspace,
            revision=at,
            tests_at=tests_at,
            names=names,
            list_only=list_only,
        )
        return pages(
            self._transport, request, pb.CheckMemoryResponse, lambda page: map(MemoryTestResult.from_wire, page.results)
        )
