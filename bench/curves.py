"""Growth curves: how calls, memory and disk grow with the number of nodes, for one archive and many, and of commits.

A call that touches ten nodes of a million must not cost more than the logarithm of a million allows; the curve of one
that does is flagged. Searches and Recall look at more when there is more, so their curves are only told.
"""

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import linear_regression
from typing import Any, Final, Self

from rich.console import Console

from bench import growth_sizes
from bench.figures import Figure
from bench.table import Row, machine

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
"""Numbers of leaves."""

COMMITS: Final = (10, 1_000, 100_000)
"""Numbers of commits."""

TOUCH_FEW: Final = frozenset({"get", "children", "commit of 10", "history of a node"})
"""Calls that touch a number of nodes that does not depend on how many there are."""

_NOISE: Final = 1.25
"""How much faster than the logarithm a median may grow before it is flagged."""

_SECONDS_OF_A_SIZE: Final = 20
_SECONDS_OF_A_NODE: Final = 0.0008
"""About how long all measurements of a size take, and for each leaf in addition, on two cores."""

_SECONDS_OF_A_COMMIT: Final = 0.005
_NODES_BENEATH_COMMITS: Final = 1_000

_FEWEST: Final = 10
"""The fewest leaves of an archive."""

_JUDGED_FROM: Final = 100_000


@dataclass(frozen=True, slots=True)
class Curve:
    """The figures of one call, process or part of the disk over numbers of nodes, or of commits.

    Attributes:
        work: What was measured.
        unit: ``ms`` or ``MB``.
        archives: How many archives there were.
        points: For each number of leaves or commits, ascending, its figure in the unit.
        along: What grows: ``nodes`` or ``commits``.
    """

    work: str
    unit: str
    archives: int
    points: Sequence[tuple[int, Figure]]
    along: str = "nodes"

    @property
    def exponent(self) -> float | None:
        """The slope on logarithmic axes by least squares: 0 for no growth, 1 for linear; ``None`` for one size."""
        places = [(math.log(size), math.log(max(figure.median_ms, 1e-9))) for size, figure in self.points]
        if len(places) < 2:
            return None
        return linear_regression(*zip(*places, strict=True)).slope

    @property
    def per_doubling(self) -> float | None:
        """How many times larger the figure is when what grows is doubled."""
        exponent = self.exponent
        return None if exponent is None else math.pow(2, exponent)

    @property
    def most(self) -> float | None:
        """How many times its first figure the last one may be; ``None`` if it may grow, or has one size."""
        if self.work not in TOUCH_FEW or len(self.points) < 2:
            return None
        return _NOISE * math.log(self.points[-1][0]) / math.log(self.points[0][0])

    @property
    def is_too_fast(self) -> bool:
        """Whether a call that touches few nodes grows faster than the logarithm of their number.

        Both its median and its fastest calls must do so: what else the machine does changes medians alone.
        """
        most = self.most
        if most is None:
            return False
        small, large = self.points[0][1], self.points[-1][1]
        return large.median_ms > most * small.median_ms and large.low_ms > most * small.low_ms

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        """The curve that ``keep`` wrote."""
        points = [(int(size), Figure(**figure)) for size, figure in told["points"]]
        return cls(told["work"], told["unit"], told["archives"], points, told.get("along", "nodes"))


@dataclass(frozen=True, slots=True)
class _Size:
    """A workspace to measure."""

    along: str
    archives: int
    nodes: int
    commits: int

    @property
    def place(self) -> int:
        """Where it stands on the curve."""
        return self.nodes if self.along == "nodes" else self.commits

    @property
    def seconds(self) -> float:
        """About how long it takes."""
        return _SECONDS_OF_A_SIZE + _SECONDS_OF_A_NODE * self.nodes + _SECONDS_OF_A_COMMIT * self.commits

    def __str__(self) -> str:
        more = f" and {self.commits:,} commits" if self.commits else ""
        return f"{self.nodes:,} nodes in {self.archives:,} archives{more}"


async def run(*, largest: int, archives: Sequence[int], commits: int, rounds: int, path: Path) -> list[Curve]:
    """Measure all sizes up to ``largest``, for each number of archives; what was measured is kept after each size.

    Args:
        largest: The most leaves.
        archives: Numbers of archives; sizes with fewer than ten leaves for each archive are left out.
        commits: The most commits of a thousand leaves; 0 for no such curve.
        rounds: Calls of each kind at each size.
        path: The file for the curves.
    """
    say = Console(stderr=True)
    sizes = [
        _Size("nodes", count, nodes, 0) for count in archives for nodes in SIZES if _FEWEST * count <= nodes <= largest
    ]
    sizes += [_Size("commits", 1, _NODES_BENEATH_COMMITS, count) for count in COMMITS if count <= commits]
    minutes = sum(size.seconds for size in sizes) / 60
    say.print(
        f"growth curves to {largest:,} nodes and {commits:,} commits: about {minutes:.0f} minutes if nothing else runs"
    )
    found: dict[tuple[str, int, str], list[tuple[int, Figure]]] = {}
    curves: list[Curve] = []
    for size in sizes:
        begun = time.perf_counter()
        figures = await growth_sizes.measure(
            nodes=size.nodes, archives=size.archives, commits=size.commits, rounds=rounds
        )
        for work, samples in figures.items():
            found.setdefault((work, size.archives, size.along), []).append((size.place, Figure.of(samples)))
        say.print(f"{size}: {time.perf_counter() - begun:.0f} s")
        curves = [Curve(work, _unit(work), count, points, along) for (work, count, along), points in found.items()]
        keep(curves, path)
    return curves


def _unit(work: str) -> str:
    return "MB" if work.startswith(("memory", "disk")) else "ms"


def rows(curves: Sequence[Curve]) -> list[Row]:
    """A row for each curve: its last figure beside its first one."""
    found = []
    for curve in curves:
        (first, small), (last, large) = curve.points[0], curve.points[-1]
        archives = "one archive" if curve.archives == 1 else f"{curve.archives:,} archives"
        exponent = "" if curve.exponent is None else f", exponent {curve.exponent:.2f}"
        peer, base = (f"at {first:,}", small.median_ms) if len(curve.points) > 1 else ("", None)
        most = curve.most
        met = not curve.is_too_fast if most is not None and last >= _JUDGED_FROM else None
        found.append(
            Row(
                f"{curve.work}, {last:,} {curve.along}, {archives}{exponent}",
                large.median_ms,
                curve.unit,
                peer,
                base,
                "" if most is None else f"≤ {most:.1f} times (log N)",
                met,
            )
        )
    return found


def keep(curves: Sequence[Curve], path: Path) -> None:
    """Write the curves as JSON, each with its exponent and whether it grows too fast."""
    told = [
        asdict(curve)
        | {"exponent": curve.exponent, "per_doubling": curve.per_doubling, "is_too_fast": curve.is_too_fast}
        for curve in curves
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), "curves": told}, indent=2) + "\n", encoding="utf-8")


def read(path: Path) -> list[Curve]:
    """Read curves that were kept."""
    return [Curve.from_json(told) for told in json.loads(path.read_text(encoding="utf-8"))["curves"]]
