"""Calls tools: checks the arguments, calls the operation, and returns the answer as a ``Result``."""

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog
from google.protobuf import message_factory
from google.protobuf.message import Message
from memotree_storage.concurrency.threads import LONG_BYTES
from memotree_storage.errors import FieldViolation, InvalidInputError, MemoTreeError, NotFoundError
from structlog.contextvars import get_contextvars

from memotree.client.errors import MemoTreeClientError
from memotree.error_mapping import HIDDEN, Code, classify
from memotree.gateways.answer_parts import PART, PartAsked, part_asked, shortened
from memotree.gateways.callers import Caller, told
from memotree.gateways.default_workspace import MISSING, create_workspace
from memotree.gateways.functions import Asked, Functions, NoSuchFunctionError, RemoteFunctions
from memotree.gateways.json_messages import MOST_FAULTS, from_json, to_json
from memotree.gateways.json_schema import WORKSPACE, declaration, in_tools
from memotree.gateways.json_texts import NotJsonError, parsed
from memotree.gateways.leniency import as_meant
from memotree.gateways.node_names import put_ids
from memotree.gateways.readable_text import listed, one_line, readable, refusal
from memotree.gateways.results import Failure, Result
from memotree.gateways.tool import REQUEST_ID, Tool
from memotree.gateways.tool_definitions import BY_NAME, TOOLS
from memotree.request.observed_calls import (
    NOBODY,
    TOOL,
    CallObservers,
    FunctionArguments,
    ObservedCall,
    calling_through,
)
from memotree.request.principal import Principal, acting_as, principal
from memotree.tools.builtin.services import NEEDED_SETTING
from memotree.tools.declaration import Declaration
from memotree.tools.policy import ToolAdmission
from memotree.tools.signature import WrongArgumentsError
from memotree.v1 import tool_service_pb2

OnMessage = Callable[[Any], Awaitable[None]]
"""Receives a message of a streaming RPC."""

OnProgress = Callable[[float, str], Awaitable[None]]
"""Receives the progress of a call: a number that only grows, and what is done at the moment."""

Renew = Callable[[Principal], Principal]
"""Returns a principal with the roles that it has now, or raises that its proof is valid no more."""

log = structlog.get_logger("memotree.tool")

_LONGEST_NAME: Final = 100
_EXECUTE: Final = "memotree.v1.ToolService/ExecuteTool"
"""The method of the calls of functions."""

_CAMEL_CASE: Final = re.compile(r"[a-z]{1,50}(?:[A-Z][a-z]{0,50}){1,9}")
_HUMP: Final = re.compile(r"(?=[A-Z])")
_NO_WORD: Final = re.compile(r"\b(?:[A-Z][a-z]+){2,}\b")
"""What may be the name of an RPC and is no word of English, as ``Ask`` is."""

_PACKAGE: Final = "memotree.v1"
_BLANK: Final = " \t\n\r"
"""What JSON allows around a value."""


class UnknownToolError(NotFoundError):
    """No tool has that name."""

    reason = "UNKNOWN_TOOL"

    def __init__(self, name: str) -> None:
        shown = name[:_LONGEST_NAME]
        told = f"There is no tool {shown!r}; list the tools for their names."
        if name in NEEDED_SETTING:
            told = (
                f"The tool {shown!r} is off on this server; see its settings {NEEDED_SETTING[name]}, "
                "tools_builtin and tools_disabled."
            )
        super().__init__(told, "tool", shown)


class UnknownCategoryError(InvalidInputError):
    """No tool has that category."""

    reason = "UNKNOWN_CATEGORY"


class InvalidArgumentsError(InvalidInputError):
    """The arguments do not match the schema of the tool; every fault is listed with its path."""

    reason = "INVALID_ARGUMENTS"

    def __init__(self, tool: str, violations: list[FieldViolation]) -> None:
        told = violations[:MOST_FAULTS]
        faults = " ".join(f"{violation.field} {violation.description}" for violation in told)
        some = f" (the first {len(told)} faults of more)" if len(violations) > len(told) else ""
        super().__init__(f"The arguments do not match {tool}{some}: {faults}", told)


def arguments_of(tool: str, text: str) -> dict[str, Any]:
    """The arguments in a text of JSON; none if it is empty.

    Raises:
        InvalidArgumentsError: It is no JSON object.
    """
    try:
        found = parsed(text) if text.strip(_BLANK) else {}
    except NotJsonError as error:
        raise InvalidArgumentsError(tool, [FieldViolation("arguments", str(error))]) from None
    if not isinstance(found, dict):
        raise InvalidArgumentsError(tool, [FieldViolation("arguments", "must be a JSON object.")])
    return found


@dataclass(frozen=True, slots=True)
class Stream:
    """A streaming RPC that is called in place of the one of a tool, for a caller who wants to see each step.

    Attributes:
        tool: How the arguments become its request; its name is that of the tool.
        on_message: Called with each message.
    """

    tool: Tool
    on_message: OnMessage


class Catalogue:
    """All tools: those that call RPCs, through one caller, and those that are functions.

    Args:
        caller: Calls the operations.
        workspace: The default workspace, for calls that name none.
        functions: The tools that are functions; those of the server that the caller calls if ``None``.
        observers: Those who are told of each call of a tool. Without any, the RPCs of a tool count as calls of its
            caller.
        admission: Decides which tools are listed and called, and how often; a function that runs elsewhere is decided
            about there. Without it, all tools are.
        renew: Looks at who calls again before each call of a tool: a batch or a question with tools goes on for long,
            and keys and roles may have gone meanwhile. Without it, everybody stays who they were.
    """

    def __init__(
        self,
        caller: Caller,
        workspace: str,
        functions: Functions | None = None,
        observers: CallObservers = NOBODY,
        admission: ToolAdmission | None = None,
        renew: Renew | None = None,
    ) -> None:
        self._admission = admission or ToolAdmission()
        self._renew = renew
        self.caller = caller
        self._functions = functions or RemoteFunctions(caller)
        self.observers = observers
        self.workspace = workspace

    async def listed(self, category: str = "") -> list[Declaration]:
        """The tools of a category, or all if it is empty; those that call RPCs first. Only those that one may call.

        Raises:
            UnknownCategoryError: No tool has this category.
        """
        tools = [
            tool
            for tool in (*map(declaration, TOOLS), *await self._functions.declared())
            if self._admission.permits(tool)
        ]
        chosen = [tool for tool in tools if category in {"", tool.category}]
        if category and tools and not chosen:
            known = ", ".join(dict.fromkeys(tool.category for tool in tools))
            raise UnknownCategoryError.at(
                "category", f"{category[:_LONGEST_NAME]!r} is no category; choose one of {known}."
            )
        return chosen

    @property
    def warnings(self) -> list[str]:
        """What is wrong with plugins, once they were listed."""
        return list(self._functions.warnings)

    async def functions(self) -> list[Declaration]:
        """The tools that are functions, also those that one may not call."""
        return list(await self._functions.declared())

    def permits(self, tool: Declaration) -> bool:
        """Whether one may call a tool."""
        return self._admission.permits(tool)

    async def registered(self, name: str) -> str:
        """The name of the tool that a name in camel case means: ``create_project`` for ``createProject``."""
        if not _CAMEL_CASE.fullmatch(name) or name in BY_NAME:
            return name
        usual = _HUMP.sub("_", name).lower()
        try:
            if await self._functions.declaration(name) is not None:
                return name
            return usual if usual in BY_NAME or await self._functions.declaration(usual) is not None else name
        except MemoTreeClientError:  # the server is not reached, as the call itself reports
            return usual if usual in BY_NAME else name

    async def find(self, name: str) -> Declaration:
        """A tool by its name, maybe in camel case, also one that one may not call.

        Raises:
            UnknownToolError: There is no such tool.
        """
        name = await self.registered(name)
        if name in BY_NAME:
            return declaration(BY_NAME[name])
        found = await self._functions.declaration(name)
        if found is None:
            raise UnknownToolError(name)
        return found

    async def described(self, name: str) -> Declaration:
        """A tool by its name.

        Raises:
            UnknownToolError: There is no such tool.
            ToolNotPermittedError: One may not call it.
        """
        tool = await self.find(name)
        self._admission.check(tool)
        return tool

    def count(self, tool: Declaration) -> None:
        """Count a call of a tool that is about to be made with ``counted``; one that is not permitted does not count.

        Raises:
            ToolRateError: It comes too soon.
        """
        if self._admission.permits(tool):
            self._admission.count()

    @contextmanager
    def preparing(self, tool: Declaration, request_id: str = "") -> Iterator[None]:
        """Context manager around what comes before `call`; an error there is told to the observers as that of a call.

        Args:
            tool: The tool that is about to be called.
            request_id: That of the call.
        """
        call = _observed_call(tool.name, BY_NAME.get(tool.name))
        call.request = tool_service_pb2.ExecuteToolRequest(request_id=request_id)
        try:
            yield
        except MemoTreeError as error:
            failure = failure_of(error)
            self.observers.ended(call, failure.status, failure.code)
            raise

    def renewing(self) -> AbstractContextManager[None]:
        """Context manager in which who calls has the roles that it has now.

        Raises:
            UnauthenticatedError: Its proof is valid no more.
        """
        return nullcontext() if self._renew is None else acting_as(self._renew(principal()))

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        on_progress: OnProgress | None = None,
        *,
        agent: str = "",
        request_id: str = "",
        counted: bool = False,
        stream: Stream | None = None,
    ) -> Result:
        """Call a tool; a failure is returned in the result.

        Args:
            name: The tool.
            arguments: Its arguments.
            on_progress: Called with the progress of a long call.
            agent: Who calls, for a tool that has an agent and is given none.
            request_id: Makes the call safe to repeat, if the RPC of the tool has a request id.
            counted: Whether `count` was called for it.
            stream: Calls another RPC in its place, for a tool that calls one.

        Raises:
            UnknownToolError: There is no such tool.
        """
        name = await self.registered(name)
        tool = BY_NAME.get(name)
        here = tool is not None or await self._functions.runs_here(name)
        observers = self.observers if here else NOBODY
        calls = tool if stream is None else stream.tool
        call = _observed_call(name, calls)
        metadata: dict[str, Any] = {"tool": name}
        try:
            if tool is None or calls is None:
                asked = Asked(name, arguments, self.workspace, agent, request_id)
                result = await (
                    self._call_function(asked, call, counted=counted) if here else self._run_function(asked)
                )
            else:
                with self.renewing():
                    self._admit(declaration(tool), counted=counted)
                    arguments, part = _part_of(name, arguments, has_parts=calls.has_parts)
                    request = self.request(calls, arguments, agent)
                    if request_id and REQUEST_ID in calls.request.fields_by_name:
                        setattr(request, REQUEST_ID, request_id)
                    metadata |= {WORKSPACE: found} if (found := getattr(request, WORKSPACE, "")) else {}
                    observers.began(call, request)
                    on_message = _Progress(on_progress).tell if stream is None else stream.on_message
                    with calling_through(TOOL) if observers else nullcontext():
                        answer = await self._answer(calls, request, arguments, on_message)
                result = await _made(calls, answer, part)
            if result.success:
                observers.settle(call)
        except UnknownToolError:
            raise
        except (MemoTreeError, MemoTreeClientError) as error:
            result = _failed(failure_of(error))
            if isinstance(error, InvalidArgumentsError):  # then no other process has seen the call
                observers = self.observers
        except Exception as error:  # noqa: BLE001 - a library's; it is logged
            result = _failed(failure_of(_logged(name, error)))
        except BaseException:
            observers.ended(call, Code.CANCELLED.name)
            raise
        if result.failure is None:
            observers.ended(call)
        else:
            observers.ended(call, result.failure.status, result.failure.code)
        return replace(result, metadata=metadata | dict(result.metadata), elapsed=call.seconds)

    def request(self, tool: Tool, arguments: Mapping[str, Any], agent: str = "") -> Message:
        """The request message for the arguments; the default workspace and the agent are filled in.

        Raises:
            InvalidArgumentsError: Arguments are missing, unknown or of the wrong type.
        """
        valued = {name: value for name, value in arguments.items() if value is not None}
        given = tool.as_request(valued)
        message, faults = from_json(tool.request, as_meant(tool.request, given), tool.hidden, tool.hidden_within)
        faults = [*tool.given_twice(valued), *(replace(each, field=tool.listed_path(each.field)) for each in faults)]
        faults += [FieldViolation(name, "is needed.") for name in tool.required if name not in given]
        if faults:
            raise InvalidArgumentsError(tool.name, faults)
        fields: Any = message
        if WORKSPACE in tool.request.fields_by_name and not fields.workspace and WORKSPACE not in tool.required:
            fields.workspace = self.workspace
        if agent and "agent" in tool.request.fields_by_name and not fields.agent:
            fields.agent = agent
        for name, value in tool.preset.items():
            setattr(fields, name, value)
        if tool.masked:
            fields.update_mask.paths.extend(name for name in tool.masked if name in given)
        return message

    def _admit(self, tool: Declaration, *, counted: bool) -> None:
        self._admission.check(tool)
        if not counted:
            self._admission.count()

    async def _call_function(self, asked: Asked, call: ObservedCall, *, counted: bool) -> Result:
        """Call a function that runs in this process."""
        tool = await self.find(asked.name)
        call.function = FunctionArguments(asked.arguments, tool.parameters)
        self.observers.began(call, self._observed(tool, asked))
        with self.renewing(), calling_through(TOOL) if self.observers else nullcontext():
            self._admit(tool, counted=counted)
            result = await self._run_function(asked)
        part = PartAsked(may_go_on=False)
        return _as_part(part, replace(result, text=shortened(listed(part.of(result.data or {})))))

    def _observed(self, tool: Declaration, asked: Asked) -> tool_service_pb2.ExecuteToolRequest:
        """What observers are told of the call of a function beside its arguments: where it acts, and for whom."""
        has_workspace = WORKSPACE in tool.parameters["properties"]
        given = asked.arguments.get(WORKSPACE) or self.workspace if has_workspace else ""
        return tool_service_pb2.ExecuteToolRequest(
            workspace=_plain(given) if isinstance(given, str) else "",
            agent=asked.agent,
            request_id=asked.request_id,
        )

    async def _run_function(self, asked: Asked) -> Result:
        try:
            return await self._functions.run(asked)
        except NoSuchFunctionError:
            raise UnknownToolError(asked.name) from None
        except WrongArgumentsError as error:
            raise InvalidArgumentsError(asked.name, error.violations) from None

    async def _answer(
        self, tool: Tool, request: Message, arguments: Mapping[str, Any], on_message: OnMessage
    ) -> Message:
        """Call the operation; if the default workspace is meant and does not exist, create it first."""
        try:
            return await self._run(tool, request, on_message)
        except MemoTreeClientError as error:
            if arguments.get(WORKSPACE) or error.reason != MISSING:
                raise
        await create_workspace(self.caller, self.workspace)
        return await self._run(tool, request, on_message)

    async def _run(self, tool: Tool, request: Message, on_message: OnMessage) -> Message:
        await put_ids(self.caller, tool, request)
        if not tool.method.server_streaming:
            return await self.caller.call(tool.method, request)
        last: Message = message_factory.GetMessageClass(tool.method.output_type)()
        async for message in self.caller.stream(tool.method, request):
            await on_message(message)
            if message.HasField(tool.last):
                last = message
        found: Message = getattr(last, tool.last)
        return found


class _Progress:
    """Turns the events of a stream into a growing number: each step adds one, the share done of a step a fraction."""

    def __init__(self, on_progress: OnProgress | None) -> None:
        self._on_progress = on_progress
        self._step = ""
        self._base = 0
        self._last = -1.0

    async def tell(self, event: Any) -> None:
        """Report an event if it has progress."""
        if self._on_progress is None:
            return
        kind = event.WhichOneof("event")
        if kind == "progress":
            await self._share(event.progress)
        elif kind == "step":
            step = event.step
            await self._on_progress(float(step.number), f"{step.action}: {step.reasoning}".rstrip(": "))

    async def _share(self, progress: Any) -> None:
        if progress.step != self._step and self._step:
            self._base += 1
        self._step = progress.step
        value = self._base + (min(progress.done / progress.total, 1.0) if progress.total else 0.0)
        if value > self._last and self._on_progress is not None:
            self._last = value
            counted = f" {progress.done} of {progress.total}" if progress.total else ""
            await self._on_progress(value, f"{progress.step}{counted}")


def _observed_call(name: str, tool: Tool | None) -> ObservedCall:
    """The call of a tool, as observers are told of it; a function has the RPC that calls functions."""
    return ObservedCall(_EXECUTE if tool is None else f"{_PACKAGE}.{tool.call.replace('.', '/')}", name)


def _plain(name: str) -> str:
    """The beginning of a name that somebody has sent, as valid text."""
    return name[:_LONGEST_NAME].encode("utf-8", "replace").decode()


def failure_of(error: MemoTreeError | MemoTreeClientError) -> Failure:
    """The failure of a call, with tool names in place of RPC names."""
    failure = Failure.of(told(error))
    return replace(failure, message=in_tools(failure.message))


def _part_of(tool: str, arguments: Mapping[str, Any], *, has_parts: bool) -> tuple[Mapping[str, Any], PartAsked]:
    """The other arguments, and the part of the answer that is asked for.

    Raises:
        InvalidArgumentsError: The number of the part is none.
    """
    if not has_parts or arguments.get(PART) is None:
        return arguments, PartAsked(may_go_on=has_parts)
    others = {name: value for name, value in arguments.items() if name != PART}
    try:
        return others, part_asked(arguments[PART])
    except ValueError:
        raise InvalidArgumentsError(tool, [FieldViolation(PART, "must be a whole number from 1.")]) from None


async def _made(tool: Tool, answer: Message, part: PartAsked) -> Result:
    """The response of an operation as a ``Result``; that of a long one is made in a thread."""
    if answer.ByteSize() > LONG_BYTES:
        return await asyncio.to_thread(_result, tool, answer, part)
    return _result(tool, answer, part)


def _result(tool: Tool, answer: Message, part: PartAsked) -> Result:
    """The response of an operation as a ``Result``."""
    data = to_json(answer, with_empty_lists=True)
    failure = _job_failure(data) if tool.last == "job" else None
    if failure is not None:
        return replace(_failed(failure), data=data)
    told = data.pop("warnings", ()) or data.get("ingestion", {}).get("warnings", ())
    warnings = tuple(_NO_WORD.sub(lambda found: in_tools(found[0]), warning) for warning in told)
    found = data if tool.has_budget else _cut(tool.name, part, data)
    text = "\n".join([readable(found), *(f"Warning: {warning}" for warning in warnings)])
    text = text if tool.has_budget else shortened(text)
    return _as_part(part, Result(_sentence(tool, data), text, found if tool.has_parts else data, warnings))


def _as_part(part: PartAsked, result: Result) -> Result:
    """The result with a remark that it is not the whole answer, if it is not."""
    if not part.remark:
        return result
    return replace(result, message=f"{result.message} {part.remark}", text=f"{result.text}\n{part.remark}")


def _cut(tool: str, part: PartAsked, data: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an answer that is asked for.

    Raises:
        InvalidArgumentsError: The answer has fewer parts.
    """
    found = part.of(data)
    if part.fault is not None:
        raise InvalidArgumentsError(tool, [part.fault])
    return found


def _job_failure(job: Mapping[str, Any]) -> Failure | None:
    """The failure of a job that has ended; ``None`` if it succeeded."""
    if job.get("state") == "SUCCEEDED":
        return None
    state = str(job.get("state", "UNKNOWN"))
    message = in_tools(str(job.get("message") or f"The job ended as {state}; get_job returns the details."))
    return Failure(
        str(job.get("reason") or f"JOB_{state}"), "ABORTED", message, {"metadata": {"job_id": job.get("id", "")}}
    )


def _logged(name: str, error: Exception) -> MemoTreeClientError:
    """Return the caller's error for one of a library, and log it; with its traceback if the server is at fault."""
    call_id = str(get_contextvars().get("call") or secrets.token_hex(8))
    answer = classify(error)
    if answer is HIDDEN:
        log.error("tool", tool=name, failed_call=call_id, exc_info=error)
    elif answer.code is not Code.INVALID_ARGUMENT:
        log.warning("tool", tool=name, reason=answer.reason, cause=f"{type(error).__name__}: {error}")
    return told(error, call_id)


def _failed(failure: Failure) -> Result:
    return Result(failure.message, refusal(failure), failure=failure)


def _sentence(tool: Tool, data: Mapping[str, Any]) -> str:
    """One line that says what the tool did."""
    node = data.get("node")
    if isinstance(node, Mapping):
        return one_line(f"{tool.title}: {node.get('title', '')} [{node.get('id', '')}]")
    counted = [f"{len(value)} {name}" for name, value in data.items() if isinstance(value, list)]
    return f"{tool.title}: {counted[0] if counted else 'done'}."
