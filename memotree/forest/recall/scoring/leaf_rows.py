"""The rows of leaves: vectors and terms in segments that never change, so that a changed index shares almost all.

What is large about a leaf, its vector and its terms, is a row of a segment. An index says for each leaf which row it
has. When leaves change, the next index gets a segment with their new rows and shares all older segments; the rows that
no leaf has any more stay behind. Segments are merged as in a log-structured merge tree (O'Neil and others, "The
Log-Structured Merge-Tree", 1996): one that has more than half as many rows as the one before is merged with it, and so
are small ones, without the rows that are left behind. So an index of n leaves has few segments, and a change costs what
it changed, on average, times log n.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from memotree.forest.recall.scoring.postings import Postings, joined_postings
from memotree.forest.recall.scoring.runs import Runs
from memotree.forest.recall.scoring.windows import Floats, Ints

_SMALL: Final = 512
"""A segment with fewer rows than this is merged with the next one whatever that has: each one costs each look-up."""

_SHORT_RUN: Final = 16
"""Runs of rows that are shorter than this on average are gathered before they are multiplied."""


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """The rows of some leaves: their vectors, shape (rows, dimensions), and the terms of each row."""

    vectors: Floats
    terms: Postings

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def weight(self) -> int:
        """Size in bytes; vectors that are a slice of another array are counted there. A mapped file counts as read."""
        is_whole = self.vectors.base is None or isinstance(self.vectors.base, np.memmap)
        return 200 + self.terms.weight + (self.vectors.nbytes if is_whole else 0)


@dataclass(frozen=True, slots=True, eq=False)
class RowChange:
    """Where the rows of leaves come from.

    Attributes:
        runs: The leaves that have the rows that leaves had before; the other ones have fresh rows.
        fresh: The fresh rows, in the order of their leaves.
    """

    runs: Runs
    fresh: Segment

    def within(self, start: int, end: int, size: int) -> "RowChange":
        """Returns the change of an index of ``size`` leaves whose leaves from ``start`` to ``end`` are those before."""
        return RowChange(self.runs.within(start, end, size), self.fresh)


@dataclass(frozen=True, slots=True, eq=False)
class LeafRows:
    """The row of each leaf.

    Attributes:
        segments: The segments; rows are counted through all of them.
        row_of: For each leaf its row.
        leaf_of: For each row its leaf; -1 if no leaf has it.
    """

    segments: tuple[Segment, ...]
    row_of: Ints
    leaf_of: Ints

    @classmethod
    def plain(cls, segment: Segment) -> "LeafRows":
        """Returns rows of one segment, whose leaves are in the order of its rows."""
        rows = np.arange(len(segment), dtype=np.int32)
        return cls((segment,), rows, rows)

    def __len__(self) -> int:
        return len(self.row_of)

    @property
    def is_plain(self) -> bool:
        """Whether there is one segment, whose rows are the leaves in their order."""
        return self.row_of is self.leaf_of

    @property
    def own_weight(self) -> int:
        """Size in bytes without the segments."""
        return self.row_of.nbytes + (0 if self.is_plain else self.leaf_of.nbytes)

    @property
    def terms(self) -> Postings:
        """The terms of all leaves."""
        return self.packed_terms()

    @property
    def vectors(self) -> Floats:
        """The vectors of all leaves."""
        return self.segments[0].vectors if self.is_plain else self.vectors_of(np.arange(len(self)))

    # --- Reading ---

    def of(self, terms: Sequence[int]) -> tuple[Ints, Floats]:
        """Returns the leaves that have any of some terms, and how often; a leaf is repeated for each term it has."""
        if self.is_plain:
            return self.segments[0].terms.of(terms)
        found = list[tuple[Ints, Floats]]()
        start = 0
        for segment in self.segments:
            rows, counts = segment.terms.of(terms)
            if len(rows) or not found:
                leaves = self.leaf_of[start : start + len(segment)][rows]
                kept = leaves >= 0
                found.append((leaves[kept], counts[kept]))
            start += len(segment)
        if len(found) == 1:
            return found[0]
        return np.concatenate([each[0] for each in found]), np.concatenate([each[1] for each in found])

    def vectors_of(self, leaves: NDArray[np.integer]) -> Floats:
        """Returns the vectors of some leaves, shape (leaves, dimensions)."""
        rows = self.row_of[leaves]
        found: Floats
        if len(self.segments) == 1:
            found = self.segments[0].vectors[rows]
            return found
        found = np.empty((len(rows), self.segments[0].vectors.shape[1]), dtype=np.float32)
        start = 0
        for segment in self.segments:
            here = np.flatnonzero((rows >= start) & (rows < start + len(segment)))
            found[here] = segment.vectors[rows[here] - start]
            start += len(segment)
        return found

    def products(self, leaves: NDArray[np.integer], vector: NDArray[np.float32]) -> Floats:
        """Returns the dot products of the vectors of some leaves with a vector; the leaves are ascending."""
        if not len(leaves):
            return np.zeros(0, dtype=np.float32)
        rows = self.row_of[leaves]
        borders = np.cumsum([len(segment) for segment in self.segments])
        home = np.searchsorted(borders, rows, side="right")
        edges = np.flatnonzero((np.diff(rows) != 1) | (np.diff(home) != 0)) + 1
        if len(rows) < _SHORT_RUN * (len(edges) + 1):
            return self.vectors_of(leaves) @ vector
        found = np.empty(len(rows), dtype=np.float32)
        for first, behind in zip([0, *edges.tolist()], [*edges.tolist(), len(rows)], strict=True):
            number = int(home[first])
            start = int(rows[first]) - (int(borders[number - 1]) if number else 0)
            found[first:behind] = self.segments[number].vectors[start : start + behind - first] @ vector
        return found

    # --- Changing ---

    def replaced(self, change: RowChange) -> "LeafRows":
        """Returns the rows of other leaves, which follow from these leaves."""
        runs, fresh, size = change.runs, change.fresh, len(self.leaf_of)
        new = runs.fresh
        segments = (*self.segments, fresh) if len(fresh) else self.segments
        row_of = np.empty(len(runs), dtype=np.int32)
        for start, end, first in runs.kept():
            row_of[start:end] = self.row_of[first : first + end - start]
        row_of[new] = size + np.arange(len(fresh), dtype=np.int32)
        if runs.in_place(len(self)):
            leaf_of = np.concatenate([self.leaf_of, new.astype(np.int32)])
            leaf_of[self.row_of[new]] = -1
        else:
            leaf_of = np.full(size + len(fresh), -1, dtype=np.int32)
            leaf_of[row_of] = np.arange(len(row_of), dtype=np.int32)
        return _merged(LeafRows(segments, row_of, leaf_of))

    def packed(self) -> "LeafRows":
        """Returns plain rows of the same leaves."""
        return self if self.is_plain else LeafRows.plain(Segment(self.vectors, self.packed_terms()))

    def packed_terms(self) -> Postings:
        """Returns the terms of all leaves, of one segment with the leaves in their order."""
        if self.is_plain:
            return self.segments[0].terms
        starts = np.cumsum([0, *(len(segment) for segment in self.segments)])
        parts = [
            segment.terms.renumbered(self.leaf_of[start : start + len(segment)])
            for segment, start in zip(self.segments, starts, strict=False)
        ]
        return joined_postings(parts, [0] * len(parts))


def _merged(rows: LeafRows) -> LeafRows:
    """Returns the same rows with fewer segments."""
    segments, leaf_of = rows.segments, rows.leaf_of
    row_of = rows.row_of
    while len(segments) > 1 and (2 * len(segments[-1]) > len(segments[-2]) or len(segments[-2]) < _SMALL):
        start = len(leaf_of) - len(segments[-1]) - len(segments[-2])
        alive = leaf_of[start:] >= 0
        numbers = np.where(alive, np.cumsum(alive) - 1, -1).astype(np.int32)
        middle = len(segments[-2])
        both = zip(segments[-2:], (slice(0, middle), slice(middle, None)), strict=True)
        vectors, terms = [], []
        for segment, part in both:
            vectors.append(segment.vectors[alive[part]])
            terms.append(segment.terms.renumbered(numbers[part]))
        segments = (*segments[:-2], Segment(np.concatenate(vectors), joined_postings(terms, [0, 0])))
        leaf_of = np.concatenate([leaf_of[:start], leaf_of[start:][alive]])
        if row_of is rows.row_of:
            row_of = row_of.copy()
        row_of[leaf_of[start:]] = np.arange(start, len(leaf_of), dtype=np.int32)
    return rows if segments is rows.segments else LeafRows(segments, row_of, leaf_of)
