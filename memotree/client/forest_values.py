"""The results of the memory forest as plain values: recalled nodes and passages, explored children, cited answers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self, overload

from google.protobuf.json_format import MessageToJson, Parse, ParseError

from memotree.client.enums import DropReason, RecallStrategy, StaleReason, from_wire
from memotree.client.jobs import ModelUsage
from memotree.client.node_values import Archive, Node, Source, confidence_name, moment
from memotree.v1 import forest_service_pb2 as wire


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a conversation; ``time`` and ``id`` are kept unchanged; turns of one ``session`` form a subtree."""

    speaker: str
    text: str
    time: str = ""
    id: str = ""
    session: str = ""

    def to_wire(self) -> wire.Turn:
        """Writes the message."""
        return wire.Turn(speaker=self.speaker, text=self.text, time=self.time, id=self.id, session=self.session)


@dataclass(frozen=True, slots=True)
class Citation:
    """Where a passage is from: node, commit, and the span of the document that the node was cut from.

    Attributes:
        commit_id: The commit that was read; for a session, its base.
        source: ``None`` for a node that was not cut from a document.
        content_sha256: SHA-256 of the node's content in hexadecimal, to check the citation.
    """

    node_id: str
    commit_id: str = ""
    source: Source | None = None
    content_sha256: str = ""
    title: str = ""
    archive_id: str = ""
    archive_name: str = ""

    @classmethod
    def from_wire(cls, message: wire.Citation) -> Self:
        """Reads the message."""
        return cls(
            message.node_id,
            message.commit_id,
            Source.from_wire(message.source) if message.HasField("source") else None,
            message.content_sha256,
            message.title,
            message.archive_id,
            message.archive_name,
        )


@dataclass(frozen=True, slots=True)
class RecallSignal:
    """How much one signal ("words", "meaning", "route", "rerank") adds to a score."""

    name: str
    score: float


@dataclass(frozen=True, slots=True)
class RecallTrace:
    """Why a node is part of an answer; ``route`` has the nodes above it, root first."""

    signals: tuple[RecallSignal, ...] = ()
    route: tuple[Node, ...] = ()
    reason: str = ""

    @classmethod
    def from_wire(cls, message: wire.RecallTrace) -> Self:
        """Reads the message."""
        return cls(
            tuple(RecallSignal(signal.name, signal.score) for signal in message.signals),
            tuple(Node.from_wire(node) for node in message.route),
            message.reason,
        )


@dataclass(frozen=True, slots=True)
class FormerText:
    """What a node said before it was revised, or what a node said that it supersedes.

    Attributes:
        text: Its title and content; the best excerpt of a longer text.
        since: From when on it was said; ``None`` if that is not known.
        until: Until when; ``None`` if the change is not committed.
        changed_by: The author of the commit that changed it; empty if that is not known.
        node_id: The superseded node; empty for a revision.
    """

    text: str
    since: datetime | None = None
    until: datetime | None = None
    changed_by: str = ""
    node_id: str = ""

    @classmethod
    def from_wire(cls, message: wire.FormerText) -> Self:
        """Reads the message."""
        return cls(
            message.text, moment(message, "since"), moment(message, "until"), message.changed_by, message.node_id
        )


@dataclass(frozen=True, slots=True)
class RecalledNode:
    """One recalled node (a leaf at level DETAIL, others at SUMMARY); ``trace`` is set if it was asked for.

    Attributes:
        valid_from: From when on it holds; ``None`` if it does not say.
        valid_to: From when on it does not hold any more: by its attribute, or since a node that supersedes it holds.
        superseded_by: The ids of the nodes that supersede it.
        former: What was said before instead of it, the latest first.
    """

    node: Node
    score: float
    tokens: int = 0
    citation: Citation | None = None
    trace: RecallTrace | None = None
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    superseded_by: tuple[str, ...] = ()
    former: tuple[FormerText, ...] = ()

    @classmethod
    def from_wire(cls, message: wire.RecalledNode) -> Self:
        """Reads the message."""
        return cls(
            Node.from_wire(message.node),
            message.score,
            message.tokens,
            Citation.from_wire(message.citation) if message.HasField("citation") else None,
            RecallTrace.from_wire(message.trace) if message.HasField("trace") else None,
            moment(message, "valid_from"),
            moment(message, "valid_to"),
            tuple(message.superseded_by),
            tuple(FormerText.from_wire(each) for each in message.former),
        )


@dataclass(frozen=True, slots=True)
class Passage:
    """Adjacent leaves of one document, joined; ``headings`` are the headings above it, outermost first."""

    archive_id: str
    archive_name: str
    text: str
    score: float
    headings: tuple[str, ...] = ()
    nodes: tuple[RecalledNode, ...] = ()

    @classmethod
    def from_wire(cls, message: wire.Passage) -> Self:
        """Reads the message."""
        return cls(
            message.archive_id,
            message.archive_name,
            message.text,
            message.score,
            tuple(message.headings),
            tuple(RecalledNode.from_wire(node) for node in message.nodes),
        )


@dataclass(frozen=True, slots=True)
class DroppedNode:
    """A node that was found and is not part of the answer, because of the token budget or as a copy of another."""

    node_id: str
    score: float
    tokens: int
    reason: DropReason

    @classmethod
    def from_wire(cls, message: wire.DroppedNode) -> Self:
        """Reads the message."""
        reason = from_wire(DropReason, message.reason, DropReason.UNSPECIFIED)
        return cls(message.node_id, message.score, message.tokens, reason)


@dataclass(frozen=True, slots=True)
class Receipt:
    """How an answer of recall came about; given to ``recall``, it gives the same answer again.

    Attributes:
        commit_id: The commit that was read; for a session, its base.
        session_id: The session, if it had staged changes.
        query_sha256: SHA-256 of the query in hexadecimal.
        strategy: The strategy that applied.
        token_budget: The token budget that applied.
        moment: The time at which nodes had to hold.
        method: The method of ranking and its version.
        embedding_model: The embedding model.
        rerank_model: The reranking model; "" without one.
        dropped: The best nodes that were found and are not part of the answer, best first.
        answer_sha256: SHA-256 of the answer in hexadecimal.
        text: The whole receipt as JSON, to be stored.
    """

    commit_id: str
    session_id: str
    query_sha256: str
    strategy: RecallStrategy
    token_budget: int
    moment: datetime | None
    method: str
    embedding_model: str
    rerank_model: str
    dropped: tuple[DroppedNode, ...]
    answer_sha256: str
    text: str

    @classmethod
    def from_wire(cls, message: wire.RecallReceipt) -> Self:
        """Reads the message."""
        return cls(
            message.commit_id,
            message.session_id,
            message.query_sha256,
            from_wire(RecallStrategy, message.strategy, RecallStrategy.HYBRID),
            message.token_budget,
            moment(message, "moment"),
            message.method,
            message.embedding_model,
            message.rerank_model,
            tuple(DroppedNode.from_wire(each) for each in message.dropped),
            message.answer_sha256,
            MessageToJson(message, preserving_proto_field_name=True, indent=None, sort_keys=True),
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads a stored receipt.

        Raises:
            ValueError: If the text is no receipt.
        """
        try:
            return cls.from_wire(Parse(text, wire.RecallReceipt()))
        except ParseError as error:
            raise ValueError(f"This is no receipt of a recall: {error}") from error

    def to_wire(self) -> wire.RecallReceipt:
        """Returns the message."""
        return Parse(self.text, wire.RecallReceipt())


@dataclass(frozen=True, slots=True)
class RecallResult:
    """The result of a recall; printed, it is its text.

    Attributes:
        text: All passages as one Markdown text, ready for a prompt; for LCA and COLLAPSED the text of each node after
            its id. A text of several lines is quoted. Empty if nothing was found.
        passages: For HYBRID: the document with the best passage first, passages in document order.
        nodes: For LCA and COLLAPSED: the nodes, best first.
        tokens_used: The tokens of the packed leaves together; never more than ``token_budget``.
        leaves_considered: How many leaves were scored.
        commit_id: The commit that was read; for a session, its base.
        confidence: Whether anything here answers the question: "none", "weak" or "strong".
        likelihood: How likely that is, from 0 to 1.
        outdated_left_out: For HYBRID: how many nodes were left out because they do not hold.
        receipt: How the answer came about; given to ``recall``, it gives the same answer again.
    """

    text: str = ""
    passages: tuple[Passage, ...] = ()
    nodes: tuple[RecalledNode, ...] = ()
    tokens_used: int = 0
    token_budget: int = 0
    leaves_considered: int = 0
    commit_id: str = ""
    warnings: tuple[str, ...] = ()
    confidence: str = ""
    likelihood: float = 0.0
    outdated_left_out: int = 0
    receipt: Receipt | None = None

    @classmethod
    def from_wire(cls, message: wire.RecallResponse) -> Self:
        """Reads the message."""
        return cls(
            message.text,
            tuple(Passage.from_wire(passage) for passage in message.passages),
            tuple(RecalledNode.from_wire(node) for node in message.nodes),
            message.tokens_used,
            message.token_budget,
            message.leaves_considered,
            message.commit_id,
            tuple(message.warnings),
            confidence_name(message.confidence),
            message.likelihood,
            message.outdated_left_out,
            Receipt.from_wire(message.receipt) if message.HasField("receipt") else None,
        )

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class DrilledNode:
    """One child (or the leaf itself, for a leaf) with its score from 0 to 1."""

    node: Node
    score: float
    citation: Citation | None = None

    @classmethod
    def from_wire(cls, message: wire.DrilledNode) -> Self:
        """Reads the message."""
        citation = Citation.from_wire(message.citation) if message.HasField("citation") else None
        return cls(Node.from_wire(message.node), message.score, citation)


@dataclass(frozen=True, slots=True)
class DrillDownResult(Sequence[DrilledNode]):
    """The nodes one level below a node, best first; ``below_threshold`` is how many had a too low score."""

    nodes: tuple[DrilledNode, ...] = ()
    below_threshold: int = 0
    commit_id: str = ""
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_wire(cls, message: wire.DrillDownResponse) -> Self:
        """Reads the message."""
        nodes = tuple(DrilledNode.from_wire(node) for node in message.nodes)
        return cls(nodes, message.below_threshold, message.commit_id, tuple(message.warnings))

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[DrilledNode]:
        return iter(self.nodes)

    @overload
    def __getitem__(self, index: int) -> DrilledNode: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[DrilledNode, ...]: ...

    def __getitem__(self, index: int | slice) -> DrilledNode | tuple[DrilledNode, ...]:
        return self.nodes[index]


@dataclass(frozen=True, slots=True)
class AskStep:
    """One step towards an answer, sent as it happens.

    Attributes:
        number: The number of the step, from 1.
        action: ``"recall"``, ``"explore"`` or ``"answer"``.
        node_id: The node that is explored.
        reasoning: The reason for the step.
        nodes: The nodes that the model newly sees, at level TITLE.
    """

    number: int
    action: str
    node_id: str = ""
    reasoning: str = ""
    nodes: tuple[Node, ...] = ()

    @classmethod
    def from_wire(cls, message: wire.AskStep) -> Self:
        """Reads the message."""
        nodes = tuple(Node.from_wire(node) for node in message.nodes)
        return cls(message.number, message.action, message.node_id, message.reasoning, nodes)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question.

    Attributes:
        citations: The sources, in the order of use.
        extractive: Whether no chat model answered, so that ``text`` is the cited passages themselves.
        steps_exhausted: Whether the model had to answer because the last step was reached.
        usage: The model usage.
        commit_id: The commit that was read; for a session, its base.
        confidence: Whether what was recalled answers the question: "none" (nothing is known), "weak" or "strong".
    """

    text: str
    citations: tuple[Citation, ...] = ()
    extractive: bool = False
    steps_exhausted: bool = False
    usage: tuple[ModelUsage, ...] = ()
    warnings: tuple[str, ...] = ()
    commit_id: str = ""
    confidence: str = ""

    @classmethod
    def from_wire(cls, message: wire.Answer) -> Self:
        """Reads the message."""
        return cls(
            message.text,
            tuple(Citation.from_wire(citation) for citation in message.citations),
            message.extractive,
            message.steps_exhausted,
            tuple(ModelUsage.from_wire(usage) for usage in message.usage),
            tuple(message.warnings),
            message.commit_id,
            confidence_name(message.confidence),
        )


@dataclass(frozen=True, slots=True)
class ArchiveMergeSuggestion:
    """Archives of one model that may belong together.

    ``similarity`` is the lowest similarity of an archive in the group to its nearest other.
    """

    archives: tuple[Archive, ...]
    similarity: float
    reason: str = ""

    @classmethod
    def from_wire(cls, message: wire.ArchiveMergeSuggestion) -> Self:
        """Reads the message."""
        return cls(
            tuple(Archive.from_wire(archive) for archive in message.archives), message.similarity, message.reason
        )


@dataclass(frozen=True, slots=True)
class ArchiveMerge:
    """The joined archive, its new root, and how many nodes were moved."""

    archive: Archive
    root: Node
    commit_id: str
    moved_nodes: int = 0

    @classmethod
    def from_wire(cls, message: wire.MergeArchivesResponse) -> Self:
        """Reads the message."""
        return cls(
            Archive.from_wire(message.archive), Node.from_wire(message.root), message.commit_id, message.moved_nodes
        )


@dataclass(frozen=True, slots=True)
class StaleSummary:
    """A node, at level SUMMARY, whose summary needs renewal, and why."""

    node: Node
    reason: StaleReason

    @classmethod
    def from_wire(cls, message: wire.StaleSummary) -> Self:
        """Reads the message."""
        return cls(Node.from_wire(message.node), from_wire(StaleReason, message.reason, StaleReason.CONTENT))


@dataclass(frozen=True, slots=True)
class StaleSummaries:
    """Summaries that need renewal, the deepest first; ``total`` counts all of them."""

    summaries: tuple[StaleSummary, ...] = ()
    total: int = 0

    @classmethod
    def from_wire(cls, message: wire.ListStaleSummariesResponse) -> Self:
        """Reads the message."""
        return cls(tuple(StaleSummary.from_wire(each) for each in message.summaries), message.total)
