"""Groups similar vectors, so that every two in a group are similar. Pure numpy.

This is complete linkage: two groups are joined only if each member of one is similar enough to each member of the
other. Connected components would chain: A is similar to B and B to C, but A may have nothing to do with C.

All pairs are compared, block by block, but only the nearest few of each vector are kept. So ten thousand vectors need
seconds and little memory, even if all are equal.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from memotree_storage.ports import Vectors
from numpy.typing import NDArray

MOST_MEMBERS: Final = 20
"""The most members of a group; a person could not judge more at once."""

_NEIGHBOURS: Final = 20
"""The number of most similar pairs that are kept for each vector."""

_BLOCK: Final = 512
"""The number of rows compared with all others at once: 20 MiB of similarities for ten thousand vectors."""

_ROUNDING: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Group:
    """The indexes of two or more similar vectors; each has a cosine of ``similarity`` or more to its nearest other."""

    members: tuple[int, ...]
    similarity: float


def groups(vectors: Vectors, threshold: float) -> list[Group]:
    """Returns disjoint groups of similar vectors, the most similar first, ties by their first member.

    Args:
        vectors: Unit vectors, shape (count, dimensions).
        threshold: The least cosine of any two in a group.
    """
    pairs = sorted(_pairs(vectors, threshold), key=lambda pair: (-pair[0], pair[1], pair[2]))
    group_of = list(range(len(vectors)))
    members = {place: [place] for place in range(len(vectors))}
    for _, left, right in pairs:
        one, other = sorted((group_of[left], group_of[right]))
        if one == other or len(members[one]) + len(members[other]) > MOST_MEMBERS:
            continue
        if float((vectors[members[one]] @ vectors[members[other]].T).min()) < threshold - _ROUNDING:
            continue
        for place in members[other]:
            group_of[place] = one
        members[one] += members.pop(other)
    found = [_group(vectors, tuple(sorted(group))) for group in members.values() if len(group) > 1]
    return sorted(found, key=lambda group: (-group.similarity, group.members))


def _group(vectors: Vectors, members: tuple[int, ...]) -> Group:
    similar: NDArray[np.float32] = vectors[list(members)] @ vectors[list(members)].T
    np.fill_diagonal(similar, -1.0)
    return Group(members, min(1.0, max(0.0, float(similar.max(axis=1).min()))))


def _pairs(vectors: Vectors, threshold: float) -> Iterator[tuple[float, int, int]]:
    """Yields the nearest pairs of each vector above the threshold, once each: (cosine, smaller index, larger index)."""
    seen: set[tuple[int, int]] = set()
    for start in range(0, len(vectors), _BLOCK):
        similar: NDArray[np.float32] = vectors[start : start + _BLOCK] @ vectors.T
        rows = np.arange(len(similar))
        similar[rows, rows + start] = -2.0
        kept = min(_NEIGHBOURS, similar.shape[1])
        nearest = np.argpartition(-similar, kept - 1, axis=1)[:, :kept]
        values = np.take_along_axis(similar, nearest, axis=1)
        for row, column in zip(*np.nonzero(values >= threshold - _ROUNDING), strict=True):
            place, other = start + int(row), int(nearest[row, column])
            pair = (min(place, other), max(place, other))
            if pair not in seen:
                seen.add(pair)
                yield float(values[row, column]), *pair
