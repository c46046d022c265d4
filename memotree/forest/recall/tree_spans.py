"""The inner nodes of an archive's tree as ranges of leaves, as far as they are within one document."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int32]
Spans = NDArray[np.int64]


def document_spans(ends: Numbers, places: Numbers, starts: NDArray[np.int64]) -> Spans:
    """Returns the range of leaves of each inner node within one document, as (first, after the last).

    Args:
        ends: For each node in pre-order the index after its last descendant.
        places: The index of each leaf.
        starts: The first leaf of each document, and the number of leaves.
    """
    inner = np.flatnonzero(ends > np.arange(1, len(ends) + 1))
    before = _running(places + 1, len(ends) + 1)  # the leaves before each node
    home = _running(starts[:-1], max(int(starts[-1]), 1))  # the document of each leaf, counted from 1
    first, behind = before[inner], before[ends[inner]]
    inside = behind > first
    first, behind = first[inside], behind[inside]
    same = home[first] == home[behind - 1]
    spans: Spans = np.stack([first[same], behind[same]], axis=1).astype(np.int64)
    return spans


def spans_between(ends: Numbers, places: Numbers, starts: NDArray[np.int64], first: int, behind: int) -> Spans:
    """Returns those of `document_spans` within a range of leaves, at the cost of that range."""
    low = int(places[first - 1]) + 1 if first else 0
    nodes = np.arange(low, int(places[behind - 1]) + 1)
    nodes = nodes[ends[nodes] > nodes + 1]
    begin, end = np.searchsorted(places, nodes), np.searchsorted(places, ends[nodes])
    inside = (begin >= first) & (end <= behind) & (end > begin)
    begin, end = begin[inside], end[inside]
    same = np.searchsorted(starts, begin, side="right") == np.searchsorted(starts, end - 1, side="right")
    return np.stack([begin[same], end[same]], axis=1).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class TreeSpans:
    """The spans of an archive after a change; see `document_spans` for ``ends``, ``places`` and ``starts``.

    Attributes:
        are_as_before: Whether they are those before the change.
    """

    ends: Numbers
    places: Numbers
    starts: NDArray[np.int64]
    are_as_before: bool

    def every(self) -> Spans:
        """Returns all of them."""
        return document_spans(self.ends, self.places, self.starts)

    def between(self, first: int, behind: int) -> Spans:
        """Returns those within a range of leaves."""
        return spans_between(self.ends, self.places, self.starts, first, behind)


def _running(places: NDArray[np.integer], size: int) -> Numbers:
    """Returns for each number below ``size`` how many of some places are at or before it."""
    marks = np.zeros(size, dtype=np.int32)
    marks[places] = 1
    return np.cumsum(marks, out=marks)
