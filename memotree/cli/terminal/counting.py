"""One progress bar for many things that are done one after the other: how many, how fast, and how long still.

Without a terminal it prints a line at each tenth; with ``--json`` nothing.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final, Protocol

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from memotree.cli.terminal.output import Output

_LINES: Final = 10
_STEP_CHARS: Final = 48


class Counting(Protocol):
    """A running count."""

    def at(self, done: int, total: int, step: str) -> None:
        """Shows that ``done`` of ``total`` are done, and what happens now."""


class _Silent:
    def at(self, done: int, total: int, step: str) -> None:
        """Shows nothing."""


class _Speed(ProgressColumn):
    """How many are done in a second, as soon as that is known."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.finished_speed or task.speed or 0:.1f}/s" if task.completed else "", "cyan")


class _Bar:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None)

    def at(self, done: int, total: int, step: str) -> None:
        """Moves the bar."""
        shown = step if len(step) <= _STEP_CHARS else f"{step[: _STEP_CHARS // 3]}…{step[-_STEP_CHARS * 2 // 3 :]}"
        self._progress.update(self._task, completed=done, total=total, description=shown)


class _Lines:
    """Prints lines; none before a tenth is done, since short work should stay silent."""

    def __init__(self, output: Output, noun: str) -> None:
        self._output = output
        self._noun = noun
        self._told = 0
        self._begun = time.monotonic()

    def at(self, done: int, total: int, step: str) -> None:  # noqa: ARG002 - a line for each step would be too many
        """Prints a line if another tenth is done."""
        tenth = done * _LINES // total if total >= _LINES else 0
        if tenth <= self._told or done == total:
            return
        self._told = tenth
        rate = done / max(time.monotonic() - self._begun, 1e-3)
        left = timedelta(seconds=round((total - done) / rate))
        self._output.note(f"{done:,} of {total:,} {self._noun}, {rate:.1f} a second, {left} left")


@contextmanager
def counting(output: Output, noun: str) -> Iterator[Counting]:
    """A count of things on stderr; ``noun`` is what they are, in the plural."""
    if output.as_json:
        yield _Silent()
    elif not output.moves:
        yield _Lines(output, noun)
    else:
        columns = (
            SpinnerColumn(),
            MofNCompleteColumn(),
            TextColumn(noun),
            BarColumn(),
            _Speed(),
            TimeRemainingColumn(),
        )
        step = TextColumn("{task.description}", style="dim", markup=False)
        with Progress(*columns, step, console=output.err, transient=True) as progress:
            yield _Bar(progress)
