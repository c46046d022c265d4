"""Rows of a bench: a measurement, its peer and its budget; printed as a table and saved as JSON."""

import json
import os
import platform
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.table import Table

from bench.figures import Figure

NOTHING_LOST = "0"
"""The budget of events that must never happen."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement.

    Attributes:
        work: The work that was measured.
        value: The figure, in ``unit``.
        unit: ``ms``, ``s``, ``MB``, ``/s`` or ``x``.
        peer: What it is compared with, or ``""``.
        peer_value: The peer's figure in the same unit.
        budget: The budget in words.
        met: Whether the budget is met; ``None`` without a budget.
        low: Of repeated calls, the 5th percentile, where the figure is their median; ``None`` for a single measurement.
        high: Their 95th percentile.
    """

    work: str
    value: float
    unit: str
    peer: str = ""
    peer_value: float | None = None
    budget: str = ""
    met: bool | None = None
    low: float | None = None
    high: float | None = None

    @classmethod
    def of_times(
        cls,
        work: str,
        samples: Sequence[float],
        peer: str = "",
        peer_samples: Sequence[float] = (),
        *,
        most: float | None = None,
        judged: bool = True,
        where: str = "",
    ) -> Self:
        """A row of repeated calls: the median in milliseconds, in the interval of nine in ten of them.

        Args:
            work: The work that was measured.
            samples: The seconds of each call.
            peer: What it is compared with.
            peer_samples: The seconds of each call of the peer.
            most: The budget: how many times the peer's median it may be, without a peer in milliseconds.
            judged: Whether the budget holds for this measurement.
            where: Which measurements it holds for, such as "at 1e5".
        """
        figure = Figure.of([1000 * sample for sample in samples])
        base = median_ms(peer_samples) if peer_samples else None
        value = figure.median_ms
        budget = "" if most is None else f"≤ {most:g} {'times' if peer else 'ms'} {where}".rstrip()
        met = value / (base or 1.0) <= most if most is not None and judged and (base or not peer) else None
        return cls(work, value, "ms", peer, base, budget, met, figure.low_ms, figure.high_ms)

    @property
    def interval(self) -> str:
        """The 5th and the 95th percentile as a text; empty for a single measurement."""
        return "" if self.low is None or self.high is None else f"{self.low:,.2f} to {self.high:,.2f}"

    @property
    def ratio(self) -> float | None:
        """The figure as a multiple of the peer's."""
        return self.value / self.peer_value if self.peer_value else None


def median_ms(samples: Sequence[float]) -> float:
    """Return the median of times in seconds, in milliseconds."""
    return statistics.median(samples) * 1000


def p95_ms(samples: Sequence[float]) -> float:
    """Return the 95th percentile of times in seconds, in milliseconds."""
    return sorted(samples)[min(len(samples) - 1, int(len(samples) * 0.95))] * 1000


async def timed(call: Callable[[], Awaitable[object]], rounds: int, warm: int = 3) -> list[float]:
    """Return the seconds of each of several calls, after a warm-up."""
    for _ in range(warm):
        await call()
    samples = []
    for _ in range(rounds):
        begun = time.perf_counter()
        await call()
        samples.append(time.perf_counter() - begun)
    return samples


async def paired(
    first: Callable[[], Awaitable[object]], second: Callable[[], Awaitable[object]], rounds: int
) -> tuple[list[float], list[float]]:
    """Return the seconds of two calls, made alternately so that both meet the same noise."""
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(3):
        await first()
        await second()
    for _ in range(rounds):
        ours += await timed(first, 1, warm=0)
        theirs += await timed(second, 1, warm=0)
    return ours, theirs


def machine() -> dict[str, object]:
    """The size of the machine, for the record."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def show(rows: Sequence[Row]) -> None:
    """Print the rows as a table."""
    table = Table(title="MemoTree beside its peers")
    for heading in ("work", "figure", "5 to 95 %", "peer", "peer's figure", "ratio", "budget", ""):
        table.add_column(heading, justify="left" if heading in {"work", "peer", "budget"} else "right")
    for row in rows:
        mark = {True: "[green]met[/]", False: "[red]missed[/]", None: ""}[row.met]
        table.add_row(
            row.work,
            f"{row.value:,.2f} {row.unit}",
            row.interval,
            row.peer,
            "" if row.peer_value is None else f"{row.peer_value:,.2f} {row.unit}",
            "" if row.ratio is None else f"{row.ratio:.2f}",
            row.budget,
            mark,
        )
    Console(width=180).print(table)


def keep(rows: Sequence[Row], path: Path) -> None:
    """Write the rows and the machine as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {"machine": machine(), "rows": [asdict(row) | {"ratio": row.ratio} for row in rows]}
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


class KeptRows:
    """The rows so far, which are written as soon as they are there: whoever ends a long run keeps what it has found.

    Args:
        path: The file, as JSON; beside it, the rows are kept as a Markdown table.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.all: list[Row] = []

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows, and write all."""
        self.all += rows
        keep(self.all, self._path)
        self._path.with_suffix(".md").write_text(markdown(self.all), encoding="utf-8")


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table, for ``docs/reference/performance.md``."""
    lines = [
        "| work | figure | 5 to 95 % | peer | peer's figure | ratio | budget | met |",
        "|---|---:|---:|---|---:|---:|---|---|",
    ]
    for row in rows:
        peer = "" if row.peer_value is None else f"{row.peer_value:,.2f} {row.unit}"
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        met = {True: "yes", False: "**no**", None: ""}[row.met]
        figure = f"{row.value:,.2f} {row.unit} | {row.interval}"
        lines.append(f"| {row.work} | {figure} | {row.peer} | {peer} | {ratio} | {row.budget} | {met} |")
    return "\n".join(lines) + "\n"
