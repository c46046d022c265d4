"""Where the demo happens: numbered steps with the command that does the same, and facts for ``--json``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rich.text import Text

from memotree.cli.output import put

if TYPE_CHECKING:
    from rich.console import RenderableType

    from memotree.cli.output import Output


class DemoSteps:
    """Prints the steps; for a program they go to stderr and the facts come as one document at the end."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self._console = output.err if output.as_json else output.out
        self._steps: list[dict[str, Any]] = []
        self._begun = time.monotonic()

    def step(self, title: str, command: str = "") -> None:
        """Begins a step; ``command`` is what a person types to do the same."""
        self._steps.append({"title": title, "command": command, "facts": {}})
        heading = Text.assemble((f"{len(self._steps)}. {title}", "bold cyan"))
        if command:
            heading.append(f"\n   $ {command}", "bold green")
        self.show(Text(""))
        self.show(heading)

    def say(self, text: str, **facts: Any) -> None:
        """A line of the present step, and what it says as facts."""
        self.fact(**facts)
        self.show(Text(f"   {text}"))

    def fact(self, **facts: Any) -> None:
        """Facts of the present step."""
        self._steps[-1]["facts"].update(facts)

    def show(self, look: RenderableType) -> None:
        """Something to look at."""
        put(self._console, look)

    @property
    def seconds(self) -> float:
        """Since the demo began."""
        return time.monotonic() - self._begun

    def end(self) -> None:
        """Prints the document for a program."""
        if self.output.as_json:
            self.output.document({"steps": self._steps, "seconds": round(self.seconds, 2)})
