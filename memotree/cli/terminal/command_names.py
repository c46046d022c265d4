"""Other names of commands: long forms that work and are not shown, and what an unknown command may have meant."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final

from memotree.cli.terminal.command_table import COMMANDS, GROUPS
from memotree.cli.terminal.examples import PROGRAM

ALIASES: Final = MappingProxyType(
    {
        "workspace": "ws",
        "workspaces": "ws",
        "archives": "archive",
        "sessions": "session",
        "nodes": "node",
        "views": "view",
        "branches": "branch",
        "tags": "tag",
        "job": "jobs",
        "summary": "summaries",
        "ls": "list",
        "rm": "delete",
    }
)
"""The command that another name means, in each group that has this command and none of that name."""

_MEANT: Final = MappingProxyType(
    {
        "add": ("remember",),
        "checkout": ("session open", "session use"),
        "delete": ("forget",),
        "edit": ("revise", "node update"),
        "find": ("search",),
        "get": ("node get", "recall"),
        "history": ("log",),
        "import": ("ingest",),
        "info": ("status",),
        "init": ("ws create",),
        "load": ("ingest",),
        "remove": ("forget",),
        "rm": ("forget",),
        "run": ("serve",),
        "save": ("remember", "commit"),
        "server": ("serve",),
        "start": ("serve",),
        "store": ("remember",),
        "switch": ("session use", "ws use"),
        "undo": ("session changes", "node restore"),
        "update": ("revise", "node update"),
        "version": ("--version",),
    }
)
"""The commands that people look for under words of other programs."""

_MOST: Final = 3


def unknown_command(name: str, group: Mapping[str, Any], path: str) -> str:
    """The sentences for a command that does not exist, with what it may have meant.

    Args:
        name: The word that was given.
        group: The commands of the group in which it was given.
        path: What names the group after ``memotree``; empty at the top.
    """
    meant = list(dict.fromkeys(_meant(name, group, path)))[:_MOST]
    if not meant:
        return f"No such command {name!r}. `{' '.join([PROGRAM, *path.split(), '--help'])}` lists the commands."
    return f"No such command {name!r}. Did you mean {' or '.join(f'`{PROGRAM} {each}`' for each in meant)}?"


def _meant(name: str, group: Mapping[str, Any], path: str) -> Iterator[str]:
    word = name.lower()
    here = {
        **{alias: command for alias, command in ALIASES.items() if command in group},
        **{each: each for each in group},
    }
    if word in here:
        yield f"{path} {here[word]}".strip()
    if not path:
        yield from _MEANT.get(word, ())
    for close in get_close_matches(word, here):
        yield f"{path} {here[close]}".strip()
    if path and (word in COMMANDS or word in GROUPS):
        yield word
    for other in GROUPS:
        if f"{other} {word}" in COMMANDS:
            yield f"{other} {word}"
