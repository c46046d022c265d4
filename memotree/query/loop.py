"""The loop of a query: the model asks for calls and gets their results, until it answers or a limit ends it."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from memotree_storage.errors import MemoTreeError

from memotree.gateways.results import Failure, Result
from memotree.models.function_calls import ChatTurn, Message, OnText, TurnOptions
from memotree.models.meter import BudgetExhaustedError, Meter
from memotree.models.model_errors import ModelRefusedError, ModelUnavailableError
from memotree.query.calling import Call, Calls
from memotree.query.limits import MOST_FAULTS, QueryLimits
from memotree.query.prompt import asked_message, result_message
from memotree.v1 import query_service_pb2 as pb

Emit = Callable[[pb.StreamQueryResponse], None]
"""Receives the events of a query; they wait for their reader there, so the loop does not."""

_LATE: Final = Failure("QUERY_TIME_LIMIT", "DEADLINE_EXCEEDED", "The time of the query was over; the call was ended.")
_NOT_BEGUN: Final = Failure(
    "QUERY_TIME_LIMIT", "DEADLINE_EXCEEDED", "The time of the query was over before this call was made."
)
_NO_ANSWER: Final = "The model wrote no answer. Ask again, or in other words."


class FunctionModel(Protocol):
    """The chat model; implemented by `memotree.models.function_chat.FunctionChat`."""

    async def turn(
        self, messages: Sequence[Message], options: TurnOptions, meter: Meter, on_text: OnText | None = None
    ) -> ChatTurn:
        """The next turn of the model."""
        ...


@dataclass(slots=True)
class QueryLoop:
    """One query in progress.

    Attributes:
        model: The chat model.
        calls: Makes the calls.
        limits: How much the query may do.
        meter: Counts what the model reads and writes.
        emit: Receives the events; ``None`` if nobody waits for them.
        text: What the model has written in its last turn.
        end: Why the query ended.
        warnings: Warnings for a person.
    """

    model: FunctionModel
    calls: Calls
    limits: QueryLimits
    meter: Meter
    emit: Emit | None = None
    text: str = ""
    end: pb.QueryEnd.ValueType = pb.QUERY_END_UNSPECIFIED
    warnings: list[str] = field(default_factory=list)

    async def run(self, messages: list[Message]) -> None:
        """Let the model answer; what comes of it is in the attributes.

        Args:
            messages: The messages before its first turn; the loop adds its own.

        Raises:
            ModelUnavailableError: The model does not answer, and no tool was called yet.
            ModelRefusedError: The endpoint refuses the call, and no tool was called yet.
        """
        functions = self.calls.offered.functions()
        number, must_answer = 0, False
        while self.end == pb.QUERY_END_UNSPECIFIED:
            number += 1
            options = TurnOptions(functions, not must_answer, self.limits.temperature, self.limits.answer_tokens)
            turn = await self._turn(messages, options)
            if turn is None:
                return
            if must_answer or not turn.calls or not functions:
                self._end_with(turn)
                return
            await self._call(turn, number, messages)
            must_answer = self.calls.is_over or self.calls.faults >= MOST_FAULTS

    def end_late(self) -> None:
        """End the query because its time is over; calls that still ran have no other result."""
        self.end = pb.QUERY_END_TIME_LIMIT
        for call in self.calls.made:
            if call.result is None:
                call.refuse(_LATE if call.called else _NOT_BEGUN)
                self._tell_call(call)

    async def _turn(self, messages: list[Message], options: TurnOptions) -> ChatTurn | None:
        """The next turn of the model; ``None`` if the query ends without it."""
        self.text = ""
        try:
            turn = await self.model.turn(messages, options, self.meter, self._on_text if self.emit else None)
        except BudgetExhaustedError as error:
            self.end = pb.QUERY_END_TOKEN_LIMIT
            self.warnings.append(error.message)
            return None
        except (ModelUnavailableError, ModelRefusedError) as error:
            if not self.calls.count:
                raise
            self.end = pb.QUERY_END_MODEL_FAILED
            self.warnings.append(error.message)
            return None
        self.text = turn.text
        return turn

    async def _on_text(self, text: str) -> None:
        self.text += text
        if self.emit is not None:
            self.emit(pb.StreamQueryResponse(text=text.encode("utf-8", "replace").decode()))

    async def _call(self, turn: ChatTurn, number: int, messages: list[Message]) -> None:
        """Make the calls of a turn: at once if all of them only read, else one after the other."""
        begun = self.calls.begin(turn.calls, number)
        made = [call for call in begun if call.result is None]
        for call in begun:
            self._tell_call(call)
        if all(call.tool is not None and call.tool.read_only for call in made):
            async with asyncio.TaskGroup() as group:
                for call in made:
                    group.create_task(self._run(call))
        else:
            for call in made:
                await self._run(call)
        asked = [(call.call_id, call.asked, call.arguments is not None) for call in begun]
        messages.append(asked_message(turn.text, asked))
        messages.extend(result_message(call.call_id, _result_of(call)) for call in begun)

    async def _run(self, call: Call) -> None:
        await self.calls.run(call)
        self._tell_call(call)

    def _end_with(self, turn: ChatTurn) -> None:
        if not turn.text.strip():
            self.warnings.append(_NO_ANSWER)
        if turn.is_cut:
            self.end = pb.QUERY_END_ANSWER_CUT
        elif self.calls.is_over:
            self.end = pb.QUERY_END_CALL_LIMIT
        elif self.calls.faults >= MOST_FAULTS:
            self.end = pb.QUERY_END_FAULTY_CALLS
        else:
            self.end = pb.QUERY_END_ANSWERED

    def _tell_call(self, call: Call) -> None:
        if self.emit is not None and call.result is None:
            self.emit(pb.StreamQueryResponse(call=call.to_wire()))
        elif self.emit is not None:
            self.emit(pb.StreamQueryResponse(result=call.to_wire()))


def _result_of(call: Call) -> Result:
    if call.result is None:
        message = "every call of a turn has a result"
        raise MemoTreeError(message)
    return call.result
