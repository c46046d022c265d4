"""What the calls about one proposal have in common: the workspace is held, and a repeated call answers the same."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from google.protobuf.message import Message
from memotree_storage.commit.merge_commit import Identity
from memotree_storage.commit.proposals import FoundProposal, ProposalClosedError, change_proposal, find_proposal
from memotree_storage.commit.refs import BranchNotFoundError
from memotree_storage.commit.transaction import WorkspaceTransaction, workspace_transaction
from memotree_storage.concurrency.cancellation import CommitPoint, finish_past_commit_point
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.git.protections import read_protections
from memotree_storage.model.proposal import EventKind, Proposal, ProposalEvent, ProposalStatus
from memotree_storage.model.protection import Protection
from memotree_storage.postgres import refs, registry
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.registry import Workspace
from memotree_storage.store import Store

from memotree.request import lookup
from memotree.request.idempotency import run_once
from memotree.request.limits import ServiceLimits
from memotree.review.messages import proposal_message
from memotree.v1 import review_service_pb2 as pb

Response = TypeVar("Response", bound=Message)


@dataclass(frozen=True, slots=True)
class OpenedProposal:
    """A proposal in a transaction that holds its workspace.

    Attributes:
        transaction: The transaction.
        found: The proposal.
        head: Where its branch is; "" if that was deleted.
    """

    transaction: WorkspaceTransaction
    found: FoundProposal
    head: str

    @property
    def proposal(self) -> Proposal:
        """The proposal."""
        return self.found.proposal

    def check_open(self) -> None:
        """Refuse a proposal that is closed, or whose branch is gone.

        Raises:
            ProposalClosedError: It is not open.
            BranchNotFoundError: Its branch was deleted.
        """
        if self.proposal.status is not ProposalStatus.OPEN:
            raise ProposalClosedError(self.proposal)
        if not self.head:
            raise BranchNotFoundError(self.proposal.branch)

    async def add(self, event: ProposalEvent, identity: Identity, status: ProposalStatus | None = None) -> Proposal:
        """Record an event."""
        return await self.change(lambda proposal: proposal.with_event(event, status), identity)

    async def change(self, change: Callable[[Proposal], Proposal], identity: Identity) -> Proposal:
        """Record a change that adds an event."""
        return await change_proposal(self.transaction, self.found, change, identity, self.head)


class ProposalCalls:
    """What the calls about one proposal have in common: the workspace is held, and a repeated call answers the same.

    Args:
        store: The store.
        limits: What the service allows.
    """

    def __init__(self, store: Store, limits: ServiceLimits) -> None:
        self.store = store
        self.limits = limits

    async def workspace(self, name: str) -> Workspace:
        """The workspace of that name or id."""
        async with self.store.database.connection() as conn:
            return await registry.find_workspace(conn, lookup.needed("workspace", name))

    async def run(
        self,
        request: Any,
        response_type: type[Response],
        make: Callable[[OpenedProposal], Awaitable[Response]],
    ) -> Response:
        """Run a call about the proposal that a request names, once per request id."""
        workspace = await self.workspace(request.workspace)

        async def run(commit_point: CommitPoint) -> Response:
            async with workspace_transaction(self.store, workspace.workspace_id, commit_point) as held:

                async def once() -> Response:
                    found = await in_store_thread(find_proposal, held.repository, request.number)
                    head = await refs.branch_head(held.conn, workspace.workspace_id, found.proposal.branch)
                    return await make(OpenedProposal(held, found, "" if head is None else head.commit_id))

                return await run_once(held.conn, workspace.workspace_id, request, response_type, once)

        return await finish_past_commit_point(run)


def event_by(
    identity: Identity, kind: EventKind, head: str, text: str = "", node_id: str = "", field: str = ""
) -> ProposalEvent:
    """An event that happens now."""
    return ProposalEvent(kind, identity.author.name, identity.author.when, head, text, node_id, field)


async def told_in(held: WorkspaceTransaction, proposal: Proposal) -> pb.Proposal:
    """The message of a proposal within the transaction that has changed it."""
    protections = await in_store_thread(read_protections, held.repository)
    return (await told_proposals(held.conn, held.workspace_id, protections, [proposal]))[0]


async def told_proposals(
    conn: Connection, workspace_id: str, protections: Sequence[Protection], found: Sequence[Proposal]
) -> list[pb.Proposal]:
    """The messages of proposals, with the present heads of their branches; one statement for all."""
    heads = await refs.branch_heads(conn, workspace_id, {proposal.branch for proposal in found})
    return [proposal_message(proposal, heads.get(proposal.branch, ""), protections) for proposal in found]
