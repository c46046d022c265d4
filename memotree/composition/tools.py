"""What runs the tools that are functions, and how they are limited."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final

import structlog
from memotree_storage.concurrency.cancellation import cancel_and_wait

from memotree.environment import variable
from memotree.gateways.tool_definitions import BY_NAME
from memotree.gateways.tool_settings import (
    admission_of,
    tool_policy,
    tool_rate,
    tool_setting_faults,
    tool_violations,
    unknown_names,
)
from memotree.maintenance.running_settings import RunningSettings
from memotree.planner import Planner, PlannerTools
from memotree.settings import BuiltinTool, InvalidSettingsError, Settings, config_path
from memotree.tools.builtin.services import NAMES, ToolOptions, builtin_services
from memotree.tools.executor import Executor, ToolLimits
from memotree.tools.function_tool import FunctionTool
from memotree.tools.plugins import Plugins, plugin_names
from memotree.tools.policy import ToolAdmission
from memotree.workers.sandbox import Sandbox, find_sandbox

_PLAIN: Final = BuiltinTool()
_log = structlog.get_logger(__name__)


async def open_tools(settings: Settings, stack: AsyncExitStack) -> tuple[Executor, Plugins | None]:
    """What runs the tools that are functions, and those of other packages (``None`` if functions are off).

    Raises:
        InvalidSettingsError: The settings of single tools are wrong, or a sandbox is required and there is none.
    """
    faults = await asyncio.to_thread(lambda: list(tool_setting_faults(settings)))
    if faults:
        raise InvalidSettingsError([each.at(variable(each.setting)) for each in faults])
    executor = Executor(tool_limits(settings), await _sandbox(settings))
    stack.push_async_callback(executor.close)
    if not settings.tools_enabled:
        return executor, None
    plugins = Plugins(executor, (*BY_NAME, *NAMES))
    stack.push_async_callback(plugins.close)
    plugins.begin()
    naming = asyncio.create_task(_warn_of_unknown_names(settings, plugins))
    stack.push_async_callback(cancel_and_wait, [naming])
    return executor, plugins


async def _warn_of_unknown_names(settings: Settings, plugins: Plugins) -> None:
    """Tell the log of names in the settings that no tool has, once packages have told which tools they have."""
    names = await plugins.tools()
    if plugin_names():  # else the start has refused them
        for each in unknown_names(settings, names):
            _log.warning("a setting names no tool", setting=each.setting, tool=each.tool, fault=each.fault)


async def _sandbox(settings: Settings) -> Sandbox | None:
    """What keeps worker processes apart from the machine, if it is wanted and works."""
    if settings.tools_sandbox == "off" or not settings.tools_enabled:
        return None
    found = await asyncio.to_thread(find_sandbox, kept_from_tools(settings), folders_of_tools(settings))
    packages = await asyncio.to_thread(plugin_names)
    if found is None and packages:
        _log.warning("tools of packages are not kept apart: bubblewrap is not here or does not work")
    return found


def names_of_tools() -> Collection[str] | None:
    """The names of all tools that this server may have; ``None`` if packages that are installed may have others."""
    return None if plugin_names() else (*BY_NAME, *NAMES)


def disabled_tools(settings: Settings) -> frozenset[str]:
    """The names of functions that are turned off."""
    builtin = {name for name, own in settings.tools_builtin.items() if not own.enabled}
    custom = {name for name, own in settings.tools_custom.items() if not own.enabled}
    return frozenset(settings.tools_disabled).union(builtin, custom)


def offered_functions(settings: Settings, planner: Planner) -> list[FunctionTool]:
    """The functions that MemoTree brings along and that have what they need, each with its own limits."""
    if not settings.tools_enabled:
        return []
    made: dict[ToolOptions, Mapping[str, FunctionTool]] = {}
    found = []
    for name in NAMES:
        own = settings.tools_builtin.get(name, _PLAIN)
        options = tool_options(settings, own)
        if options not in made:
            made[options] = {tool.name: tool for tool in with_planner(options, planner)}
        tool = made[options].get(name)
        if tool is not None:
            tool.options = replace(tool.options, timeout=own.timeout or tool.options.timeout)
            found.append(tool)
    return found


def with_planner(options: ToolOptions, planner: Planner) -> Sequence[FunctionTool]:
    """The tools of a server with these options, those on plans among them."""
    services = builtin_services(options)
    services.provide(planner)
    services.register(PlannerTools)
    return services.tools()


def tool_limits(settings: Settings) -> ToolLimits:
    """The limits of tools that are functions, from the settings."""
    return ToolLimits(settings.tools_timeout, settings.tools_max_concurrency, settings.tools_memory)


def tool_options(settings: Settings, own: BuiltinTool) -> ToolOptions:
    """What a tool that MemoTree brings along may reach, from the settings of all and its own."""
    folders = settings.tools_folders if own.folders is None else own.folders
    return ToolOptions(
        tuple(map(str, folders)),
        kept_from_tools(settings),
        settings.tools_hosts if own.hosts is None else own.hosts,
        own.url or settings.tools_search_url or "",
    )


def folders_of_tools(settings: Settings) -> tuple[str, ...]:
    """The folders whose files tools that MemoTree brings along may read."""
    own = [folder for each in settings.tools_builtin.values() for folder in each.folders or ()]
    return tuple(dict.fromkeys(str(each.absolute()) for each in (*settings.tools_folders, *own)))


def kept_from_tools(settings: Settings) -> tuple[str, ...]:
    """The files and folders that no tool reads: what the server keeps, and its keys."""
    secret = filter(None, (settings.tls_key, settings.signing_key))
    return tuple(str(each.absolute()) for each in (settings.data_folder, config_path(), *secret))


def follow_settings(running: RunningSettings, settings: Settings) -> ToolAdmission:
    """What decides about calls of tools; it follows the settings when they are read again.

    Settings of tools with which no server starts are refused then, too.
    """
    admission = admission_of(settings)
    running.check_with(tool_violations)

    def change_policy(new: Settings) -> None:
        admission.policy = tool_policy(new)

    running.when_changed("tools_level", "tools_allowed", apply=change_policy)
    running.when_changed(
        "tools_calls_per_minute", "tools_burst", apply=lambda new: admission.rate.change(tool_rate(new))
    )
    return admission
