"""Where the leaves (or nodes) of a changed archive come from: runs of neighbours that were neighbours before.

A change leaves most leaves where they were beside each other, so a few runs say what would else be an array as long as
the archive.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Runs of leaves; two neighbouring runs are never one.

    Attributes:
        borders: The first leaf of each run, and the number of leaves.
        firsts: For each run what its first leaf was before; -1 for a run of fresh leaves.
    """

    borders: Places
    firsts: Places

    @classmethod
    def of(cls, source: NDArray[np.integer]) -> "Runs":
        """Returns the runs of leaves, given for each what it was before; -1 for a fresh one."""
        fresh = source < 0
        begins = np.where(fresh[1:], ~fresh[:-1], fresh[:-1] | (source[1:] != source[:-1] + 1))
        starts = np.concatenate([np.zeros(min(len(source), 1), dtype=np.int64), np.flatnonzero(begins) + 1])
        return cls(np.append(starts, len(source)), np.maximum(source[starts], -1).astype(np.int64))

    @classmethod
    def identity(cls, count: int) -> "Runs":
        """Returns the run of all leaves as they were."""
        return cls.made([(0, count, 0)])

    @classmethod
    def made(cls, runs: Collection[tuple[int, int, int]]) -> "Runs":
        """Returns runs of those with leaves among some, given as first leaf, leaf after the last, and first before."""
        joined: list[list[int]] = []
        for start, end, first in runs:
            if start == end:
                continue
            if joined and first == (_later(joined[-1][2], start - joined[-1][0])):
                joined[-1][1] = end
            else:
                joined.append([start, end, first])
        borders = [run[0] for run in joined] + [joined[-1][1] if joined else 0]
        return cls(np.array(borders, dtype=np.int64), np.array([run[2] for run in joined], dtype=np.int64))

    def __len__(self) -> int:
        return int(self.borders[-1])

    @property
    def fresh(self) -> Places:
        """The fresh leaves."""
        parts = [np.arange(start, end) for start, end, first in self.each() if first < 0]
        return np.concatenate(parts) if parts else self.borders[:0]

    def each(self) -> Iterator[tuple[int, int, int]]:
        """Yields the first leaf of each run, the leaf after its last one, and what the first one was before."""
        for (start, end), first in zip(pairwise(self.borders.tolist()), self.firsts.tolist(), strict=True):
            yield start, end, first

    def kept(self) -> Iterator[tuple[int, int, int]]:
        """Yields the same of those that are not fresh."""
        return (run for run in self.each() if run[2] >= 0)

    def in_place(self, before: int) -> bool:
        """Whether each leaf that is not fresh has the number that it had among ``before`` leaves."""
        return len(self) == before and bool(((self.firsts < 0) | (self.firsts == self.borders[:-1])).all())

    def source_at(self, places: NDArray[np.integer]) -> Places:
        """Returns what some leaves were before; -1 for fresh ones."""
        run = np.searchsorted(self.borders, places, side="right") - 1
        firsts = self.firsts[run]
        return np.where(firsts < 0, -1, firsts + places - self.borders[run])

    # --- Changing ---

    def with_fresh(self, ranges: Collection[tuple[int, int]]) -> "Runs":
        """Returns the same with some ranges of leaves fresh."""
        pieces: list[tuple[int, int, int]] = []
        left = [list(each) for each in sorted(ranges, reverse=True) if each[0] < each[1]]
        for begin, end, first in self.each():
            start = begin
            while left and left[-1][0] < end:
                low, high = max(left[-1][0], start), min(left[-1][1], end)
                if high > low:
                    pieces += [(start, low, _later(first, start - begin)), (low, high, -1)]
                    start = high
                if left[-1][1] > end:
                    break
                left.pop()
            pieces.append((start, end, _later(first, start - begin)))
        return Runs.made(pieces)

    def within(self, start: int, end: int, size: int) -> "Runs":
        """Returns the runs of ``size`` leaves of which those from ``start`` to ``end`` were these before."""
        own = [(start + low, start + high, _later(first, start)) for low, high, first in self.each()]
        stop = start + len(self)
        return Runs.made([(0, start, 0), *own, (stop, stop + size - end, end)])


def _later(first: int, by: int) -> int:
    return first if first < 0 else first + by
