"""The operations of ReviewService."""

from memotree_storage.store import Store

from memotree.history.committing import Committing, FollowingSummaries
from memotree.request.limits import ServiceLimits
from memotree.request.pages import PageTokens
from memotree.review.checks import Checks
from memotree.review.memory_tests import MemoryTests, Recalls
from memotree.review.proposal_calls import ProposalCalls
from memotree.review.proposals import CommitsSessions, Proposals
from memotree.review.protections import Protections
from memotree.review.push_policies import PushPolicies
from memotree.review.reviewing import Reviewing
from memotree.v1 import review_service_pb2 as pb


class ReviewOperations:
    """Proposes, reviews and merges changes, protects branches, and tests what the memory answers.

    Args:
        store: The store.
        pages: Makes page tokens.
        limits: What the service allows.
        sessions: Commits the sessions whose changes are proposed.
        recalling: Answers the questions of memory tests.
        summaries: Renews the summaries above what is committed.
    """

    def __init__(
        self,
        store: Store,
        pages: PageTokens,
        limits: ServiceLimits,
        sessions: CommitsSessions,
        recalling: Recalls,
        summaries: FollowingSummaries | None = None,
    ) -> None:
        self._memory_tests = MemoryTests(store, pages, Committing(store, limits, summaries), recalling)
        checks = Checks(store, self._memory_tests)
        calls = ProposalCalls(store, limits)
        self._proposals = Proposals(calls, pages, sessions, checks)
        self._reviewing = Reviewing(calls, checks, summaries)
        self._protections = Protections(store, limits)
        self._push_policies = PushPolicies(store, limits)

    async def create_proposal(self, request: pb.CreateProposalRequest) -> pb.CreateProposalResponse:
        """Propose a branch, or the changes of a session."""
        return await self._proposals.create(request)

    async def get_proposal(self, request: pb.GetProposalRequest) -> pb.GetProposalResponse:
        """Read a proposal and what happened to it."""
        return await self._proposals.get(request)

    async def list_proposals(self, request: pb.ListProposalsRequest) -> pb.ListProposalsResponse:
        """List proposals, newest first."""
        return await self._proposals.list(request)

    async def update_proposal(self, request: pb.UpdateProposalRequest) -> pb.UpdateProposalResponse:
        """Edit a proposal, withdraw it, or open it again."""
        return await self._proposals.update(request)

    async def comment_proposal(self, request: pb.CommentProposalRequest) -> pb.CommentProposalResponse:
        """Comment on a proposal."""
        return await self._proposals.comment(request)

    async def review_proposal(self, request: pb.ReviewProposalRequest) -> pb.ReviewProposalResponse:
        """Approve or reject a proposal."""
        return await self._reviewing.review(request)

    async def merge_proposal(self, request: pb.MergeProposalRequest) -> pb.MergeProposalResponse:
        """Merge a proposal into its target branch."""
        return await self._reviewing.merge(request)

    async def protect_branches(self, request: pb.ProtectBranchesRequest) -> pb.ProtectBranchesResponse:
        """Protect branches."""
        return await self._protections.protect(request)

    async def unprotect_branches(self, request: pb.UnprotectBranchesRequest) -> pb.UnprotectBranchesResponse:
        """End a protection."""
        return await self._protections.unprotect(request)

    async def list_protections(self, request: pb.ListProtectionsRequest) -> pb.ListProtectionsResponse:
        """List what is protected."""
        return await self._protections.list(request)

    async def set_push_policy(self, request: pb.SetPushPolicyRequest) -> pb.SetPushPolicyResponse:
        """Set what pushes may do."""
        return await self._push_policies.set(request)

    async def get_push_policy(self, request: pb.GetPushPolicyRequest) -> pb.GetPushPolicyResponse:
        """Read what pushes may do."""
        return await self._push_policies.get(request)

    async def put_memory_tests(self, request: pb.PutMemoryTestsRequest) -> pb.PutMemoryTestsResponse:
        """Write and delete memory tests."""
        return await self._memory_tests.put(request)

    async def check_memory(self, request: pb.CheckMemoryRequest) -> pb.CheckMemoryResponse:
        """Run memory tests."""
        return await self._memory_tests.check(request)
