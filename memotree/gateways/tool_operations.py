"""The operations of ToolService: the catalogue of tools for programs that call gRPC."""

from collections.abc import Mapping, Sequence
from typing import Final

from memotree_storage.errors import InvalidInputError

from memotree.gateways.callers import LocalCaller
from memotree.gateways.catalogue import Catalogue
from memotree.gateways.json_arguments import arguments_of, text_of
from memotree.gateways.json_schema import WORKSPACE, declaration
from memotree.gateways.results import Failure, Result
from memotree.gateways.tool import Tool
from memotree.v1 import tool_service_pb2 as pb

MOST_CALLS: Final = 100
"""The most calls of one batch. It counts as one of the calls that the server runs at once."""


def with_tools(operations: Mapping[str, object], workspace: str) -> dict[str, object]:
    """The operations of a server with those of ToolService, whose tools call them.

    Args:
        operations: The object with the operations of each other service, by the service's short name.
        workspace: The default workspace.
    """
    return {**operations, "ToolService": ToolOperations(Catalogue(LocalCaller(operations), workspace))}


class ToolOperations:
    """Lists the tools of a catalogue and calls them."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def list_tools(self, request: pb.ListToolsRequest) -> pb.ListToolsResponse:
        """The tools of a category, or all."""
        return pb.ListToolsResponse(tools=map(tool_message, self._catalogue.listed(request.category)))

    async def get_tool(self, request: pb.GetToolRequest) -> pb.GetToolResponse:
        """One tool."""
        return pb.GetToolResponse(tool=tool_message(self._catalogue.find(request.name)))

    async def execute_tool(self, request: pb.ExecuteToolRequest) -> pb.ExecuteToolResponse:
        """Call one tool."""
        call = pb.ToolCall(name=request.name, arguments_json=request.arguments_json)
        (result,) = await self._execute([call], request)
        return pb.ExecuteToolResponse(result=result)

    async def execute_tools(self, request: pb.ExecuteToolsRequest) -> pb.ExecuteToolsResponse:
        """Call tools in order."""
        if not 0 < len(request.calls) <= MOST_CALLS:
            raise InvalidInputError.at("calls", f"has {len(request.calls)} calls; give 1 to {MOST_CALLS}.")
        return pb.ExecuteToolsResponse(results=await self._execute(request.calls, request))

    async def _execute(
        self, calls: Sequence[pb.ToolCall], request: pb.ExecuteToolRequest | pb.ExecuteToolsRequest
    ) -> list[pb.ToolResult]:
        given = [(self._catalogue.find(call.name), arguments_of(call.name, call.arguments_json)) for call in calls]
        goes_on = isinstance(request, pb.ExecuteToolsRequest) and request.go_on
        results: list[pb.ToolResult] = []
        for tool, arguments in given:
            if request.workspace and WORKSPACE in tool.arguments and not arguments.get(WORKSPACE):
                arguments[WORKSPACE] = request.workspace
            result = await self._catalogue.call(tool.name, arguments, agent=request.agent)
            results.append(result_message(result))
            if not result.success and not goes_on:
                break
        return results


def tool_message(tool: Tool) -> pb.Tool:
    """A tool as a message."""
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
