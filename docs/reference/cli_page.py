"""Writes ``docs/reference/cli.md`` from the command line itself: ``python docs/reference/cli_page.py``.

A test compares the page with what ``page()`` gives.
"""

import typing
from datetime import datetime
from pathlib import Path
from typing import Any

from memotree.cli.app import commands

PAGE = Path(__file__).with_name("cli.md")

INTRO = """\
# Commands

<!-- Made by `python docs/reference/cli_page.py`; do not edit. -->

Every command takes `--json`, which prints one JSON document on stdout and messages on stderr, and `--help`. The options
`--workspace`, `--session`, `--at` and `--address` say where a command works. Without them it is the workspace and the
session chosen by an earlier command (kept per server in the user's configuration folder), and the server that runs on
this machine: the one that the data folder names, else the one that `memotree serve` would start with the same settings
(`MEMOTREE_HOST`, `MEMOTREE_PORT`). `memotree --install-completion` teaches the shell the commands, workspaces, sessions
and revisions.

A node, archive or commit is named by its id or by any unique beginning of it of four characters or more; an archive by
its name as well, and a node by its title or by its path `ARCHIVE/TITLE/TITLE`.

A revision is a branch, tag, commit or session. `NAME~2` is two commits before it. A time, such as `yesterday`,
`"3 days ago"` or `2026-11-03` (its begin), is the newest commit of the default branch then, and `BRANCH@{yesterday}`
that of another branch; a branch or tag with such a name comes first.

| exit status | meaning |
|---|---|
| 0 | done |
| 1 | refused or failed; `verify` found differences; a store does not answer (`status`) |
| 2 | wrong usage, or no workspace or session is chosen |
| 3 | no server answers |
| 130 | stopped with Ctrl-C |
"""

_PLACES = {"workspace", "session", "at", "address", "as_json", "help"}
"""What the introduction tells for all commands."""

_KINDS = {str: "TEXT", int: "NUMBER", float: "NUMBER", Path: "PATH", datetime: "TIME"}


def page() -> str:
    """The whole page."""
    in_order = sorted(commands().items(), key=lambda found: (" " in found[0], found[0]))
    return INTRO + "".join(_section(("memotree", *path.split()), command) for path, command in in_order)


def _section(names: tuple[str, ...], command: Any) -> str:
    shown = [each for each in command.params if each.name not in _PLACES or each.param_type_name == "argument"]
    places = [each for each in command.params if each not in shown and each.name not in {"as_json", "help"}]
    arguments = [each for each in shown if each.param_type_name == "argument"]
    usage = " ".join([*names, *(_argument(each) for each in arguments)])
    lines = [f"\n## {' '.join(names[1:])}\n", f"`{usage}`\n", f"{(command.help or '').strip()}\n"]
    if places:
        lines.append("Place: " + ", ".join(f"`--{each.name.replace('_option', '')}`" for each in places) + ".\n")
    lines.append(f"{command.epilog.replace(': ', ': `', 1)}`\n")
    rows = [f"| {_names(each)} | {_help(each)} |" for each in shown]
    if rows:
        lines.append("\n".join(["| argument or option | meaning |", "|---|---|", *rows]) + "\n")
    return "\n".join(lines)


def _argument(argument: Any) -> str:
    name = str(argument.metavar or argument.name.upper())
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_argument(parameter)}`"
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    return names if parameter.is_flag else f"{names} {_value(parameter)}"


def _value(option: Any) -> str:
    kind = option.type_descriptor
    if kind.choices:
        return ", ".join(str(getattr(choice, "value", choice)) for choice in kind.choices)
    of = next(iter(typing.get_args(kind.annotation)), kind.annotation)
    return str(option.metavar or _KINDS[of])


def _help(parameter: Any) -> str:
    text = (parameter.help or "").replace("|", r"\|")
    default = getattr(parameter.default, "value", parameter.default)
    telling = isinstance(default, (str, int, Path)) and not isinstance(default, bool) and default not in {"", 0}
    if telling and "when not given" not in text:
        text += f" Default: `{default}`."
    return text + (" Required." if parameter.required and parameter.param_type_name == "option" else "")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
