"""The catalogue of tools as an MCP server, for any transport of the SDK."""

from collections.abc import Sequence
from difflib import get_close_matches
from importlib.metadata import version
from typing import Any, Final

import mcp_types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

from memotree.gateways.catalogue import Catalogue, UnknownToolError
from memotree.gateways.everyday_tools import EVERYDAY
from memotree.gateways.json_schema import description, input_schema
from memotree.gateways.mcp_guide import Guide
from memotree.gateways.tool import Tool
from memotree.gateways.tool_definitions import BY_NAME

NAME: Final = "memotree"

Context = ServerRequestContext[Any, Any]


def mcp_server(catalogue: Catalogue, tools: Sequence[Tool]) -> Server[Any]:
    """An MCP server with some tools of the catalogue; one server may serve many connections.

    Args:
        catalogue: Calls the tools.
        tools: Those that are offered. Of a tool of the short list, only the usual arguments are listed, unless others
            than those of the short list are offered too.
    """
    short = all(tool in EVERYDAY for tool in tools)
    offered = [tool.name for tool in tools]
    declared = [_declared(tool, short=short) for tool in tools]

    async def list_tools(_ctx: Context, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=declared)

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        async def on_progress(done: float, message: str) -> None:
            await ctx.session.report_progress(done, None, message)

        if params.name not in offered:  # the protocol requires a protocol error for an unknown tool
            raise MCPError(types.INVALID_PARAMS, _not_offered(params.name, offered), {"code": UnknownToolError.reason})
        result = await catalogue.call(params.name, params.arguments or {}, on_progress, agent=_agent(ctx))
        return types.CallToolResult(
            content=[types.TextContent(text=result.text)],
            structured_content=result.to_json(),
            is_error=not result.success,
        )

    guide = Guide(catalogue, offered)
    return Server(
        NAME,
        version=version("memotree"),
        title="MemoTree",
        instructions=guide.instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=guide.list_prompts,
        on_get_prompt=guide.get_prompt,
        on_list_resources=guide.list_resources,
        on_list_resource_templates=guide.list_resource_templates,
        on_read_resource=guide.read_resource,
    )


def _not_offered(name: str, offered: Sequence[str]) -> str:
    if name in BY_NAME:
        return f"The tool {name} is not offered here. Start the server with --tools all to have every tool."
    near = [each for each in offered if each.startswith(f"{name}_")] or get_close_matches(name, offered, n=1)
    meant = f" Did you mean {near[0]}?" if near else ""
    return f"There is no tool {name!r}.{meant} The tools are {', '.join(offered)}."


def _agent(ctx: Context) -> str:
    """The name of the program that calls, which becomes the author of what it remembers."""
    told = ctx.session.client_params
    name = told.client_info.name if told is not None else ""
    return "".join(character for character in name if character.isprintable() and character not in "<>").strip()[:100]


def _declared(tool: Tool, *, short: bool) -> types.Tool:
    """The MCP declaration of a tool.

    The schema of results is the same for all tools, so it is a resource and not repeated in each declaration: a model
    reads every word of these.
    """
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=description(tool),
        input_schema=dict(input_schema(tool, short=short)),
        annotations=types.ToolAnnotations(
            read_only_hint=tool.read_only or None,
            destructive_hint=None if tool.read_only or tool.destructive else False,
            idempotent_hint=(tool.idempotent and not tool.read_only) or None,
            open_world_hint=False,
        ),
    )
