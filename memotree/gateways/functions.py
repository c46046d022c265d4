"""Tools that are functions, beside those that call RPCs: called in this process, or where the server is.

Only the server runs functions: the settings that allow them files and hosts are its own, and so are its limits. So
ToolService runs them, and the other gateways, which may be other processes, call ToolService.
"""

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

from memotree.client.errors import MemoTreeClientError
from memotree.gateways.callers import Caller
from memotree.gateways.contract import method
from memotree.gateways.default_workspace import MISSING, InDefaultWorkspace, create_workspace
from memotree.gateways.json_schema import WORKSPACE
from memotree.gateways.readable_text import listed
from memotree.gateways.results import Failure, Result
from memotree.gateways.tool_definitions import BY_NAME
from memotree.identity.errors import ToolNotPermittedError
from memotree.request.principal import within_function
from memotree.settings import CustomTool
from memotree.tools.declaration import Declaration, Permission
from memotree.tools.executor import Executor
from memotree.tools.function_tool import CallContext, FunctionTool
from memotree.tools.permitting import check_permitted
from memotree.tools.plugins import Plugins, PluginTool
from memotree.tools.signature import UndeclarableError, WrongArgumentsError, written
from memotree.v1 import tool_service_pb2 as pb

_PLAIN: Final = CustomTool()


class NoSuchFunctionError(LookupError):
    """No function has that name."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A call of a function.

    Attributes:
        name: The tool.
        arguments: Its arguments as they were given.
        workspace: The default workspace.
        agent: Who calls.
        request_id: Makes the call safe to repeat.
    """

    name: str
    arguments: Mapping[str, Any]
    workspace: str = ""
    agent: str = ""
    request_id: str = ""


class Functions(Protocol):
    """The tools that are functions."""

    @property
    def warnings(self) -> Sequence[str]:
        """What is wrong with plugins, once they were listed."""
        ...

    async def declared(self) -> Sequence[Declaration]:
        """All of them, in their order."""
        ...

    async def declaration(self, name: str) -> Declaration | None:
        """The one of a name; ``None`` if there is none."""
        ...

    async def runs_here(self, name: str) -> bool:
        """Whether one has this name and runs in this process: then nobody else tells of its calls."""
        ...

    async def run(self, asked: Asked) -> Result:
        """Call one.

        Raises:
            NoSuchFunctionError: There is none of this name.
            WrongArgumentsError: The arguments have faults.
            MemoTreeError: The function raised it, or a limit was exceeded.
        """
        ...


class LocalFunctions:
    """The functions of this server.

    Args:
        tools: The functions.
        executor: Runs them within limits.
        caller: Calls RPCs for them.
        disabled: The names of functions that are not offered.
        plugins: The functions of other packages; none if ``None``.
        custom: The settings of these functions, by name.

    Raises:
        UndeclarableError: Two tools have one name.
    """

    def __init__(
        self,
        tools: Sequence[FunctionTool],
        executor: Executor,
        caller: Caller,
        disabled: Collection[str] = (),
        plugins: Plugins | None = None,
        custom: Mapping[str, CustomTool] | None = None,
    ) -> None:
        self._custom = custom or {}
        self._executor = executor
        self._caller = caller
        self._disabled = frozenset(disabled)
        self._plugins = plugins
        self._tools: dict[str, FunctionTool] = {}
        for tool in tools:
            if tool.name in self._tools or tool.name in BY_NAME:
                raise UndeclarableError(f"Two tools have the name {tool.name}; give one of them another.")
            self._tools[tool.name] = tool

    @property
    def warnings(self) -> Sequence[str]:
        """What is wrong with plugins, once they were listed."""
        return () if self._plugins is None else [each.warning for each in self._plugins.faults]

    async def declared(self) -> Sequence[Declaration]:
        """All of them, in their order; those of plugins are the last."""
        of_plugins = [tool.declaration for tool in (await self._of_plugins()).values()]
        return [tool for tool in (*self._declarations, *of_plugins) if tool.name not in self._disabled]

    async def declaration(self, name: str) -> Declaration | None:
        """The one of a name; plugins, which may take long to answer, are asked only if no other function has it."""
        if name in self._disabled:
            return None
        own = self._tools.get(name)
        if own is not None:
            return own.declaration
        of_plugin = (await self._of_plugins()).get(name)
        return None if of_plugin is None else of_plugin.declaration

    async def runs_here(self, name: str) -> bool:
        """Whether one has this name: it runs in this process, or in a worker of it."""
        if name in self._disabled:
            return False
        return name in self._tools or name in await self._of_plugins()

    async def run(self, asked: Asked) -> Result:
        """Call one."""
        tool = self._tools.get(asked.name)
        if asked.name in self._disabled:
            raise NoSuchFunctionError
        if tool is None:
            return await self._run_plugin(asked)
        reach = check_permitted(tool.declaration)
        values, faults = tool.signature.read(asked.arguments)
        if faults:
            raise WrongArgumentsError(faults)
        caller = self._caller
        if not asked.arguments.get(WORKSPACE):
            caller = InDefaultWorkspace(caller, asked.workspace)
        context = CallContext(caller, asked.workspace, asked.agent, asked.request_id)
        if reach is not None:
            tool = await asyncio.to_thread(tool.within, reach)
        with within_function(tool.name):
            data = await self._executor.run(tool, {**values, **dict.fromkeys(tool.signature.given, context)})
        place = {WORKSPACE: values[WORKSPACE] or asked.workspace} if WORKSPACE in values else {}
        return Result(f"{tool.title}: done.", listed(data), data, metadata=place)

    async def _run_plugin(self, asked: Asked) -> Result:
        tool = (await self._of_plugins()).get(asked.name)
        if tool is None:
            raise NoSuchFunctionError
        if check_permitted(tool.declaration, of_plugin=True) is not None:
            raise ToolNotPermittedError(f"{asked.name} cannot be limited to what a role says it may reach.")
        custom = self._custom.get(asked.name, _PLAIN)
        seconds = custom.seconds or tool.seconds
        data = await self._executor.run_plugin(
            tool.plugin,
            asked.name,
            asked.arguments,
            seconds,
            custom.own,
            network=tool.declaration.open_world,
            read_only=tool.declaration.read_only,
        )
        return Result(f"{tool.declaration.title}: done.", listed(data), data)

    async def _of_plugins(self) -> Mapping[str, PluginTool]:
        return {} if self._plugins is None else await self._plugins.tools()

    @cached_property
    def _declarations(self) -> tuple[Declaration, ...]:
        return tuple(tool.declaration for tool in self._tools.values())


class RemoteFunctions:
    """The functions of the server that a caller calls, which may be this one.

    They are asked for once: a server has the same ones as long as it runs, and an agent lists them while it may stop.

    Args:
        caller: Calls ToolService.
        known: The functions, if this process has the server; many principals call it, and the list of each is another
            one.
    """

    def __init__(self, caller: Caller, known: Functions | None = None) -> None:
        self._caller = caller
        self._known = known
        self._declared: tuple[Declaration, ...] | None = None
        self.warnings: Sequence[str] = ()

    async def declared(self) -> Sequence[Declaration]:
        """All of them, in their order."""
        if self._known is not None:
            found = await self._known.declared()
            self.warnings = tuple(self._known.warnings)
            return found
        if self._declared is None:
            answer: Any = await self._caller.call(method("ToolService", "ListTools"), pb.ListToolsRequest())
            self.warnings = tuple(answer.warnings)
            self._declared = tuple(_declaration(each) for each in answer.tools if each.name not in BY_NAME)
        return self._declared

    async def declaration(self, name: str) -> Declaration | None:
        """The one of a name."""
        if self._known is not None:
            return await self._known.declaration(name)
        return next((tool for tool in await self.declared() if tool.name == name), None)

    async def runs_here(self, name: str) -> bool:
        """Whether one has this name and runs in this process: none does."""
        del name
        return False

    async def run(self, asked: Asked) -> Result:
        """Call one."""
        request = pb.ExecuteToolRequest(
            name=asked.name,
            arguments_json=written(asked.arguments),
            workspace=asked.workspace,
            agent=asked.agent,
            request_id=asked.request_id,
        )
        result = await self._run(request)
        if result.failure is not None and result.failure.code == MISSING and not asked.arguments.get(WORKSPACE):
            await create_workspace(self._caller, asked.workspace)
            result = await self._run(request)
        return result

    async def _run(self, request: pb.ExecuteToolRequest) -> Result:
        try:
            answer: Any = await self._caller.call(method("ToolService", "ExecuteTool"), request)
        except MemoTreeClientError as error:
            if error.reason == "UNKNOWN_TOOL":
                raise NoSuchFunctionError from None
            raise
        return _result(answer.result)


def _declaration(message: pb.Tool) -> Declaration:
    return Declaration(
        message.name,
        message.title,
        message.description,
        message.category,
        json.loads(message.parameters_json),
        message.read_only,
        message.destructive,
        message.idempotent,
        message.open_world,
        tuple(Permission(each.action, each.resource) for each in message.permissions),  # type: ignore[arg-type]
        tuple(map(json.loads, message.examples_json)),
    )


def _result(message: pb.ToolResult) -> Result:
    error = message.error
    return Result(
        message.message,
        message.text,
        json.loads(message.data_json) if message.data_json else None,
        tuple(message.warnings),
        Failure(error.code, error.status, error.message, json.loads(error.details_json))
        if message.HasField("error")
        else None,
        dict(message.metadata),
    )
