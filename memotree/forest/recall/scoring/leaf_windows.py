"""The windows around leaves and the tree nodes that contain them, by scale, with the norms of their vectors.

A border of an interval is kept as its distance from the leaf, so it stays the same when leaves come or go elsewhere;
mostly 16 bits are enough for it. All that is kept of a leaf stands together, in blocks of leaves: a question looks at
few leaves at all scales, and a change touches few blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memotree.forest.recall.scoring.row_blocks import RowBlocks
from memotree.forest.recall.scoring.runs import Runs
from memotree.forest.recall.scoring.windows import Floats, Ints

Borders = NDArray[np.int64]


class Intervals(NamedTuple):
    """The intervals of some leaves, each of shape (scales, leaves).

    Attributes:
        low: First leaf of the window around each leaf.
        high: The leaf after the last one of that window.
        node_low: First leaf of the largest tree node within the scale that contains each leaf.
        node_high: The leaf after the last one of that node.
        norms: Norms of the windows' vectors, which are the sums of the leaves' vectors times their lengths.
        node_norms: Norms of the nodes' vectors.
    """

    low: Borders
    high: Borders
    node_low: Borders
    node_high: Borders
    norms: Floats
    node_norms: Floats


@dataclass(frozen=True, slots=True, eq=False)
class LeafWindows:
    """The intervals of all leaves.

    Attributes:
        offsets: For each leaf ``low``, ``high``, ``node_low`` and ``node_high`` of its `Intervals` less the leaf's
            number, each by scale: shape (leaves, 4, scales).
        norms: For each leaf ``norms`` and ``node_norms``: shape (leaves, 2, scales).
    """

    offsets: RowBlocks
    norms: RowBlocks

    @classmethod
    def of(cls, borders: Sequence[Ints], norms: Sequence[Floats]) -> "LeafWindows":
        """Returns the intervals of all leaves in their order, given as the fields of `Intervals`."""
        return cls(RowBlocks.of(_offsets(borders, 0)), RowBlocks.of(_rows(np.stack(norms))))

    @classmethod
    def joined(cls, parts: Sequence["LeafWindows"]) -> "LeafWindows":
        """Returns the intervals of the leaves of several ones, in their order."""
        return cls(RowBlocks.joined([each.offsets for each in parts]), RowBlocks.joined([each.norms for each in parts]))

    def __len__(self) -> int:
        return len(self.norms)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.offsets.nbytes + self.norms.nbytes

    def of_leaves(self, leaves: NDArray[np.integer]) -> Intervals:
        """Returns the intervals of some leaves, which are ascending."""
        borders = self.offsets.take(leaves).transpose(1, 2, 0).astype(np.int64, order="C")
        borders += leaves
        norms = np.ascontiguousarray(self.norms.take(leaves).transpose(1, 2, 0))
        return Intervals(*borders, *norms)

    def windows_of(self, leaves: NDArray[np.integer], scales: Sequence[int]) -> list[tuple[Borders, Borders]]:
        """Returns the windows of some scales, given by their numbers, around some leaves, which are ascending."""
        rows = self.offsets.take(leaves)
        return [(rows[:, 0, scale] + leaves, rows[:, 1, scale] + leaves) for scale in scales]

    def packed(self) -> "LeafWindows":
        """Returns the same with the blocks of intervals that were made at once."""
        return LeafWindows(RowBlocks.of(self.offsets.array), RowBlocks.of(self.norms.array))

    # --- Changing ---

    def of_runs(self, runs: Runs) -> "LeafWindows":
        """Returns the intervals of the leaves of some runs; those of fresh leaves are still to be made."""
        return LeafWindows(self.offsets.of_runs(runs), self.norms.of_runs(runs))

    def replaced(self, start: int, end: int, part: "LeafWindows") -> "LeafWindows":
        """Returns the intervals with those of other leaves in place of the leaves from ``start`` to ``end``."""
        offsets, norms = (
            rows.composed([(0, start), *new.blocks, (end, len(rows))])
            for rows, new in ((self.offsets, part.offsets), (self.norms, part.norms))
        )
        return LeafWindows(offsets, norms)

    def with_intervals(self, parts: Sequence[tuple[int, Sequence[Ints], Sequence[Floats]]]) -> "LeafWindows":
        """Returns the intervals with other ones for some leaves: parts, each from a leaf on (see `Intervals`)."""
        return LeafWindows(
            self.offsets.with_rows((start, _offsets(borders, start)) for start, borders, _ in parts),
            self.norms.with_rows((start, _rows(np.stack(norms))) for start, _, norms in parts),
        )


def _offsets(borders: Sequence[Ints], start: int) -> NDArray[Any]:
    """Returns the distances of borders from their leaves, which begin at ``start``."""
    found = np.stack(borders)
    found -= np.arange(start, start + found.shape[-1], dtype=found.dtype)
    small = np.iinfo(np.int16)
    is_small = not found.size or (int(found.min()) >= small.min and int(found.max()) <= small.max)
    return _rows(found.astype(np.int16 if is_small else np.int32))


def _rows(values: NDArray[Any]) -> NDArray[Any]:
    """Returns values of shape (kinds, scales, leaves) with the leaves first."""
    return np.ascontiguousarray(values.transpose(2, 0, 1))
