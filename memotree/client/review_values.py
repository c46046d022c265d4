"""Proposals, what happened to them, protections, and memory tests."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from memotree.client.enums import ProposalEventKind, ProposalStatus, from_wire
from memotree.client.node_values import moment
from memotree.v1 import review_service_pb2 as pb


@dataclass(frozen=True, slots=True)
class Proposal:
    """Changes that are proposed.

    ``head_commit_id`` is where its branch is ("" if that was deleted); ``approved_by`` have approved it as it is there,
    ``stale_approvals`` before it moved. ``merge_commit_id`` is "" unless it is merged.
    """

    number: int
    title: str
    description: str
    author: str
    branch: str
    target_branch: str
    status: ProposalStatus
    head_commit_id: str
    approved_by: tuple[str, ...]
    stale_approvals: tuple[str, ...]
    required_approvals: int
    create_time: datetime | None
    update_time: datetime | None
    merge_commit_id: str
    event_count: int
    merge_when_approved: bool

    @classmethod
    def from_wire(cls, message: pb.Proposal) -> Self:
        """Reads the message."""
        return cls(
            message.number,
            message.title,
            message.description,
            message.author,
            message.branch,
            message.target_branch,
            from_wire(ProposalStatus, message.status, ProposalStatus.UNSPECIFIED),
            message.head_commit_id,
            tuple(message.approved_by),
            tuple(message.stale_approvals),
            message.required_approvals,
            moment(message, "create_time"),
            moment(message, "update_time"),
            message.merge_commit_id,
            message.event_count,
            message.merge_when_approved,
        )


@dataclass(frozen=True, slots=True)
class ProposalEvent:
    """One thing that happened to a proposal.

    ``node_id`` and ``field`` are what a comment is about; ``commit_id`` is what the target branch got by a merge.
    """

    kind: ProposalEventKind
    by: str
    time: datetime | None
    head_commit_id: str
    text: str
    node_id: str
    field: str
    commit_id: str

    @classmethod
    def from_wire(cls, message: pb.ProposalEvent) -> Self:
        """Reads the message."""
        return cls(
            from_wire(ProposalEventKind, message.kind, ProposalEventKind.UNSPECIFIED),
            message.by,
            moment(message, "time"),
            message.head_commit_id,
            message.text,
            message.node_id,
            message.field,
            message.commit_id,
        )


@dataclass(frozen=True, slots=True)
class ProposalCheck:
    """A check of a proposal, whether it passes, and what was found."""

    name: str
    passed: bool
    detail: str

    @classmethod
    def from_wire(cls, message: pb.ProposalCheck) -> Self:
        """Reads the message."""
        return cls(message.name, message.passed, message.detail)


@dataclass(frozen=True, slots=True)
class ProposalDetail:
    """A proposal with what is missing until it can be merged, its checks if they were run, and all its events."""

    proposal: Proposal
    blockers: tuple[str, ...]
    checks: tuple[ProposalCheck, ...]
    events: tuple[ProposalEvent, ...]

    @classmethod
    def from_wire(cls, messages: Sequence[pb.GetProposalResponse]) -> Self:
        """Reads the messages of all pages."""
        first = messages[0]
        return cls(
            Proposal.from_wire(first.proposal),
            tuple(first.blockers),
            tuple(map(ProposalCheck.from_wire, first.checks)),
            tuple(ProposalEvent.from_wire(event) for message in messages for event in message.events),
        )


@dataclass(frozen=True, slots=True)
class Review:
    """A proposal after a review, and what is missing until it can be merged."""

    proposal: Proposal
    blockers: tuple[str, ...]

    @classmethod
    def from_wire(cls, message: pb.ReviewProposalResponse) -> Self:
        """Reads the message."""
        return cls(Proposal.from_wire(message.proposal), tuple(message.blockers))


@dataclass(frozen=True, slots=True)
class Protection:
    """The protection of the branches that ``pattern`` names: with "*" at its end, all that begin so."""

    pattern: str
    required_approvals: int
    checks_required: bool
    protected_by: str
    protect_time: datetime | None

    @classmethod
    def from_wire(cls, message: pb.Protection) -> Self:
        """Reads the message."""
        return cls(
            message.pattern,
            message.required_approvals,
            message.checks_required,
            message.protected_by,
            moment(message, "protect_time"),
        )


@dataclass(frozen=True, slots=True)
class PushPolicy:
    """What pushes with git may do: with ``strict``, bring no fault into a branch; and rewind ``rewindable`` ones."""

    strict: bool = False
    rewindable: tuple[str, ...] = ()
    set_by: str = ""
    set_time: datetime | None = None

    @classmethod
    def from_wire(cls, message: pb.PushPolicy) -> Self:
        """Reads the message."""
        return cls(message.strict, tuple(message.rewindable), message.set_by, moment(message, "set_time"))


@dataclass(frozen=True, slots=True)
class MemoryTest:
    """A question, and what Recall must find for it.

    The answer must cite each expected node, or one below it, must have each expected text, and none that is unwanted.
    ``token_budget`` is the most tokens of the answer, 0 for the server's default; ``archives`` are asked, all if empty.
    """

    name: str
    question: str
    expected_node_ids: tuple[str, ...] = ()
    expected_texts: tuple[str, ...] = ()
    unwanted_texts: tuple[str, ...] = ()
    token_budget: int = 0
    archives: tuple[str, ...] = ()

    @classmethod
    def from_wire(cls, message: pb.MemoryTest) -> Self:
        """Reads the message."""
        return cls(
            message.name,
            message.question,
            tuple(message.expected_node_ids),
            tuple(message.expected_texts),
            tuple(message.unwanted_texts),
            message.token_budget,
            tuple(message.archives),
        )

    def to_wire(self) -> pb.MemoryTest:
        """Writes the message."""
        return pb.MemoryTest(
            name=self.name,
            question=self.question,
            expected_node_ids=self.expected_node_ids,
            expected_texts=self.expected_texts,
            unwanted_texts=self.unwanted_texts,
            token_budget=self.token_budget,
            archives=self.archives,
        )


@dataclass(frozen=True, slots=True)
class MemoryTestResult:
    """A memory test, whether it passes, what is missing or unwanted, and the nodes that the answer cites."""

    test: MemoryTest
    passed: bool
    faults: tuple[str, ...]
    cited_node_ids: tuple[str, ...]

    @classmethod
    def from_wire(cls, message: pb.MemoryTestResult) -> Self:
        """Reads the message."""
        return cls(
            MemoryTest.from_wire(message.test), message.passed, tuple(message.faults), tuple(message.cited_node_ids)
        )
