"""The output of the demo: numbered steps with the equivalent command, and facts for ``--json``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rich.text import Text

from memotree.cli.output import put

if TYPE_CHECKING:
    from rich.console import RenderableType

    from memotree.cli.output import Output


class DemoSteps:
    """Prints the steps; with ``--json`` they go to stderr, and the facts are printed as one document at the end."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self._console = output.err if output.as_json else output.out
        self._steps: list[dict[str, Any]] = []
        self._begun = time.monotonic()

    def step(self, title: str, command: str = "") -> None:
        """Begins a step; ``command`` is the equivalent command line."""
        self._steps.append({"title": title, "command": command, "facts": {}})
        heading = Text.assemble((f"{len(self._steps)}. {title}", "bold cyan"))
        if command:
            heading.append(f"\n   $ {command}", "bold green")
        self.show(Text(""))
        self.show(heading)

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

    @property
    def seconds(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._begun

    def end(self) -> None:
        """Prints the JSON document, with ``--json``."""
        if self.output.as_json:
            self.output.document({"steps": self._steps, "seconds": round(self.seconds, 2)})
