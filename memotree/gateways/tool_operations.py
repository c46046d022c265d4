"""The operations of ToolService: the catalogue of tools for programs that call gRPC."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from memotree_storage.errors import InvalidInputError

from memotree.gateways.callers import LocalCaller
from memotree.gateways.catalogue import Catalogue, arguments_of
from memotree.gateways.json_schema import WORKSPACE, declaration
from memotree.gateways.json_texts import text_of
from memotree.gateways.results import Failure, Result
from memotree.gateways.tool import Tool
from memotree.request.lookup import needed
from memotree.v1 import tool_service_pb2 as pb

MOST_CALLS: Final = 100
"""The most calls of one batch. It counts as one of the calls that the server runs at once."""


def with_tools(operations: Mapping[str, object], workspace: str, most_bytes: int) -> dict[str, object]:
    """The operations of a server with those of ToolService, whose tools call them.

    Args:
        operations: The object with the operations of each other service, by the service's short name.
        workspace: The default workspace.
        most_bytes: How many bytes of answers end a batch.
    """
    catalogue = Catalogue(LocalCaller(operations), workspace)
    return {**operations, "ToolService": ToolOperations(catalogue, most_bytes)}


class ToolOperations:
    """Lists the tools of a catalogue and calls them.

    Args:
        catalogue: The tools.
        most_bytes: How many bytes of answers end a batch.
    """

    def __init__(self, catalogue: Catalogue, most_bytes: int) -> None:
        self._catalogue = catalogue
        self._most_bytes = most_bytes

    async def list_tools(self, request: pb.ListToolsRequest) -> pb.ListToolsResponse:
        """The tools of a category, or all."""
        return pb.ListToolsResponse(tools=map(tool_message, self._catalogue.listed(request.category)))

    async def get_tool(self, request: pb.GetToolRequest) -> pb.GetToolResponse:
        """One tool."""
        return pb.GetToolResponse(tool=tool_message(self._catalogue.find(needed("name", request.name))))

    async def execute_tool(self, request: pb.ExecuteToolRequest) -> pb.ExecuteToolResponse:
        """Call one tool."""
        tool = self._catalogue.find(needed("name", request.name))
        arguments = arguments_of(request.name, request.arguments_json)
        result = await self._execute(tool, arguments, request, request.request_id)
        return pb.ExecuteToolResponse(result=result)

    async def execute_tools(self, request: pb.ExecuteToolsRequest) -> pb.ExecuteToolsResponse:
        """Call tools in order."""
        if not 0 < len(request.calls) <= MOST_CALLS:
            raise InvalidInputError.at("calls", f"has {len(request.calls)} calls; give 1 to {MOST_CALLS}.")
        tools = [
            self._catalogue.find(needed(f"calls[{number}].name", call.name))
            for number, call in enumerate(request.calls)
        ]
        given = [arguments_of(call.name, call.arguments_json) for call in request.calls]
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
        tool: Tool,
        arguments: dict[str, Any],
        request: pb.ExecuteToolRequest | pb.ExecuteToolsRequest,
        request_id: str,
    ) -> pb.ToolResult:
        given = arguments.get(WORKSPACE)
        if request.workspace and WORKSPACE in tool.arguments and (given is None or given == ""):
            arguments[WORKSPACE] = request.workspace
        return result_message(
            await self._catalogue.call(tool.name, arguments, agent=request.agent, request_id=request_id)
        )


def _too_large(tool: Tool, number: int, size: int, most: int) -> Result:
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
def tool_message(tool: Tool) -> pb.Tool:
    """A tool as a message, which nobody may change."""
    told = declaration(tool)
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
