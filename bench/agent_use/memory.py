"""What the flow needs of a memory, and what a use of it cost."""

from dataclasses import dataclass, field
from typing import Protocol

from bench.agent_use.flow import Fact


@dataclass
class Cost:
    """Calls, and the tokens that a model would have written (arguments) and read (answers).

    ``structure`` is what it would have read in a host that shows the structure of an answer in place of its text.
    """

    calls: int = 0
    written: int = 0
    read: int = 0
    structure: int = 0

    def add(self, written: int, read: int, structure: int = 0) -> None:
        """Count one call; an answer without a structure is shown as its text by every host."""
        self.calls += 1
        self.written += written
        self.read += read
        self.structure += structure or read


@dataclass
class Report:
    """What one memory cost and found.

    Attributes:
        name: The memory and its version.
        tools: The tokens of the list of its tools, which a model reads in each conversation; 0 if it has none.
        costs: By part of the flow.
        right: How many of 100 questions were answered right.
        handed_over: How many of 10 facts another agent found.
        looked_back: How many of 10 corrected facts could still be seen as they were before, with a time.
        notes: What a reader should know.
    """

    name: str
    tools: int = 0
    costs: dict[str, Cost] = field(default_factory=dict)
    right: int = 0
    handed_over: int = 0
    looked_back: int = 0
    notes: list[str] = field(default_factory=list)


class Memory(Protocol):
    """A memory as an agent uses it; each method returns what the agent reads."""

    cost: Cost
    """Of the part of the flow that runs."""

    async def remember(self, fact: Fact) -> str:
        """Keep a fact; return what names it from then on."""
        ...

    async def correct(self, name: str, old: Fact, new: Fact) -> None:
        """Replace a fact."""
        ...

    async def forget(self, name: str, fact: Fact) -> None:
        """Forget a fact."""
        ...

    async def ask(self, question: str) -> str:
        """What an agent reads before it answers a question."""
        ...

    async def look_back(self, name: str, old: Fact) -> str:
        """What an agent reads to see how a fact was before it changed; empty if the memory does not tell."""
        ...
