"""The output of the demo: numbered steps with the equivalent command, and facts for ``--json``."""

from __future__ import annotations

import shlex
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from memotree.cli.terminal.output import put

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import RenderableType

    from memotree.cli.terminal.output import Output


def command_line(*words: object) -> str:
    """A ``memotree`` command with its arguments quoted for a shell."""
    return shlex.join(["memotree", *map(str, words)])


def recall_command(question: str, budget: int, at: str = "") -> str:
    """The command that recalls what answers a question."""
    return command_line("recall", question, "--budget", budget, *(["--at", at] if at else []))


class DemoSteps:
    """Prints the steps; with ``--json`` they go to stderr, and the facts are printed as one document at the end."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self._console = output.err if output.as_json else output.out
        self._steps: list[dict[str, Any]] = []
        self._begun = time.monotonic()

    def step(self, title: str, *commands: str) -> None:
        """Begins a step; ``commands`` are the command lines that do the same."""
        self._steps.append({"title": title, "commands": commands, "facts": {}})
        self.show(Text(""))
        self.show(Text(f"{len(self._steps)}. {title}", "bold cyan"))
        self.commands(commands)

    def commands(self, lines: Iterable[str]) -> None:
        """Prints command lines; a long one is not broken, so that it can be copied."""
        for line in lines:
            self._console.print(Text(f"   $ {line}", "bold green"), soft_wrap=True)
        self._console.file.flush()

    def say(self, text: str, **facts: Any) -> None:
        """Prints a line of the current step, and records its content as facts."""
        self.fact(**facts)
        self.show(Text(f"   {text}"))

    def fact(self, **facts: Any) -> None:
        """Records facts of the current step."""
        self._steps[-1]["facts"].update(facts)

    def show(self, look: RenderableType) -> None:
        """Prints something below the current step."""
        put(self._console, look)
        self._console.file.flush()  # into a pipe, too: a step that takes time is announced before it begins

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Shows on stderr what takes time: a spinner with the time on a terminal, else one line."""
        if not self.output.moves:
            self.output.err.print(f"   {text} …")
            yield
            return
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=self.output.err, transient=True) as progress:
            progress.add_task(text, total=None)
            yield

    @property
    def seconds(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._begun

    def end(self) -> None:
        """Prints the JSON document, with ``--json``."""
        if self.output.as_json:
            self.output.document({"steps": self._steps, "seconds": round(self.seconds, 2)})
