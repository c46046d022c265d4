"""The output of a command: one JSON document or formatted text on stdout, messages on stderr."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from rich.box import SIMPLE_HEAD
from rich.color import ColorSystem
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from memotree.cli.terminal.pager import page

if TYPE_CHECKING:
    from rich.progress import Progress

WIDTH_WITHOUT_TERMINAL = 10_000
"""The width for a file or pipe: lines are not wrapped there unless COLUMNS is set."""


def plain(value: Any) -> Any:
    """``value`` as JSON types: dataclasses as objects, times as ISO 8601, enums as strings."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raises the error that the reader closed the pipe; rich would end the program with exit code 1."""
        raise BrokenPipeError


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else WIDTH_WITHOUT_TERMINAL
    return _Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def put(console: Console, look: RenderableType) -> None:
    """Prints ``look``; without a terminal, the spaces with which rich pads lines are removed."""
    if console.is_terminal:
        console.print(look)
        return
    with console.capture() as captured:
        console.print(look)
    console.file.write("\n".join(line.rstrip(" ") for line in captured.get().split("\n")))
    console.file.flush()  # before what the command says on standard error, where both go to one file


class Steps(Protocol):
    """A running progress bar."""

    def at(self, step: str, done: int, total: int) -> None:
        """Shows ``done`` of ``total`` units of ``step`` (0: the total is unknown)."""


class _Silent:
    def at(self, step: str, done: int, total: int) -> None:
        """Shows nothing."""


class _Bar:
    def __init__(self, progress: "Progress") -> None:
        self._progress = progress
        self._tasks: dict[str, Any] = {}

    def at(self, step: str, done: int, total: int) -> None:
        """Moves the bar of ``step``; a new step gets its own bar and ends the earlier ones."""
        if step not in self._tasks:
            for task in self._tasks.values():
                self._progress.stop_task(task)
            self._tasks[step] = self._progress.add_task(step, total=total or None)
        self._progress.update(self._tasks[step], completed=done, total=total or None)


class Output:
    """The two streams of one command."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.out = _console(stderr=False)
        self.err = _console(stderr=True)

    @property
    def moves(self) -> bool:
        """Whether bars and spinners can be drawn: FORCE_COLOR makes colours, but no terminal of a file or pipe."""
        return self.err.is_terminal and self.err.file.isatty()

    def show(self, value: Any, look: Callable[[], RenderableType | None]) -> None:
        """Prints ``value`` as the JSON document, or with ``look`` as text for a person.

        A string is printed exactly as it is; a missing line break at its end is added only on a terminal.
        """
        if self.as_json:
            self.document(value)
            return
        rendered = look()
        if isinstance(rendered, str):
            open_line = self.out.is_terminal and not rendered.endswith("\n")
            self.stream([f"{rendered}\n" if open_line else rendered])
        elif rendered is not None and self.out.is_terminal:
            with self.out.capture() as captured:
                self.out.print(rendered)
            self.stream(captured.get().splitlines(keepends=True))
        elif rendered is not None:
            put(self.out, rendered)

    def stream(self, pieces: Iterable[str]) -> None:
        """Prints text as it arrives; on a terminal, a long one is shown in the pager."""
        if self.out.is_terminal and self.out.file.isatty():
            page(pieces, self.out.file, self.out.height)
            return
        for piece in pieces:
            self.out.file.write(piece)
        self.out.file.flush()

    def styled(self, line: Text) -> str:
        """One line with the terminal's colours, not wrapped; it is much faster than printing it."""
        return "".join(
            segment.style.render(segment.text, color_system=self._colours) if segment.style else segment.text
            for segment in line.render(self.out, end="\n")
        )

    @property
    def _colours(self) -> ColorSystem | None:
        """The colours that stdout shows; none without a terminal or with NO_COLOR."""
        name = None if self.out.no_color else self.out.color_system
        return ColorSystem[name.upper()] if name and name != "256" else ColorSystem.EIGHT_BIT if name else None

    def document(self, value: Any) -> None:
        """Prints the one JSON document of the command."""
        text = json.dumps(plain(value), ensure_ascii=False, indent=2)
        self.out.file.write(text.encode("utf-8", "replace").decode("utf-8") + "\n")
        self.out.file.flush()

    def note(self, text: RenderableType) -> None:
        """Prints a message on stderr, in addition to the result."""
        put(self.err, text)

    def done(self, text: str) -> None:
        """Prints on stderr what was done."""
        self.err.print(Text.assemble(("✓ ", "green"), text) if _speaks_unicode(self.err) else Text(text))

    def warn(self, text: str) -> None:
        """Prints a warning on stderr; the command continues."""
        self.err.print(Text.assemble(("warning: ", "bold yellow"), text))

    def error(self, text: str) -> None:
        """Prints on stderr the error that ends the command."""
        self.err.print(Text.assemble(("error: ", "bold red"), text))

    @contextmanager
    def progress(self) -> Iterator[Steps]:
        """A progress bar on stderr; shows nothing with ``--json`` or without a terminal."""
        if self.as_json or not self.moves:
            yield _Silent()
            return
        from rich.progress import (  # noqa: PLC0415 - few commands show a bar
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, TimeElapsedColumn(), console=self.err, transient=True) as progress:
            yield _Bar(progress)

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Shows ``text`` with a spinner on stderr during a call; nothing with ``--json`` or without a terminal."""
        if self.as_json or not self.moves:
            yield
            return
        with self.err.status(text):
            yield


def _speaks_unicode(console: Console) -> bool:
    return (console.encoding or "").lower().startswith("utf")


ID = "yellow"
"""The style of node and commit ids; a column with it is never wrapped, since a broken id cannot be copied."""

Cell = str | Text
Column = str | tuple[str, str]


def table(columns: Iterable[Column], rows: Iterable[Iterable[Cell]], *, empty: str) -> RenderableType:
    """A table; each column is a heading, or a heading with the style of its cells; without rows, ``empty``."""
    made = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for column in columns:
        heading, style = (column, "") if isinstance(column, str) else column
        made.add_column(heading, style=style, overflow="fold", no_wrap=style == ID)
    for row in rows:
        made.add_row(*row)
    return made if made.row_count else Text(empty, style="dim")


def facts(pairs: Iterable[tuple[str, Cell]]) -> RenderableType:
    """Names and values, one pair per line; empty values are left out."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    for name, value in pairs:
        if str(value):
            grid.add_row(name, value)
    return grid


def when(time: datetime | None) -> str:
    """A time in the local time zone; in the first and last hours of the calendar, where that may not exist, in UTC."""
    if time is None:
        return ""
    try:
        time = time.astimezone()
    except (OverflowError, ValueError):
        time = time.astimezone(UTC)
    return time.replace(tzinfo=None, second=0, microsecond=0).isoformat(" ", "minutes")


def counted(number: int, noun: str, nouns: str = "") -> str:
    """A number with its noun in singular or plural; the plural ends in ``s`` unless it is given."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {nouns or f'{noun}s'}"


def short(commit_id: str | None) -> str:
    """The abbreviated commit id."""
    return (commit_id or "")[:10]
