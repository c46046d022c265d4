"""What a question with tools returns: the answer with its sources and calls, the events before it, and plans."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from memotree.client.enums import QueryEnd, QueryStrategy, from_wire
from memotree.client.forest_values import Citation
from memotree.client.jobs import ModelUsage
from memotree.client.tools import ToolResult
from memotree.v1 import query_service_pb2 as wire


@dataclass(frozen=True, slots=True)
class QuerySource:
    """A passage that recall found; ``cited`` says whether the answer names its node."""

    citation: Citation
    score: float
    cited: bool

    @classmethod
    def from_wire(cls, message: wire.QuerySource) -> Self:
        """Reads the message."""
        return cls(Citation.from_wire(message.citation), message.score, message.cited)


@dataclass(frozen=True, slots=True)
class QueryCall:
    """A call that the model asked for.

    Attributes:
        number: Its number, from 1.
        turn: The turn of the model, from 1; the calls of one turn that only read are made at once.
        name: The tool, as the model named it.
        arguments_json: The arguments, as the model gave them.
        called: Whether the tool was called; if not, the result says why.
        result: The result; ``None`` while the tool works.
        node_ids: The nodes of the store that are in the result.
    """

    number: int
    turn: int
    name: str
    arguments_json: str
    called: bool
    result: ToolResult | None = None
    node_ids: tuple[str, ...] = ()

    @classmethod
    def from_wire(cls, message: wire.QueryCall) -> Self:
        """Reads the message."""
        result = ToolResult.from_wire(message.result) if message.HasField("result") else None
        return cls(
            message.number,
            message.turn,
            message.name,
            message.arguments_json,
            message.called,
            result,
            tuple(message.node_ids),
        )


@dataclass(frozen=True, slots=True)
class QueryText:
    """More text of the model."""

    text: str


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """The answer to a question with tools.

    Attributes:
        text: The answer; empty if the query ended before the model wrote one.
        sources: What recall found for the question.
        tool_calls: The calls that the model asked for, in order.
        tools_used: The tools that were called, each once.
        end: Why the query ended.
        usage: The usage of models.
        warnings: Warnings for a person.
        commit_id: The commit that recall read; for a session, its base.
        elapsed_ms: How long it took.
    """

    text: str
    sources: tuple[QuerySource, ...] = ()
    tool_calls: tuple[QueryCall, ...] = ()
    tools_used: tuple[str, ...] = ()
    end: QueryEnd = QueryEnd.UNSPECIFIED
    usage: tuple[ModelUsage, ...] = ()
    warnings: tuple[str, ...] = ()
    commit_id: str = ""
    elapsed_ms: float = 0.0

    @classmethod
    def from_wire(cls, message: wire.QueryResponse) -> Self:
        """Reads the message."""
        return cls(
            message.answer,
            tuple(map(QuerySource.from_wire, message.sources)),
            tuple(map(QueryCall.from_wire, message.tool_calls)),
            tuple(message.tools_used),
            from_wire(QueryEnd, message.end, QueryEnd.UNSPECIFIED),
            tuple(map(ModelUsage.from_wire, message.usage)),
            tuple(message.warnings),
            message.commit_id,
            message.elapsed_ms,
        )


QueryEvent = QueryText | QueryCall | QueryAnswer
"""An event of a question with tools: text, a call (without a result when it begins), and the answer as the last one."""


def event_of(message: wire.StreamQueryResponse) -> QueryEvent:
    """Reads an event."""
    if message.HasField("answer"):
        return QueryAnswer.from_wire(message.answer)
    if message.HasField("text"):
        return QueryText(message.text)
    return QueryCall.from_wire(message.call if message.HasField("call") else message.result)


@dataclass(frozen=True, slots=True)
class QueryStep:
    """One step of a plan: the tool, its arguments as far as they are known, and what it is for."""

    number: int
    tool: str
    parameters: Mapping[str, Any]
    purpose: str

    @classmethod
    def from_wire(cls, message: wire.QueryStep) -> Self:
        """Reads the message."""
        return cls(message.number, message.tool, json.loads(message.parameters_json), message.purpose)


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """How a question would be answered with tools; nothing was called."""

    strategy: QueryStrategy
    steps: tuple[QueryStep, ...] = ()
    usage: tuple[ModelUsage, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_wire(cls, message: wire.PlanQueryResponse) -> Self:
        """Reads the message."""
        return cls(
            from_wire(QueryStrategy, message.strategy, QueryStrategy.UNSPECIFIED),
            tuple(map(QueryStep.from_wire, message.steps)),
            tuple(map(ModelUsage.from_wire, message.usage)),
            tuple(message.warnings),
        )


@dataclass(frozen=True, slots=True)
class QueryTurn:
    """A question of a conversation, and the answer to it."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class QueryConversation:
    """A conversation of yours.

    Attributes:
        name: The name that you gave it.
        turn_count: How many turns are kept.
        use_time: When it was last used.
        turns: The turns, in order; none in a list of conversations.
    """

    name: str
    turn_count: int
    use_time: datetime
    turns: tuple[QueryTurn, ...] = ()

    @classmethod
    def from_wire(cls, message: wire.QueryConversation, turns: Iterable[wire.QueryTurn] = ()) -> Self:
        """Reads the message."""
        return cls(
            message.conversation_id,
            message.turns,
            message.use_time.ToDatetime(UTC),
            tuple(QueryTurn(turn.question, turn.answer) for turn in turns),
        )
