"""Merges neighbours greedily (the seed's algorithm, on neighbours in document order) in O(n log n).

Among all adjacent pairs whose similarity exceeds the threshold, whose characters together stay within the limit and
whose parent would not have too many levels below it, the most similar pair is replaced by a parent; of equally similar
pairs, the first in the document. This repeats until no such pair is left. Looking at every pair in every round would be
quadratic. Instead a heap holds the pairs and a linked list the neighbours; a pair of which one node has been merged
already is skipped when it leaves the heap.
"""

import heapq
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Vector: TypeAlias = npt.NDArray[np.floating]
MakeParent: TypeAlias = Callable[[int, int], Awaitable[Vector]]
MakeParentNow: TypeAlias = Callable[[int, int], Vector]

MERGED_LEVELS: Final = 32
"""The most levels below a merged node. Alike leaves merge into a chain, so without it hundreds of short ones, such as
turns of a conversation, would make a tree as deep as they are many."""

_NONE: Final = -1


@dataclass(frozen=True, slots=True)
class Merging:
    """The result of a merge. Leaves are numbered 0 to ``leaves - 1`` in document order, parents after them as made.

    Attributes:
        leaves: The number of leaves.
        pairs: The left and the right child of the parents ``leaves``, ``leaves + 1``, ….
        roots: The nodes without a parent, in document order.
    """

    leaves: int
    pairs: tuple[tuple[int, int], ...]
    roots: tuple[int, ...]


def similarity(left: Vector, right: Vector) -> float:
    """Returns the cosine of two vectors, 0 if one of them is zero; the same vectors always give the same bits."""
    return _cosine(left, right, _norm(left), _norm(right))


def _cosine(left: Vector, right: Vector, left_norm: float, right_norm: float) -> float:
    return _dot(left, right) / (left_norm * right_norm) if left_norm > 0 and right_norm > 0 else 0.0


def _norm(vector: Vector) -> float:
    return sqrt(_dot(vector, vector))


def _dot(left: Vector, right: Vector) -> float:
    # The products go into fresh float64 memory and are then summed in a fixed order. A matrix product would sum in an
    # order that depends on the memory layout, and equal pairs would get slightly different values instead of a tie.
    return float(np.add.reduce(np.multiply(left, right, dtype=np.float64)))


class _Chain:
    """The current roots as a linked list, and their adjacent pairs in a heap."""

    def __init__(
        self, vectors: Sequence[Vector] | Vector, lengths: Sequence[int], threshold: float, limit: int, levels: int
    ) -> None:
        count = len(lengths)
        if len(vectors) != count:
            message = f"{len(vectors)} vectors for {count} lengths; give one of each per leaf"
            raise ValueError(message)
        self._threshold = threshold
        self._limit = limit
        self._levels = levels
        self._count = count
        self._vectors: list[Vector | None] = list(vectors)
        self._lengths = list(lengths)
        self._below = [0] * count  # levels
        self._first = list(range(count))
        self._before = [index - 1 for index in range(count)]
        self._after = [*range(1, count), _NONE] if count else []
        self._pairs: list[tuple[int, int]] = []
        self._norms = [_norm(vector) for vector in vectors]
        self._heap: list[tuple[float, int, int, int]] = []
        for left in range(count - 1):
            self._offer(left, left + 1)

    def _vector(self, node: int) -> Vector:
        vector = self._vectors[node]
        if vector is None:  # callers ask for roots only
            message = f"node {node} is not a root any more"
            raise AssertionError(message)
        return vector

    def best(self) -> tuple[int, int] | None:
        """Pops and returns the pair to merge next, or ``None`` if there is none."""
        while self._heap:
            _, _, left, right = heapq.heappop(self._heap)
            if self._vectors[left] is not None and self._after[left] == right:
                return left, right
        return None

    def merge(self, left: int, right: int, vector: Vector) -> None:
        """Replaces a pair by its parent."""
        parent = len(self._vectors)
        before, after = self._before[left], self._after[right]
        self._pairs.append((left, right))
        self._vectors.append(vector)
        self._vectors[left] = self._vectors[right] = None  # a merged vector is not needed again
        self._norms.append(_norm(vector))
        self._lengths.append(self._lengths[left] + self._lengths[right])
        self._below.append(1 + max(self._below[left], self._below[right]))
        self._first.append(self._first[left])
        self._before.append(before)
        self._after.append(after)
        self._after[left] = _NONE
        if before != _NONE:
            self._after[before] = parent
            self._offer(before, parent)
        if after != _NONE:
            self._before[after] = parent
            self._offer(parent, after)

    def _offer(self, left: int, right: int) -> None:
        # Lengths and levels only grow, so a pair over a limit can be dropped for good.
        if (
            self._lengths[left] + self._lengths[right] <= self._limit
            and max(self._below[left], self._below[right]) < self._levels
        ):
            cosine = _cosine(self._vector(left), self._vector(right), self._norms[left], self._norms[right])
            if cosine > self._threshold:
                heapq.heappush(self._heap, (-cosine, self._first[left], left, right))

    def result(self) -> Merging:
        roots = [node for node, vector in enumerate(self._vectors) if vector is not None]
        roots.sort(key=self._first.__getitem__)
        return Merging(self._count, tuple(self._pairs), tuple(roots))


async def merge(
    vectors: Sequence[Vector] | Vector,
    lengths: Sequence[int],
    make_parent: MakeParent,
    *,
    threshold: float,
    limit: int,
    levels: int = MERGED_LEVELS,
) -> Merging:
    """Merges the leaves of one section; sections are independent and may be merged concurrently.

    Args:
        vectors: The summary vector of each leaf, in document order.
        lengths: The characters of each leaf.
        make_parent: Gets the numbers of two nodes (see `Merging`), makes their parent and returns its vector; called
            for one pair at a time, in the order of the parents' numbers.
        threshold: Pairs merge only if their cosine is greater.
        limit: The most characters below one parent.
        levels: The most levels below one parent.
    """
    chain = _Chain(vectors, lengths, threshold, limit, levels)
    while (pair := chain.best()) is not None:
        chain.merge(*pair, await make_parent(*pair))
    return chain.result()


def merge_now(
    vectors: Sequence[Vector] | Vector,
    lengths: Sequence[int],
    make_parent: MakeParentNow,
    *,
    threshold: float,
    limit: int,
    levels: int = MERGED_LEVELS,
) -> Merging:
    """Like `merge`, with a synchronous ``make_parent``."""
    chain = _Chain(vectors, lengths, threshold, limit, levels)
    while (pair := chain.best()) is not None:
        chain.merge(*pair, make_parent(*pair))
    return chain.result()
