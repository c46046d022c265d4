"""Calls tools: checks the arguments, calls the operation, and returns the answer as a ``Result``."""

import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import structlog
from google.protobuf import message_factory
from google.protobuf.message import Message
from memotree_storage.errors import FieldViolation, InvalidInputError, MemoTreeError, NotFoundError
from structlog.contextvars import get_contextvars

from memotree.client.errors import AlreadyExistsError, MemoTreeClientError
from memotree.gateways.callers import Caller, told
from memotree.gateways.contract import method
from memotree.gateways.json_messages import MOST_FAULTS, from_json, to_json
from memotree.gateways.json_schema import WORKSPACE, in_tools
from memotree.gateways.json_texts import NotJsonError, parsed
from memotree.gateways.leniency import as_meant
from memotree.gateways.node_names import put_ids
from memotree.gateways.readable_text import one_line, readable, refusal
from memotree.gateways.results import Failure, Result
from memotree.gateways.tool import REQUEST_ID, Tool
from memotree.gateways.tool_definitions import BY_NAME, CATEGORIES, TOOLS

OnProgress = Callable[[float, str], Awaitable[None]]
"""Receives the progress of a call: a number that only grows, and what is done at the moment."""

log = structlog.get_logger("memotree.tool")

_LONGEST_NAME: Final = 100
_BLANK: Final = " \t\n\r"
"""What JSON allows around a value."""

_WORKSPACE_MISSING: Final = "WORKSPACE_NOT_FOUND"


class UnknownToolError(NotFoundError):
    """No tool has that name."""

    reason = "UNKNOWN_TOOL"

    def __init__(self, name: str) -> None:
        shown = name[:_LONGEST_NAME]
        super().__init__(f"There is no tool {shown!r}; list the tools for their names.", "tool", shown)


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


class Catalogue:
    """All tools, called through one caller.

    Args:
        caller: Calls the operations.
        workspace: The default workspace, for calls that name none.
    """

    def __init__(self, caller: Caller, workspace: str) -> None:
        self._caller = caller
        self.workspace = workspace
        self.tools = TOOLS

    def listed(self, category: str = "") -> list[Tool]:
        """The tools of a category, or all if it is empty.

        Raises:
            UnknownCategoryError: No tool has this category.
        """
        if category and category not in CATEGORIES:
            raise UnknownCategoryError.at(
                "category", f"{category[:_LONGEST_NAME]!r} is no category; choose one of {', '.join(CATEGORIES)}."
            )
        return [tool for tool in self.tools if category in {"", tool.category}]

    def find(self, name: str) -> Tool:
        """A tool by its name.

        Raises:
            UnknownToolError: There is no such tool.
        """
        tool = BY_NAME.get(name)
        if tool is None:
            raise UnknownToolError(name)
        return tool

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        on_progress: OnProgress | None = None,
        *,
        agent: str = "",
        request_id: str = "",
    ) -> Result:
        """Call a tool; a failure is returned in the result.

        Args:
            name: The tool.
            arguments: Its arguments.
            on_progress: Called with the progress of a long call.
            agent: Who calls, for a tool that has an agent and is given none.
            request_id: Makes the call safe to repeat, if the RPC of the tool has a request id.

        Raises:
            UnknownToolError: There is no such tool.
        """
        tool = self.find(name)
        begin = time.perf_counter()
        metadata: dict[str, Any] = {"tool": name}
        try:
            request = self.request(tool, arguments, agent)
            if request_id and REQUEST_ID in tool.request.fields_by_name:
                setattr(request, REQUEST_ID, request_id)
            metadata |= {WORKSPACE: found} if (found := getattr(request, WORKSPACE, "")) else {}
            answer = await self._answer(tool, request, arguments, _Progress(on_progress))
        except (MemoTreeError, MemoTreeClientError) as error:
            result = _failed(failure_of(error))
        except Exception as error:
            call_id = str(get_contextvars().get("call") or secrets.token_hex(8))
            log.exception("tool", tool=name, failed_call=call_id)
            result = _failed(failure_of(told(error, call_id)))
        else:
            result = _result(tool, answer)
        return replace(result, metadata=metadata, elapsed=time.perf_counter() - begin)

    def request(self, tool: Tool, arguments: Mapping[str, Any], agent: str = "") -> Message:
        """The request message for the arguments; the default workspace and the agent are filled in.

        Raises:
            InvalidArgumentsError: Arguments are missing, unknown or of the wrong type.
        """
        given = tool.as_request({name: value for name, value in arguments.items() if value is not None})
        message, faults = from_json(tool.request, as_meant(tool.request, given), tool.hidden, tool.hidden_within)
        faults = [replace(fault, field=tool.listed_path(fault.field)) for fault in faults]
        faults += [FieldViolation(name, "is needed.") for name in tool.required if name not in given]
        if faults:
            raise InvalidArgumentsError(tool.name, faults)
        fields: Any = message
        if WORKSPACE in tool.request.fields_by_name and not fields.workspace and WORKSPACE not in tool.required:
            fields.workspace = self.workspace
        if agent and "agent" in tool.request.fields_by_name and not fields.agent:
            fields.agent = agent
        if tool.masked:
            fields.update_mask.paths.extend(name for name in tool.masked if name in given)
        return message

    async def _answer(
        self, tool: Tool, request: Message, arguments: Mapping[str, Any], progress: "_Progress"
    ) -> Message:
        """Call the operation; if the default workspace is meant and does not exist, create it first."""
        try:
            return await self._run(tool, request, progress)
        except MemoTreeClientError as error:
            if arguments.get(WORKSPACE) or error.reason != _WORKSPACE_MISSING:
                raise
        make = method("WorkspaceService", "CreateWorkspace")
        creation: Any = message_factory.GetMessageClass(make.input_type)
        with suppress(AlreadyExistsError):  # another agent created it first
            await self._caller.call(make, creation(name=self.workspace))
        return await self._run(tool, request, progress)

    async def _run(self, tool: Tool, request: Message, progress: "_Progress") -> Message:
        await put_ids(self._caller, tool, request)
        if not tool.method.server_streaming:
            return await self._caller.call(tool.method, request)
        last: Message = message_factory.GetMessageClass(tool.method.output_type)()
        async for message in self._caller.stream(tool.method, request):
            await progress.tell(message)
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


def failure_of(error: MemoTreeError | MemoTreeClientError) -> Failure:
    """The failure of a call, with tool names in place of RPC names."""
    failure = Failure.of(told(error))
    return replace(failure, message=in_tools(failure.message))


def _result(tool: Tool, answer: Message) -> Result:
    """The response of an operation as a ``Result``."""
    data = to_json(answer, with_empty_lists=True)
    failure = _job_failure(data) if tool.last == "job" else None
    if failure is not None:
        return replace(_failed(failure), data=data)
    warnings = tuple(data.pop("warnings", ())) or tuple(data.get("ingestion", {}).get("warnings", ()))
    text = "\n".join([readable(data), *(f"Warning: {warning}" for warning in warnings)])
    return Result(_sentence(tool, data), text, data, warnings)


def _job_failure(job: Mapping[str, Any]) -> Failure | None:
    """The failure of a job that has ended; ``None`` if it succeeded."""
    if job.get("state") == "SUCCEEDED":
        return None
    state = str(job.get("state", "UNKNOWN"))
    message = in_tools(str(job.get("message") or f"The job ended as {state}; get_job returns the details."))
    return Failure(
        str(job.get("reason") or f"JOB_{state}"), "ABORTED", message, {"metadata": {"job_id": job.get("id", "")}}
    )


def _failed(failure: Failure) -> Result:
    return Result(failure.message, refusal(failure), failure=failure)


def _sentence(tool: Tool, data: Mapping[str, Any]) -> str:
    """One line that says what the tool did."""
    node = data.get("node")
    if isinstance(node, Mapping):
        return one_line(f"{tool.title}: {node.get('title', '')} [{node.get('id', '')}]")
    counted = [f"{len(value)} {name}" for name, value in data.items() if isinstance(value, list)]
    return f"{tool.title}: {counted[0] if counted else 'done'}."
