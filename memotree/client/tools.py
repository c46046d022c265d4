"""Tools: operations by name, with arguments and answers in JSON, as an agent calls them over MCP."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from memotree.client.transport import Transport
from memotree.v1 import tool_service_pb2 as pb


@dataclass(frozen=True, slots=True)
class ToolPermission:
    """Something that a tool may do: an action (``read``, ``write``, ``delete``, ``execute``) on a kind of resource."""

    action: str
    resource: str


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool; ``parameters`` is the JSON Schema of its arguments, ``open_world`` whether it reaches other machines."""

    name: str
    title: str
    description: str
    category: str
    parameters: Mapping[str, Any]
    read_only: bool
    destructive: bool
    idempotent: bool
    examples: tuple[Mapping[str, Any], ...]
    permissions: tuple[ToolPermission, ...] = ()
    open_world: bool = False

    @classmethod
    def from_wire(cls, message: pb.Tool) -> Self:
        """Reads the message."""
        return cls(
            message.name,
            message.title,
            message.description,
            message.category,
            json.loads(message.parameters_json),
            message.read_only,
            message.destructive,
            message.idempotent,
            tuple(map(json.loads, message.examples_json)),
            tuple(ToolPermission(each.action, each.resource) for each in message.permissions),
            message.open_world,
        )


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool; arguments that are left out have their defaults."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolError:
    """Why a tool failed: a stable code, the gRPC status, what to do next, and faults by field."""

    code: str
    status: str
    message: str
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call of a tool.

    Attributes:
        success: Whether it succeeded.
        message: One sentence for a person; if the call failed, what to do next.
        data: The answer; ``None`` if the call failed without one.
        warnings: Warnings of a call that succeeded.
        error: Why it failed.
        metadata: The tool, and the workspace of the call.
        elapsed_ms: How long it took.
        text: The answer in short, or why the call failed, for a language model.
    """

    success: bool
    message: str
    data: Mapping[str, Any] | None
    warnings: tuple[str, ...]
    error: ToolError | None
    metadata: Mapping[str, str]
    elapsed_ms: float
    text: str

    @classmethod
    def from_wire(cls, message: pb.ToolResult) -> Self:
        """Reads the message."""
        error = message.error
        return cls(
            message.success,
            message.message,
            json.loads(message.data_json) if message.data_json else None,
            tuple(message.warnings),
            ToolError(error.code, error.status, error.message, json.loads(error.details_json))
            if message.HasField("error")
            else None,
            dict(message.metadata),
            message.elapsed_ms,
            message.text,
        )


class AsyncTools:
    """Calls tools of the server."""

    _transport: Transport

    async def tools(self, category: str = "") -> tuple[Tool, ...]:
        """The tools, those of an agent's day first.

        Args:
            category: Only tools of this category, such as ``node``.
        """
        request = pb.ListToolsRequest(category=category)
        answer = await self._transport.call(request, pb.ListToolsResponse)
        return tuple(map(Tool.from_wire, answer.tools))

    async def tool(self, name: str) -> Tool:
        """One tool."""
        answer = await self._transport.call(pb.GetToolRequest(name=name), pb.GetToolResponse)
        return Tool.from_wire(answer.tool)

    async def run_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        workspace: str = "",
        agent: str = "",
        request_id: str = "",
    ) -> ToolResult:
        """Calls a tool; if it fails, the result says why. It may take as long as a streaming call.

        Args:
            name: The tool.
            arguments: Its arguments; those that are left out have their defaults.
            workspace: The workspace, when the arguments name none; the server's default workspace if empty.
            agent: Who calls, for a tool that has an agent and is given none; your agent if empty.
            request_id: An id of your choice for this call; a new one if empty.
        """
        request = pb.ExecuteToolRequest(
            name=name, arguments_json=_text(arguments or {}), workspace=workspace, agent=agent, request_id=request_id
        )
        answer = await self._transport.call(request, pb.ExecuteToolResponse, waits=True)
        return ToolResult.from_wire(answer.result)

    async def run_tools(
        self,
        calls: Sequence[ToolCall],
        *,
        workspace: str = "",
        agent: str = "",
        go_on: bool = False,
        request_id: str = "",
    ) -> tuple[ToolResult, ...]:
        """Calls tools one after the other, until one fails; returns a result for each call that was made.

        Args:
            calls: The calls, at most 100.
            workspace: The workspace, when arguments name none; the server's default workspace if empty.
            agent: Who calls, for tools that have an agent and are given none; your agent if empty.
            go_on: Whether to go on after a call that failed.
            request_id: An id of your choice for this batch; a new one if empty.
        """
        request = pb.ExecuteToolsRequest(
            calls=[pb.ToolCall(name=call.name, arguments_json=_text(call.arguments)) for call in calls],
            workspace=workspace,
            agent=agent,
            go_on=go_on,
            request_id=request_id,
        )
        answer = await self._transport.call(request, pb.ExecuteToolsResponse, waits=True)
        return tuple(map(ToolResult.from_wire, answer.results))


def _text(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)
