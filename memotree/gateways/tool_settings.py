"""What the settings say about single tools: what is wrong there, and which tools are offered to anybody."""

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from memotree_storage.errors import FieldViolation
from memotree_storage.model.tool_patterns import names_tool

from memotree.gateways.tool_definitions import BY_NAME
from memotree.request.nearest_names import nearest, shown
from memotree.request.rate import Rate
from memotree.settings import BuiltinTool, LoadedSettings, Settings
from memotree.tools.builtin.hosts import UrlError, check_host_pattern
from memotree.tools.builtin.services import NAMES
from memotree.tools.plugins import plugin_names
from memotree.tools.policy import ToolAdmission, ToolPolicy
from memotree.tools.rate_limit import ToolRateLimit
from memotree.workers.sandbox import find_sandbox

OWN: Final = (*BY_NAME, *NAMES)
"""The names of all tools that MemoTree brings along."""

PLACES: Final[Mapping[str, tuple[str, str]]] = {
    "read_file": ("folders", "tools_folders"),
    "list_folder": ("folders", "tools_folders"),
    "http_request": ("hosts", "tools_hosts"),
    "check_host": ("hosts", "tools_hosts"),
    "search_web": ("url", "tools_search_url"),
}
"""What a tool needs to be told, by the key in its table and by the setting for all tools."""


@dataclass(frozen=True, slots=True)
class ToolSettingFault:
    """What is wrong with a setting of tools.

    Attributes:
        setting: The name of the setting.
        tool: The tool in its table; empty if it has none.
        fault: What is wrong, as the end of a sentence.
    """

    setting: str
    tool: str
    fault: str

    def at(self, place: str) -> FieldViolation:
        """The fault with the place of the setting to change."""
        told = f"{shown(self.tool)} {self.fault}" if self.tool else self.fault
        return FieldViolation(place, told)


def tool_setting_faults(settings: Settings) -> Iterator[ToolSettingFault]:
    """Yield what is wrong with the settings of tools, beyond what each of them shows by itself; it may block."""
    if settings.tools_sandbox == "required" and find_sandbox() is None:
        fault = "is required, and bubblewrap (the program bwrap) is not installed or does not work on this machine"
        yield ToolSettingFault("tools_sandbox", "", fault)
    for name, own in settings.tools_builtin.items():
        yield from (ToolSettingFault("tools_builtin", name, fault) for fault in _faults(settings, name, own))
    for name in settings.tools_custom:
        if name in OWN:
            fault = f"is a tool of MemoTree; its settings are in tools.builtin.{name}"
            yield ToolSettingFault("tools_custom", name, fault)
    if not plugin_names():  # else any name may be that of a tool of a package, which is known only when it has told
        yield from unknown_names(settings, ())


def unknown_names(settings: Settings, of_packages: Collection[str]) -> Iterator[ToolSettingFault]:
    """Yield the names in settings that no tool has.

    Args:
        settings: The settings.
        of_packages: The names of the tools of packages.
    """
    known = (*OWN, *of_packages)
    for name in settings.tools_disabled:
        if name not in known:
            yield ToolSettingFault("tools_disabled", "", f"{shown(name)} names no tool{_guess(name, known)}")
    for pattern in settings.tools_allowed:
        if not any(names_tool((pattern,), name) for name in known):
            fault = f"{pattern} names no tool{_guess(pattern.rstrip('*'), known)}"
            yield ToolSettingFault("tools_allowed", "", fault)
    for name in settings.tools_custom:
        if name not in known:
            near = nearest(name, of_packages)
            told = f"; did you mean {near}?" if near else "" if of_packages else "; none that has tools is installed"
            yield ToolSettingFault("tools_custom", name, f"is no tool of a package{told}")


def tool_violations(loaded: LoadedSettings) -> list[FieldViolation]:
    """The faults that `tool_setting_faults` finds, each with the place of the setting to change; it may block."""
    return [
        each.at(loaded.place(each.setting, *([each.tool] if each.tool else ())))
        for each in tool_setting_faults(loaded.settings)
    ]


def resource_fault(tool: str, resource: str) -> str:
    """Why a role cannot limit a tool to a folder or host; empty if it can."""
    kind, _ = PLACES.get(tool, ("", ""))
    if kind == "folders":
        is_plain = resource.startswith("/") and os.path.normpath(resource) == resource
        return "" if is_plain else f"{resource!r} is no folder; give an absolute path without '.' and '..'."
    if kind == "hosts":
        try:
            check_host_pattern(resource)
        except UrlError:
            return f"{resource!r} is no host; give name, name:port, or *.name."
        return ""
    return f"{tool} reaches no folder and no host that a role could name."


def _faults(settings: Settings, name: str, own: BuiltinTool) -> Iterator[str]:
    if name not in OWN:
        yield f"is no tool of MemoTree{_guess(name, OWN)}"
        return
    if name in BY_NAME:
        if own.limits:
            yield f"takes only enabled, and not {', '.join(own.limits)}: it calls an operation of the store"
        return
    key, shared = PLACES.get(name, ("", ""))
    for limit in own.limits:
        if limit not in {"timeout", key}:
            yield f"takes no {limit}"
    asked = own.enabled and "enabled" in own.model_fields_set
    if asked and key and not getattr(own, key) and not getattr(settings, shared):
        yield f"needs {key}, here or for all tools in {shared}"


def _guess(name: str, known: Collection[str]) -> str:
    near = nearest(name, known)
    return f"; did you mean {near}?" if near else "; `memotree tools list` has their names"


def admission_of(settings: Settings) -> ToolAdmission:
    """What decides about calls of tools, from the settings."""
    return ToolAdmission(tool_policy(settings), ToolRateLimit(tool_rate(settings)))


def tool_policy(settings: Settings) -> ToolPolicy:
    """Which tools are offered to anybody."""
    builtin = {name for name, own in settings.tools_builtin.items() if not own.enabled}
    disabled = frozenset(settings.tools_disabled) | builtin
    return ToolPolicy(settings.tools_level, settings.tools_allowed, disabled, frozenset(OWN))


def tool_rate(settings: Settings) -> Rate | None:
    """How often each principal may call tools; ``None`` for no limit."""
    per_minute = settings.tools_calls_per_minute
    return Rate(per_minute, settings.tools_burst) if per_minute else None
