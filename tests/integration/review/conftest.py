"""The review of one workspace."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from integration.histories import git
from integration.recall.talks import Models
from integration.sides import Sides
from integration.worlds import World
from memotree_storage.model.node import Node

from memotree.forest.recall.recall import Recall
from memotree.review import ReviewOperations
from memotree.v1 import review_service_pb2 as pb
from memotree.v1 import types_pb2

APPROVE = pb.REVIEW_VERDICT_APPROVE
REJECT = pb.REVIEW_VERDICT_REJECT
PROPOSALS = "refs/memotree/proposals"


def called(name: str) -> types_pb2.CommitAuthor:
    """Who calls."""
    return types_pb2.CommitAuthor(name=name)


@dataclass(frozen=True, slots=True)
class Review:
    """Short calls of the review operations in the workspace of a world, whose first node is committed on ``main``."""

    world: World
    operations: ReviewOperations
    node: Node

    async def edited(self, title: str = "Edited", *, agent: str = "bot", branch: str = "") -> str:
        """The id of a session of an agent that has changed the node."""
        session_id = await self.world.open(branch, agent=agent)
        await self.world.stage(session_id, replace(self.node, title=title))
        return session_id

    async def propose(self, title: str = "Say it better", **fields: Any) -> pb.Proposal:
        """Propose a session or branch; without one, a session of the agent "bot" that has changed the node."""
        if "session_id" not in fields and "branch" not in fields:
            fields["session_id"] = await self.edited()
        request = pb.CreateProposalRequest(workspace=self.world.workspace, title=title, **fields)
        return (await self.operations.create_proposal(request)).proposal

    async def get(self, number: int = 1, **fields: Any) -> pb.GetProposalResponse:
        request = pb.GetProposalRequest(workspace=self.world.workspace, number=number, **fields)
        return await self.operations.get_proposal(request)

    async def numbers(self, **fields: Any) -> list[int]:
        """The numbers of all proposals that a call lists, over all its pages."""
        request = pb.ListProposalsRequest(workspace=self.world.workspace, **fields)
        found: list[int] = []
        while True:
            response = await self.operations.list_proposals(request)
            found += [proposal.number for proposal in response.proposals]
            if not response.next_page_token:
                return found
            request.page_token = response.next_page_token

    async def comment(self, text: str, by: str = "ada", number: int = 1, **fields: Any) -> pb.Proposal:
        request = pb.CommentProposalRequest(
            workspace=self.world.workspace, number=number, author=called(by), text=text, **fields
        )
        return (await self.operations.comment_proposal(request)).proposal

    async def update(self, number: int = 1, **fields: Any) -> pb.Proposal:
        request = pb.UpdateProposalRequest(workspace=self.world.workspace, number=number, **fields)
        return (await self.operations.update_proposal(request)).proposal

    async def review(
        self, by: str = "ada", number: int = 1, verdict: pb.ReviewVerdict.ValueType = APPROVE, **fields: Any
    ) -> pb.ReviewProposalResponse:
        """Review a proposal, at its present commit unless another one is given."""
        fields.setdefault("head_commit_id", (await self.get(number)).proposal.head_commit_id)
        request = pb.ReviewProposalRequest(
            workspace=self.world.workspace, number=number, reviewer=called(by), verdict=verdict, **fields
        )
        return await self.operations.review_proposal(request)

    async def merge(self, number: int = 1, **fields: Any) -> pb.MergeProposalResponse:
        request = pb.MergeProposalRequest(workspace=self.world.workspace, number=number, **fields)
        return await self.operations.merge_proposal(request)

    async def protect(self, pattern: str = "main", **fields: Any) -> pb.Protection:
        request = pb.ProtectBranchesRequest(workspace=self.world.workspace, pattern=pattern, **fields)
        return (await self.operations.protect_branches(request)).protection

    async def unprotect(self, pattern: str = "main") -> None:
        await self.operations.unprotect_branches(
            pb.UnprotectBranchesRequest(workspace=self.world.workspace, pattern=pattern)
        )

    async def protections(self) -> list[pb.Protection]:
        request = pb.ListProtectionsRequest(workspace=self.world.workspace)
        return list((await self.operations.list_protections(request)).protections)

    async def put_tests(self, *tests: pb.MemoryTest, **fields: Any) -> str:
        request = pb.PutMemoryTestsRequest(workspace=self.world.workspace, tests=tests, **fields)
        return (await self.operations.put_memory_tests(request)).commit_id

    async def check(self, **fields: Any) -> list[pb.MemoryTestResult]:
        """The results of all tests, over all pages."""
        request = pb.CheckMemoryRequest(workspace=self.world.workspace, **fields)
        found: list[pb.MemoryTestResult] = []
        while True:
            response = await self.operations.check_memory(request)
            found += response.results
            if not response.next_page_token:
                return found
            request.page_token = response.next_page_token

    def recorded(self) -> list[str]:
        """The subjects of the record of proposals, newest first."""
        return git(self.world, "log", "--first-parent", "--format=%an: %s", PROPOSALS).splitlines()


@pytest.fixture
async def review(sides: Sides) -> Review:
    world = sides.world
    recalling = Recall(world.store, world.limits, Models(world.store.embedder))
    operations = ReviewOperations(world.store, world.pages, world.limits, world.sessions, recalling)
    node = world.node("Harbour", content="The ferry to the island leaves at nine.")
    await world.put(node)
    return Review(world, operations, node)
