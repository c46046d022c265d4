"""Patterns of the names of tools: a name, or the beginning of names and ``*``. Names are compared sign by sign.

What limits a role may also name what a tool reaches: ``read_file:/srv/manuals``, ``http_request:api.example.com``.
"""

import re
from collections.abc import Iterable
from typing import Final

_PATTERN: Final = re.compile(r"(?=.{1,64}\Z)(?:[a-z][a-z0-9_]*\*?|\*)")
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_LONGEST_RESOURCE: Final = 1000


def is_tool_pattern(text: str) -> bool:
    """Whether a text is the name of a tool, or the beginning of names and ``*``."""
    return _PATTERN.fullmatch(text) is not None


def is_tool_limit(text: str) -> bool:
    """Whether a text is a pattern, or the name of a tool with what it may reach."""
    name, colon, resource = text.partition(":")
    if not colon:
        return is_tool_pattern(text)
    is_resource = 0 < len(resource) <= _LONGEST_RESOURCE and resource.isprintable() and resource == resource.strip()
    return is_resource and _NAME.fullmatch(name) is not None


def names_tool(patterns: Iterable[str], name: str) -> bool:
    """Whether one of the patterns has a tool, whatever it may reach."""
    return any(_names(pattern.partition(":")[0], name) for pattern in patterns)


def resources_in(patterns: Iterable[str], name: str) -> tuple[str, ...] | None:
    """What a tool may reach by patterns that have it; ``None`` if one of them does not limit that."""
    found = [pattern.partition(":") for pattern in patterns if _names(pattern.partition(":")[0], name)]
    if any(not colon for _, colon, _ in found):
        return None
    return tuple(dict.fromkeys(resource for _, _, resource in found))


def _names(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
