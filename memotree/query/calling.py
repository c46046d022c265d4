"""The calls of a query: each is checked, made through the catalogue by whoever asks, and kept with its result.

A call goes the way of ExecuteTool: the catalogue checks the arguments, the RPC or the function checks who calls, the
executor limits functions, and the audit log and the metrics are told of the call.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from memotree_storage.concurrency.threads import in_thread_if_long
from memotree_storage.model.node import is_id

from memotree.gateways.catalogue import Catalogue, InvalidArgumentsError, UnknownToolError, arguments_of, failure_of
from memotree.gateways.results import Failure, Result
from memotree.gateways.tool_operations import result_message
from memotree.models.function_calls import FunctionCall
from memotree.query.offered_tools import OfferedTools
from memotree.query.prompt import cut
from memotree.request.observed_calls import LOCAL, calling_through
from memotree.tools.declaration import Declaration
from memotree.v1 import query_service_pb2 as pb

MOST_DATA: Final = 256 << 10
"""The most bytes of the data of one result in the response."""

_AT_ONCE: Final = 4
"""How many calls of one turn run at once."""

_MOST_NODES: Final = 100
_SHOWN: Final = 200
_LONGEST_NAME: Final = 100
_NODE: Final = frozenset({"id", "archive_id"})
"""The fields by which the JSON of a node is known."""


@dataclass(slots=True)
class Call:
    """A call that the model asked for.

    Attributes:
        asked: What it asked for.
        number: Its number, from 1.
        turn: The turn of the model, from 1.
        tool: The tool, if it is offered.
        arguments: The arguments, if they are a JSON object.
        result: The result, once there is one.
        is_admitted: Whether it can be made, and is made when its turn comes.
        called: Whether the tool was called.
    """

    asked: FunctionCall
    number: int
    turn: int
    tool: Declaration | None = None
    arguments: dict[str, Any] | None = None
    result: Result | None = None
    is_admitted: bool = False
    called: bool = False
    _wire: pb.QueryCall | None = None

    @property
    def call_id(self) -> str:
        """The id of the call between us and the model; those of models may be empty, or repeat."""
        return f"call_{self.number}"

    @property
    def is_faulty(self) -> bool:
        """Whether it could not be made, or its arguments do not fit the tool."""
        failure = None if self.result is None else self.result.failure
        return failure is not None and (not self.is_admitted or failure.code == InvalidArgumentsError.reason)

    def refuse(self, failure: Failure) -> None:
        """Give the call a result without making it."""
        self.result = Result(failure.message, f"{failure.code}: {failure.message}", failure=failure)

    def to_wire(self) -> pb.QueryCall:
        """The call as a message, which nobody may change once it has a result; large data is left out."""
        if self._wire is not None:
            return self._wire
        result = self.result
        message = pb.QueryCall(
            number=self.number,
            turn=self.turn,
            name=_sendable(self.asked.name[:_LONGEST_NAME]),
            arguments_json=_sendable(self.asked.arguments),
            called=self.called or (result is None and self.is_admitted),
        )
        if result is None:
            return message
        message.result.CopyFrom(result_message(result))
        message.result.text = cut(message.result.text)
        size = len(message.result.data_json.encode())
        if size > MOST_DATA:
            message.result.data_json = ""
            message.result.warnings.append(
                f"The data has {size:,} bytes and is left out here; call {self.asked.name} itself to get it."
            )
        message.node_ids.extend(list(dict.fromkeys(_node_ids(result.data)))[:_MOST_NODES])
        self._wire = message
        return message


@dataclass(slots=True)
class Calls:
    """All calls of a query.

    Attributes:
        catalogue: Makes the calls.
        offered: The tools that the model may call.
        most: The most calls that are made.
        agent: Who calls, for tools that have an agent.
        made: The calls so far, in order.
        faults: How many of them could not be made, or were made before.
        is_over: Whether more calls were asked for than are made.
    """

    catalogue: Catalogue
    offered: OfferedTools
    most: int
    agent: str = ""
    made: list[Call] = field(default_factory=list)
    faults: int = 0
    is_over: bool = False
    _known: dict[tuple[str, str], int] = field(default_factory=dict)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))

    @property
    def count(self) -> int:
        """How many calls were made, or are made when their turn comes."""
        return sum(call.is_admitted for call in self.made)

    @property
    def tools_used(self) -> list[str]:
        """The tools that were called, each once."""
        return list(dict.fromkeys(call.asked.name for call in self.made if call.called))

    def begin(self, asked: Sequence[FunctionCall], turn: int) -> list[Call]:
        """The calls of a turn; those that cannot be made have a result already, which says why."""
        begun = []
        for each in asked:
            call = Call(each, len(self.made) + 1, turn)
            self.made.append(call)
            begun.append(call)
            failure = self._fault(call)
            if failure is None and self.count >= self.most:
                self.is_over = True
                failure = _failure(
                    "CALL_LIMIT",
                    "RESOURCE_EXHAUSTED",
                    f"All {self.most} calls of tools that this question may have were made; no further call is "
                    "possible. Answer with what is known.",
                )
            elif failure is not None:
                self.faults += 1
            if failure is None:
                call.is_admitted = True
            else:
                call.refuse(failure)
        return begun

    async def run(self, call: Call) -> None:
        """Make a call, and give it its result."""
        tool, arguments = call.tool, call.arguments
        if tool is None or arguments is None:
            raise ValueError(call.asked.name)  # it was refused by `begin`
        async with self._slots:
            call.called = True
            with calling_through(LOCAL):  # a tool that called the query has a record of its own
                result = await self._result(tool, arguments)
        call.result = Result(
            result.message,
            await in_thread_if_long(len(result.text), cut, result.text),
            result.data,
            result.warnings,
            result.failure,
            result.metadata,
            result.elapsed,
        )
        if call.is_faulty:
            self.faults += 1
        elif not tool.read_only:
            self._forget_reads()  # what was read before may have changed
        if result.failure is not None and _may_come_again(result.failure, tool):
            self._known = {key: number for key, number in self._known.items() if number != call.number}

    def _forget_reads(self) -> None:
        reads = {call.number for call in self.made if call.tool is not None and call.tool.read_only}
        self._known = {key: number for key, number in self._known.items() if number not in reads}

    async def _result(self, tool: Declaration, arguments: Mapping[str, Any]) -> Result:
        try:
            return await self.catalogue.call(tool.name, self.offered.placed(tool, arguments), agent=self.agent)
        except UnknownToolError as error:  # a plugin that is gone
            failure = failure_of(error)
            return Result(failure.message, failure.message, failure=failure)

    def _fault(self, call: Call) -> Failure | None:
        """Why a call cannot be made; ``None`` if it can. Fills in its tool and its arguments."""
        name = call.asked.name
        tool = self.offered.tools.get(name)
        invalid: Failure | None = None
        try:
            call.arguments = arguments_of(name[:_LONGEST_NAME] or "the tool", call.asked.arguments)
        except InvalidArgumentsError as error:
            invalid = failure_of(error)
        if tool is None:
            names = ", ".join(self.offered.tools)
            return _failure(
                UnknownToolError.reason,
                "NOT_FOUND",
                f"There is no tool {name[:_LONGEST_NAME]!r} here. The tools are {names}.",
            )
        call.tool = tool
        if invalid is not None or call.arguments is None:
            return invalid
        if self.offered.is_elsewhere(tool, call.arguments):
            return _failure(
                "OTHER_WORKSPACE",
                "INVALID_ARGUMENT",
                "The question is about one workspace, and all calls are made there; leave the argument workspace out.",
            )
        try:
            key = (name, json.dumps(call.arguments, sort_keys=True))
        except RecursionError:
            return _failure(
                InvalidArgumentsError.reason, "INVALID_ARGUMENT", "The arguments are nested too deeply; flatten them."
            )
        before = self._known.setdefault(key, call.number)
        if before != call.number:
            return _failure(
                "REPEATED_CALL",
                "FAILED_PRECONDITION",
                f"This is call {before} again, whose result you have. Use that result, make another call, or answer.",
            )
        return None


def _may_come_again(failure: Failure, tool: Declaration) -> bool:
    """Whether the same call may be made again: its failure passes, and it has changed nothing."""
    return "retry_after" in failure.details and (tool.read_only or failure.status == "RESOURCE_EXHAUSTED")


def _failure(code: str, status: str, message: str) -> Failure:
    return Failure(code, status, message)


def _node_ids(value: Any) -> Iterator[str]:
    """The ids of the nodes in the data of a result."""
    if isinstance(value, list):
        for each in value:
            yield from _node_ids(each)
    elif isinstance(value, Mapping):
        found = value.get("id") if value.keys() >= _NODE else value.get("node_id")
        if isinstance(found, str) and is_id(found):
            yield found
        for each in value.values():
            if isinstance(each, (list, Mapping)):
                yield from _node_ids(each)


def _sendable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
