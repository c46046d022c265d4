"""Tools of other packages, by the entry point group ``memotree.tools``.

An entry point names a function that is declared with `memotree.tools.function_tool.tool`, or a list of such, or the
class of a service that needs nothing. The server imports none of them: worker processes do, which tell what they
declare and run it. So a plugin that cannot be imported, hangs or crashes stops nothing but itself.
"""

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Final

import structlog

from memotree.tools.declaration import Declaration, Permission
from memotree.tools.executor import Executor, ToolFailedError
from memotree.tools.function_tool import LONGEST_NAME, NAME, PLUGINS

_LONGEST_DECLARATION: Final = 1 << 16
_LONGEST_CAUSE: Final = 4000
_LONGEST_WARNING: Final = 200
_MOST_TOOLS: Final = 100

log = structlog.get_logger("memotree.tool")


@dataclass(frozen=True, slots=True)
class PluginTool:
    """A tool of a plugin.

    Attributes:
        plugin: The name of the entry point.
        declaration: What the plugin says of it.
        seconds: How long a call may take; the server's setting if ``None``.
    """

    plugin: str
    declaration: Declaration
    seconds: float | None


@dataclass(frozen=True, slots=True)
class PluginFault:
    """What is wrong with a plugin.

    Attributes:
        plugin: The name of the entry point.
        reason: Why not all of its tools can be used, in a few words.
        has_cause: Whether the log has more about it.
    """

    plugin: str
    reason: str
    has_cause: bool

    @property
    def warning(self) -> str:
        """A sentence about it."""
        more = "; the server's log has the cause" if self.has_cause else ""
        return f"The plugin {self.plugin} cannot be used in full: {self.reason}{more}."


class Plugins:
    """The tools of all plugins that are installed. They are asked for once.

    Args:
        executor: Runs their processes.
        taken: Names that no plugin may have.
    """

    def __init__(self, executor: Executor, taken: Collection[str]) -> None:
        self._executor = executor
        self._taken = set(taken)
        self._loading = asyncio.Lock()
        self._found: dict[str, PluginTool] | None = None
        self._beginning: asyncio.Task[Mapping[str, PluginTool]] | None = None
        self.faults: list[PluginFault] = []

    def begin(self) -> None:
        """Ask the plugins now, in the background, so that nobody waits for them later."""
        self._beginning = asyncio.create_task(self.tools())

    async def close(self) -> None:
        """Stop asking plugins."""
        if self._beginning is not None:
            self._beginning.cancel()
            await asyncio.gather(self._beginning, return_exceptions=True)

    async def tools(self) -> Mapping[str, PluginTool]:
        """Their tools by name; what is wrong with a plugin is in `faults` and in the log."""
        async with self._loading:
            if self._found is None:
                self._found = await self._load()
        return self._found

    async def _load(self) -> dict[str, PluginTool]:
        names = await asyncio.to_thread(plugin_names)
        found: dict[str, PluginTool] = {}
        for tools in await asyncio.gather(*(self._tools_of(name) for name in names)):
            for each in tools:
                if each.declaration.name in self._taken | found.keys():
                    self._warn(each.plugin, f"its tool {each.declaration.name} has the name of another tool")
                else:
                    found[each.declaration.name] = each
        return found

    async def _tools_of(self, plugin: str) -> Sequence[PluginTool]:
        try:
            return _read(plugin, await self._executor.describe(plugin))
        except Exception as error:  # noqa: BLE001 - whatever a plugin makes happen, the others are not concerned
            last = str(error).strip().rpartition("\n")[2]
            kind = last.partition(":")[0] if isinstance(error, ToolFailedError) else type(error).__name__
            self._warn(plugin, f"it ended with {kind}", str(error))
            return ()

    def _warn(self, plugin: str, why: str, cause: str = "") -> None:
        """Tell what is wrong with a plugin; the cause goes only into the log, since it may have any text."""
        log.error("plugin", plugin=plugin, why=why, cause=cause[-_LONGEST_CAUSE:])
        self.faults.append(PluginFault(plugin, why[:_LONGEST_WARNING], bool(cause)))


def plugin_names() -> list[str]:
    """The names of the entry points of plugins that are installed."""
    return sorted({each.name for each in entry_points(group=PLUGINS)})


def _read(plugin: str, declared: Sequence[Any]) -> list[PluginTool]:
    """The tools that a plugin declares.

    Raises:
        ValueError: What it says is no declaration, or too long.
    """
    if len(declared) > _MOST_TOOLS:
        raise ValueError(f"It declares more than {_MOST_TOOLS} tools.")
    found = []
    for each in declared:
        name, category = str(each["name"]), str(each["category"])
        if not NAME.fullmatch(name) or len(name) > LONGEST_NAME or not NAME.fullmatch(category):
            raise ValueError(f"{name[:LONGEST_NAME]!r} is no name of a tool.")
        if len(json.dumps(each)) > _LONGEST_DECLARATION:
            raise ValueError(f"What it says of {name} is too long.")
        permissions = tuple(Permission(one["action"], str(one["resource"])) for one in each["permissions"])
        told = Declaration(
            name,
            str(each["title"]),
            str(each["description"]),
            category,
            dict(each["parameters"]),
            bool(each["read_only"]),
            bool(each["destructive"]),
            bool(each["idempotent"]),
            bool(each["open_world"]),
            permissions,
            tuple(each["examples"]),
        )
        seconds = each.get("seconds")
        found.append(PluginTool(plugin, told, None if seconds is None else float(seconds)))
    return found
