"""The operations of ToolService: the catalogue of tools for programs that call gRPC."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from memotree_storage.errors import InvalidInputError

from memotree.gateways.callers import LocalCaller
from memotree.gateways.catalogue import Catalogue, Renew, arguments_of
from memotree.gateways.functions import LocalFunctions, RemoteFunctions
from memotree.gateways.json_schema import WORKSPACE
from memotree.gateways.json_texts import text_of
from memotree.gateways.results import Failure, Result
from memotree.request.lookup import needed
from memotree.request.observed_calls import NOBODY, CallObservers, ObservedOperations, observers_of
from memotree.settings import CustomTool
from memotree.tools.declaration import Declaration
from memotree.tools.executor import Executor
from memotree.tools.function_tool import FunctionTool
from memotree.tools.plugins import Plugins
from memotree.tools.policy import ToolAdmission
from memotree.v1 import tool_service_pb2 as pb

MOST_CALLS: Final = 100
"""The most calls of one batch. It counts as one of the calls that the server runs at once."""


def with_tools(
    operations: Mapping[str, object],
    workspace: str,
    most_bytes: int,
    observers: CallObservers = NOBODY,
    functions: Sequence[FunctionTool] = (),
    executor: Executor | None = None,
    disabled: Collection[str] = (),
    plugins: Plugins | None = None,
    admission: ToolAdmission | None = None,
    custom: Mapping[str, CustomTool] | None = None,
    over_tools: Callable[[Catalogue], Mapping[str, object]] | None = None,
    renew: Renew | None = None,
) -> ObservedOperations:
    """The operations of a server with those of ToolService, whose tools call them.

    Args:
        operations: The object with the operations of each other service, by the service's short name.
        workspace: The default workspace.
        most_bytes: How many bytes of answers end a batch.
        observers: Those who are told of each call of an operation or a tool.
        functions: The tools that are functions.
        executor: Calls them.
        disabled: The names of functions that are not offered.
        plugins: The functions of other packages.
        admission: Decides who may call which tool, and how often; without it, all may.
        custom: The settings of the functions of other packages, by name.
        over_tools: Returns the operations of services that call tools themselves.
        renew: Looks at who calls again before each call of a tool; without it, everybody stays who they were.

    Raises:
        UndeclarableError: Two tools have one name.
    """
    called = dict(operations)
    caller = LocalCaller(called, observers=observers)
    offered = LocalFunctions(functions, executor or Executor(), caller, disabled, plugins, custom)
    shared = SharedTools(offered, admission or ToolAdmission(), renew)
    catalogue = Catalogue(caller, workspace, offered, observers, shared.admission, renew)
    if over_tools is not None:
        called.update(over_tools(catalogue))
    return ObservedOperations({**called, "ToolService": ToolOperations(catalogue, most_bytes, shared)}, observers)


@dataclass(frozen=True, slots=True)
class SharedTools:
    """What all catalogues of a server have in common.

    Attributes:
        functions: The functions of the server.
        admission: Decides who may call which tool, and how often.
        renew: Looks at who calls again.
    """

    functions: LocalFunctions
    admission: ToolAdmission
    renew: Renew | None = None


def catalogue_of(operations: Mapping[str, object], caller: LocalCaller, workspace: str) -> Catalogue:
    """A catalogue over the operations of a server in this process.

    Args:
        operations: The object with the operations of each service, by the service's short name.
        caller: Calls them.
        workspace: The default workspace.
    """
    tools = operations.get("ToolService")
    shared = tools.shared if isinstance(tools, ToolOperations) else None
    functions = RemoteFunctions(caller, None if shared is None else shared.functions)
    if shared is None:
        return Catalogue(caller, workspace, functions, observers_of(operations))
    return Catalogue(caller, workspace, functions, observers_of(operations), shared.admission, shared.renew)


class ToolOperations:
    """Lists the tools of a catalogue and calls them.

    No role is needed for that: each call of a tool is checked, whoever makes it, and so are the RPCs of the tool.

    Args:
        catalogue: The tools.
        most_bytes: How many bytes of answers end a batch.
        shared: What it has in common with the catalogues of other interfaces; ``None`` if there are none.
    """

    def __init__(self, catalogue: Catalogue, most_bytes: int, shared: SharedTools | None = None) -> None:
        self.shared = shared
        self._catalogue = catalogue
        self._most_bytes = most_bytes

    async def list_tools(self, request: pb.ListToolsRequest) -> pb.ListToolsResponse:
        """The tools of a category, or all, that the caller may call."""
        with self._catalogue.renewing():
            tools = map(tool_message, await self._catalogue.listed(request.category))
        return pb.ListToolsResponse(tools=tools, warnings=self._catalogue.warnings)

    async def get_tool(self, request: pb.GetToolRequest) -> pb.GetToolResponse:
        """One tool."""
        with self._catalogue.renewing():
            return pb.GetToolResponse(tool=tool_message(await self._catalogue.described(needed("name", request.name))))

    async def execute_tool(self, request: pb.ExecuteToolRequest) -> pb.ExecuteToolResponse:
        """Call one tool."""
        tool = await self._catalogue.find(needed("name", request.name))
        with self._catalogue.preparing(tool, request.request_id):
            self._catalogue.count(tool)  # so that the call itself fails, with the time after which it may be sent again
            arguments = arguments_of(request.name, request.arguments_json)
        result = await self._execute(tool, arguments, request, request.request_id, counted=True)
        return pb.ExecuteToolResponse(result=result)

    async def execute_tools(self, request: pb.ExecuteToolsRequest) -> pb.ExecuteToolsResponse:
        """Call tools in order."""
        if not 0 < len(request.calls) <= MOST_CALLS:
            raise InvalidInputError.at("calls", f"has {len(request.calls)} calls; give 1 to {MOST_CALLS}.")
        tools = [
            await self._catalogue.find(needed(f"calls[{number}].name", call.name))
            for number, call in enumerate(request.calls)
        ]
        given = []
        for tool, call in zip(tools, request.calls, strict=True):
            with self._catalogue.preparing(tool, request.request_id):
                given.append(arguments_of(call.name, call.arguments_json))
        answer, size = pb.ExecuteToolsResponse(), 0
        for number, (tool, arguments) in enumerate(zip(tools, given, strict=True)):
            if size > self._most_bytes:
                answer.results.append(result_message(_too_large(tool, number, size, self._most_bytes)))
                break
            request_id = f"{request.request_id}.{number}" if request.request_id else ""
            result = await self._execute(tool, arguments, request, request_id)
            size += result.ByteSize()
            answer.results.append(result)
            if not result.success and not request.go_on:
                break
        return answer

    async def _execute(
        self,
        tool: Declaration,
        arguments: dict[str, Any],
        request: pb.ExecuteToolRequest | pb.ExecuteToolsRequest,
        request_id: str,
        *,
        counted: bool = False,
    ) -> pb.ToolResult:
        given = arguments.get(WORKSPACE)
        if request.workspace and WORKSPACE in tool.parameters["properties"] and (given is None or given == ""):
            arguments[WORKSPACE] = request.workspace
        return result_message(
            await self._catalogue.call(
                tool.name, arguments, agent=request.agent, request_id=request_id, counted=counted
            )
        )


def _too_large(tool: Declaration, number: int, size: int, most: int) -> Result:
    message = (
        f"The answers of the {number} calls before this one have {size} bytes, over the limit of {most} (the server's "
        "setting max_message_bytes). Neither this call nor those after it were made; send them in another batch."
    )
    return Result(
        message,
        message,
        failure=Failure("ANSWERS_TOO_LARGE", "RESOURCE_EXHAUSTED", message),
        metadata={"tool": tool.name},
    )


@cache
def tool_message(tool: Declaration) -> pb.Tool:
    """A tool as a message, which nobody may change."""
    told = tool.to_json()
    parameters, examples = text_of(told.pop("parameters")), map(text_of, told.pop("examples"))
    return pb.Tool(parameters_json=parameters, examples_json=examples, **told)


def result_message(result: Result) -> pb.ToolResult:
    """A result as a message."""
    return pb.ToolResult(
        success=result.success,
        message=result.message,
        data_json="" if result.data is None else text_of(result.data),
        warnings=result.warnings,
        error=None if result.failure is None else _error_message(result.failure),
        metadata=result.metadata,
        elapsed_ms=round(1000 * result.elapsed, 2),
        text=result.text,
    )


def _error_message(failure: Failure) -> pb.ToolError:
    return pb.ToolError(
        code=failure.code, status=failure.status, message=failure.message, details_json=text_of(failure.details)
    )
