"""What a run found: for each peer a figure for each call, or why there is none; kept as JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.figures import Figure

CALLS: Final = {
    "load": "load all notes, ready for searches",
    "update_one": "update one note",
    "update_ten": "update ten notes at once",
    "search_words": "search by words",
    "search_vector": "search by vector",
    "search_hybrid": "search by words and vector",
    "history_of_one": "versions of one note",
    "read_as_of": "one note as it was before",
}
"""The calls, each in words."""

WRITES: Final = frozenset({"load", "update_one", "update_ten"})
"""Those that write."""

NOT_DURABLE: Final = "not durable"
"""How the durability of a peer begins that does not wait for the disk."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one peer did.

    Attributes:
        name: What people call it.
        skipped: Why it did not run; empty if it did.
        versions: The versions of what matters.
        durability: What is on disk when a write returns.
        figures: The figures of calls.
        lacks: Calls without a figure, each with the reason.
        wrong: Answers that were not right, each in a sentence.
    """

    name: str
    skipped: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    durability: str = ""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    lacks: Mapping[str, str] = field(default_factory=dict)
    wrong: Sequence[str] = ()

    def remark(self, call: str) -> str:
        """What must stand beside a figure of a call: that a write did not wait for the disk."""
        return f", {NOT_DURABLE}" if call in WRITES and self.durability.startswith(NOT_DURABLE) else ""


@dataclass(frozen=True, slots=True)
class Run:
    """A run of all peers; the first one is ours.

    Attributes:
        notes: How many notes there were.
        words: The words of a note.
        machine: The size of the machine, its load before and after, and when.
        outcomes: What each peer did.
    """

    notes: int
    words: int
    machine: Mapping[str, Any]
    outcomes: Sequence[Outcome]

    def ratio(self, outcome: Outcome, call: str) -> float | None:
        """How many times longer than ours a call takes with a peer; ``None`` if one of them has no figure."""
        ours, theirs = self.outcomes[0].figures.get(call), outcome.figures.get(call)
        return theirs.median_ms / ours.median_ms if ours and theirs and ours.median_ms else None


def keep(run: Run, path: Path) -> None:
    """Write a run as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(run), indent=2) + "\n", encoding="utf-8")


def read(path: Path) -> Run:
    """Read a run that was kept."""
    told = json.loads(path.read_text(encoding="utf-8"))
    outcomes = []
    for row in told.pop("outcomes"):
        figures = {call: Figure(**figure) for call, figure in row.pop("figures").items()}
        outcomes.append(Outcome(**row, figures=figures))
    return Run(**told, outcomes=outcomes)
