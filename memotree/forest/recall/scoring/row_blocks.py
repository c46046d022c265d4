"""Rows of leaves in blocks that never change: an array that differs in a few rows shares all other blocks.

So what is long costs a change only the blocks that it touches, and not a copy of everything.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from memotree.forest.recall.scoring.runs import Runs

_LARGEST: Final = 4096
"""The most rows of a block: large enough that few blocks have many rows, small enough to be copied in microseconds."""

_LEAST: Final = 1024
"""Pieces with fewer rows than this are joined with their neighbours."""

Rows = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class RowBlocks:
    """Rows, numbered through all blocks.

    Attributes:
        blocks: Arrays whose first axis are the rows; the one block of no rows is empty.
        borders: The first row of each block, and the number of rows.
    """

    blocks: tuple[Rows, ...]
    borders: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Rows) -> "RowBlocks":
        """Returns blocks that are slices of an array."""
        return _balanced([rows], rows)

    @classmethod
    def joined(cls, parts: Sequence["RowBlocks"]) -> "RowBlocks":
        """Returns the rows of several ones, in one piece of memory if they are small."""
        pieces = [block for part in parts for block in part.blocks]
        return _balanced([np.concatenate(pieces)], pieces[0])

    def __len__(self) -> int:
        return int(self.borders[-1])

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return sum(block.nbytes for block in self.blocks)

    @property
    def array(self) -> Rows:
        """All rows in one array."""
        return self.blocks[0] if len(self.blocks) == 1 else np.concatenate(self.blocks)

    # --- Reading ---

    def take(self, places: NDArray[np.integer]) -> Rows:
        """Returns the rows of some places, which are ascending."""
        if len(self.blocks) == 1:
            return self.blocks[0].take(places, axis=0)
        cuts = [0, *np.searchsorted(places, self.borders[1:-1]).tolist(), len(places)]
        found = [
            block.take(places[low:high] - start, axis=0)
            for block, start, (low, high) in zip(self.blocks, self.borders[:-1].tolist(), pairwise(cuts), strict=True)
            if low < high
        ]
        return np.concatenate(found) if found else self.blocks[0][:0]

    def between(self, start: int, end: int) -> Iterator[Rows]:
        """Yields the rows from ``start`` to ``end`` as whole blocks and slices of blocks."""
        number = int(np.searchsorted(self.borders, start, side="right")) - 1
        while start < end:
            first, behind = self.borders[number : number + 2].tolist()
            block = self.blocks[number]
            stop = min(end, behind)
            yield block if (start, stop) == (first, behind) else block[start - first : stop - first]
            start, number = stop, number + 1

    def row(self, place: int) -> Any:
        """Returns one row."""
        number = int(np.searchsorted(self.borders, place, side="right")) - 1
        return self.blocks[number][place - int(self.borders[number])]

    # --- Changing ---

    def composed(self, pieces: Sequence[tuple[int, int] | Rows]) -> "RowBlocks":
        """Returns rows that are made of ranges of these rows, as (first, after the last), and of new ones."""
        parts = list[Rows]()
        for piece in pieces:
            if isinstance(piece, tuple):
                parts += self.between(*piece)
            else:
                parts.append(piece)
        return _balanced(parts, self.blocks[0])

    def of_runs(self, runs: Runs, fresh: Rows | None = None) -> "RowBlocks":
        """Returns the rows of the leaves of some runs, with those of the fresh leaves, or zeros for them."""
        if fresh is None and runs.in_place(len(self)):
            return self
        like, done = self.blocks[0], 0
        pieces = list[tuple[int, int] | Rows]()
        for start, end, first in runs.each():
            if first >= 0:
                pieces.append((first, first + end - start))
            elif fresh is None:
                pieces.append(np.zeros((end - start, *like.shape[1:]), dtype=like.dtype))
            else:
                pieces.append(fresh[done : done + end - start])
                done += end - start
        return self.composed(pieces)

    def with_rows(self, pieces: Iterable[tuple[int, Rows]]) -> "RowBlocks":
        """Returns the same number of rows, some of them other ones: pieces of rows, each with its first place."""
        blocks, own = list(self.blocks), set[int]()
        for start, rows in pieces:
            end = start + len(rows)
            first = int(np.searchsorted(self.borders, start, side="right")) - 1
            for number in range(first, int(np.searchsorted(self.borders, end, side="left"))) if len(rows) else ():
                low, high = self.borders[number : number + 2].tolist()
                begin, stop = max(low, start), min(high, end)
                kind = np.result_type(blocks[number], rows)
                if number not in own or kind != blocks[number].dtype:
                    blocks[number] = blocks[number].astype(kind)
                    own.add(number)
                blocks[number][begin - low : stop - low] = rows[begin - start : stop - start]
        return RowBlocks(tuple(blocks), self.borders) if own else self


def _balanced(pieces: Sequence[Rows], like: Rows) -> RowBlocks:
    """Returns blocks of neither few nor very many rows; a piece that is neither is a block as it is."""
    found, group, size = list[Rows](), list[Rows](), 0
    for piece in pieces:
        if len(piece):
            group.append(piece)
            size += len(piece)
        if size >= _LEAST:
            found += _block(group)
            group, size = [], 0
    if group and found:
        group.insert(0, found.pop())
    if group:
        found += _block(group)
    blocks = tuple(found) or (like[:0],)
    return RowBlocks(blocks, np.cumsum([0, *map(len, blocks)], dtype=np.int64))


def _block(group: Sequence[Rows]) -> list[Rows]:
    """Returns pieces as one block, or as several if they are long."""
    rows = group[0] if len(group) == 1 else np.concatenate(group)
    count = -(-len(rows) // _LARGEST)
    if count == 1:
        return [rows]
    edges = np.linspace(0, len(rows), count + 1).astype(int).tolist()
    return [rows[start:end] for start, end in pairwise(edges)]
