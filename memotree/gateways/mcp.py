"""The catalogue of tools as an MCP server, for any transport of the SDK."""

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any, Final, TypeVar

import mcp_types as types
import structlog
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

from memotree.client.errors import MemoTreeClientError
from memotree.gateways.catalogue import Catalogue, UnknownToolError
from memotree.gateways.default_workspace import MISSING
from memotree.gateways.everyday_tools import EVERYDAY
from memotree.gateways.json_schema import declaration, input_schema
from memotree.gateways.mcp_guide import Guide
from memotree.gateways.readable_text import refusal
from memotree.gateways.results import Failure, Result
from memotree.gateways.tool_definitions import BY_NAME, ToolChoice
from memotree.request.nearest_names import nearest, shown
from memotree.request.observed_calls import MCP, calling_through
from memotree.request.principal import Principal, acting_as
from memotree.tools.builtin.services import NAMES
from memotree.tools.declaration import Declaration

NAME: Final = "memotree"

FULL: Final = "memotree/full"
"""The key in the ``_meta`` of a call whose structured result shall be the whole one."""

_LISTING: Final = "list_workspaces"

_NAME: Final = re.compile(r"[a-z]+(?:_[a-z]+)+")
"""A name of a tool that is no word of English."""

Context = ServerRequestContext[Any, Any]

log = structlog.get_logger("memotree.mcp")


Identify = Callable[[Any], Principal]
"""Finds who makes a request, given what its transport has attached to it."""

Params = TypeVar("Params")
Answer = TypeVar("Answer")
Handler = Callable[[Context, Params], Awaitable[Answer]]


def mcp_server(catalogue: Catalogue, choice: ToolChoice, identify: Identify | None = None) -> Server[Any]:
    """An MCP server with some tools of the catalogue; one server may serve many connections.

    Args:
        catalogue: Calls the tools.
        choice: Those that are offered. Of a tool of the short list, only the usual arguments are listed, unless others
            than those of the short list are offered too.
        identify: Finds who makes a request; ``None`` if all are made by whoever started the process.
    """
    offer = _Offer(catalogue, choice)

    async def list_tools(_ctx: Context, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=await offer.listed())

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        async def on_progress(done: float, message: str) -> None:
            await ctx.session.report_progress(done, None, message)

        name = await catalogue.registered(params.name)
        await offer.check(name)
        with calling_through(MCP, None if ctx.request is None else ctx.request.headers.items):
            try:
                result = await catalogue.call(name, params.arguments or {}, on_progress, agent=_agent(ctx))
            except UnknownToolError as error:
                raise _unknown(error.message) from None
        if result.failure is not None and result.failure.code == MISSING and _LISTING not in offer.names:
            result = _without_workspace(result, result.failure, catalogue.workspace)
        elif missing := offer.not_offered_in([*result.warnings, *([result.failure.message] if result.failure else [])]):
            result = replace(result, text=f"{result.text}\n{_absent(missing)}")
        return types.CallToolResult(
            content=[types.TextContent(text=result.text)],
            structured_content=result.to_json() if (params.meta or {}).get(FULL) else result.in_short(),
            is_error=not result.success,
        )

    def by_caller(handler: Handler[Params, Answer]) -> Handler[Params, Answer]:
        if identify is None:
            return handler

        async def handle(ctx: Context, params: Params) -> Answer:
            with acting_as(identify(ctx.request)):
                return await handler(ctx, params)

        return handle

    guide = Guide(catalogue, offer.names)
    return Server(
        NAME,
        version=version("memotree"),
        title="MemoTree",
        instructions=guide.instructions,
        on_list_tools=by_caller(list_tools),
        on_call_tool=by_caller(call_tool),
        on_list_prompts=by_caller(guide.list_prompts),
        on_get_prompt=by_caller(guide.get_prompt),
        on_list_resources=by_caller(guide.list_resources),
        on_list_resource_templates=by_caller(guide.list_resource_templates),
        on_read_resource=by_caller(guide.read_resource),
    )


class _Offer:
    """The tools that are offered, if who asks may call them.

    Args:
        catalogue: All tools.
        choice: Those that are offered.
    """

    def __init__(self, catalogue: Catalogue, choice: ToolChoice) -> None:
        self._catalogue = catalogue
        self._choice = choice
        self.names = [tool.name for tool in choice.tools]
        short = not choice.with_functions and all(tool in EVERYDAY for tool in choice.tools)
        schemas = (dict(input_schema(tool, short=short)) for tool in choice.tools)
        tools = map(declaration, choice.tools)
        self._tools = [(tool, _declared(tool, schema)) for tool, schema in zip(tools, schemas, strict=True)]

    async def listed(self) -> list[types.Tool]:
        """Those that who asks may call."""
        functions = [(function, _declared(function, dict(function.parameters))) for function in await self._functions()]
        return [told for tool, told in (*self._tools, *functions) if self._catalogue.permits(tool)]

    async def check(self, name: str) -> None:
        """Refuse a tool that is not offered to anybody; of the others, the catalogue decides.

        Raises:
            MCPError: It is not offered.
        """
        if name in self.names or (name in NAMES and self._choice.has_function(name)):
            return
        offered = [*self.names, *(function.name for function in await self._functions())]
        if name not in offered:
            raise _unknown(_not_offered(name, offered))

    def not_offered_in(self, told: Iterable[str]) -> list[str]:
        """The tools that these texts name and that are not offered, in order."""
        named = dict.fromkeys(word for text in told for word in _NAME.findall(text))
        return [name for name in named if name in BY_NAME and name not in self.names]

    async def _functions(self) -> list[Declaration]:
        """The functions of the server that are offered."""
        if not self._choice.with_functions:
            return []
        try:
            return [each for each in await self._catalogue.functions() if self._choice.has_function(each.name)]
        except MemoTreeClientError as error:  # the other tools are known without a server, and must be listed
            log.warning("the functions of the server are not known", reason=error.reason or error.code)
            return []


def _without_workspace(result: Result, failure: Failure, default: str) -> Result:
    """The failure for a workspace that does not exist, where no tool lists or creates one."""
    told = f"There is no such workspace. Leave it out to use the workspace {default!r}."
    failure = replace(failure, message=told)
    return replace(result, message=told, text=refusal(failure), failure=failure)


def _absent(names: Sequence[str]) -> str:
    return f"Not offered here: {', '.join(names)}. A server that is started with --tools all has every tool."


def _unknown(told: str) -> MCPError:
    """The protocol requires a protocol error for an unknown tool."""
    return MCPError(types.INVALID_PARAMS, told, {"code": UnknownToolError.reason})


def _not_offered(name: str, offered: Sequence[str]) -> str:
    if name in BY_NAME:
        return f"The tool {name} is not offered here. Start the server with --tools all to have every tool."
    name = shown(name)
    near = next((each for each in offered if each.startswith(f"{name}_")), "") or nearest(name, offered)
    meant = f" Did you mean {near}?" if near else ""
    return f"There is no tool {name!r}.{meant} The tools are {', '.join(offered)}."


def _agent(ctx: Context) -> str:
    """The name of the program that calls, which becomes the author of what it remembers."""
    told = ctx.session.client_params
    name = told.client_info.name if told is not None else ""
    return "".join(character for character in name if character.isprintable() and character not in "<>").strip()[:100]


def _declared(tool: Declaration, schema: dict[str, Any]) -> types.Tool:
    """The MCP declaration of a tool.

    The schema of results is the same for all tools, so it is a resource and not repeated in each declaration: a model
    reads every word of these.
    """
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=schema,
        annotations=types.ToolAnnotations(
            read_only_hint=tool.read_only or None,
            destructive_hint=None if tool.read_only or tool.destructive else False,
            idempotent_hint=(tool.idempotent and not tool.read_only) or None,
            open_world_hint=tool.open_world,
        ),
    )
