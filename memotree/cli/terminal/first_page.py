"""The answer to ``memotree --help``, without Typer: the page that people and agents ask for first appears at once.

It is drawn by rich from the table of commands, as Typer draws the pages of the commands. A test compares the two.
"""

import os
from collections.abc import Iterable
from typing import Final

from rich.align import Align
from rich.columns import Columns
from rich.console import Console
from rich.highlighter import RegexHighlighter
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from memotree.cli.terminal.command_table import COMMANDS, GROUPS
from memotree.cli.terminal.examples import EPILOG, PANELS, PROGRAM, SUMMARY

_OPTIONS: Final = (
    ("--version", "", "Show the version."),
    ("--no-pager", "", "Do not show long output in a pager."),
    ("--install-completion", "", "Install completion for the current shell."),
    (
        "--show-completion",
        "",
        "Show completion for the current shell, to copy it or customize the installation.",
    ),
    ("--help", "-h", "Show this message and exit."),
)
"""The options of the program: the long name, the short one, and what it does."""

_STYLES: Final = {"option": "bold cyan", "switch": "bold green", "usage": "yellow"}
_OTHER_LOOKS: Final = (
    *("TERMINAL_WIDTH", "GITHUB_ACTIONS", "PY_COLORS", "_TYPER_FORCE_DISABLE_TERMINAL", "TYPER_USE_RICH"),
    "_MEMOTREE_COMPLETE",
)
"""Variables with which Typer draws another page, or none."""


class _Marked(RegexHighlighter):
    """Colours options as Typer does."""

    highlights = [  # noqa: RUF012 - rich declares it so
        r"(^|\W)(?P<switch>\-\w+)(?![a-zA-Z0-9])",
        r"(^|\W)(?P<option>\-\-[\w\-]+)(?![a-zA-Z0-9])",
        r"(?P<usage>Usage: )",
    ]


_marked: Final = _Marked()


def is_asked_for(arguments: list[str]) -> bool:
    """Whether the arguments of the program ask for this page, and the environment for no other look of it."""
    return arguments in (["--help"], ["-h"]) and not any(name in os.environ for name in _OTHER_LOOKS)


def show(program: str = PROGRAM) -> None:
    """Prints the page; ``program`` is the name that it was called by."""
    console = Console(
        theme=Theme(_STYLES), highlighter=_marked, force_terminal=True if os.environ.get("FORCE_COLOR") else None
    )
    usage = _marked(f"Usage: {program} [OPTIONS] COMMAND [ARGS]...")
    console.print(Padding(usage, 1), style="bold")
    console.print(Padding(Align(_marked(SUMMARY), pad=False), (0, 1, 1, 1)))
    console.print(_panel("Options", _options()))
    for heading, names in PANELS.items():
        console.print(_panel(heading, _commands(names)))
    console.print(Padding(Align(_marked(EPILOG), pad=False), 1))
    console.print()


def _panel(heading: str, content: Table) -> Panel:
    return Panel(content, border_style="dim", title=heading, title_align="left")


def _options() -> Table:
    table = Table(highlight=True, show_header=False, expand=True, box=None, pad_edge=False, padding=(0, 1))
    for long, short, line in _OPTIONS:
        of_negative, of_type = (Text(), Text()), Text()  # empty here; Typer gives each its column
        table.add_row(_marked(long), _marked(short), *of_negative, of_type, Columns([_marked(line)]))
    return table


def _commands(names: Iterable[str]) -> Table:
    table = Table(highlight=False, show_header=False, expand=True, box=None, pad_edge=False, padding=(0, 1))
    longest = max(len(name) for name in (*GROUPS, *COMMANDS) if " " not in name)
    table.add_column(style="bold cyan", no_wrap=True, width=longest)
    table.add_column(ratio=10)
    for name in names:
        table.add_row(Text(name), _marked(GROUPS[name] if name in GROUPS else COMMANDS[name].line))
    return table
