"""Which things are alike: groups of vectors in which every two are similar; pure numpy.

Complete linkage: a group takes in another only when each of the one is similar enough to each of the other. Connected
components would chain: A is like B, B like C, and A has nothing to do with C.

All pairs are looked at, block by block, but only the nearest few of each vector are kept, so that ten thousand vectors
need seconds and little memory, even when all are the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from memotree_storage.ports import Vectors
from numpy.typing import NDArray

MOST_MEMBERS: Final = 20
"""Members of a group: more than a person can judge at once."""

_NEIGHBOURS: Final = 20
"""Pairs that are kept of each vector, the most similar ones."""

_BLOCK: Final = 512
"""Rows that are compared with all others at once: 20 MiB of similarities for ten thousand vectors."""

_ROUNDING: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Group:
    """Two or more places that are alike; ``similarity`` is the least of one to its nearest other."""

    members: tuple[int, ...]
    similarity: float


def groups(vectors: Vectors, threshold: float) -> list[Group]:
    """Disjoint groups of alike vectors, the most similar first, equals by their first member.

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
    found = [_group(vectors, tuple(sorted(each))) for each in members.values() if len(each) > 1]
    return sorted(found, key=lambda group: (-group.similarity, group.members))


def _group(vectors: Vectors, members: tuple[int, ...]) -> Group:
    similar: NDArray[np.float32] = vectors[list(members)] @ vectors[list(members)].T
    np.fill_diagonal(similar, -1.0)
    return Group(members, min(1.0, max(0.0, float(similar.max(axis=1).min()))))


def _pairs(vectors: Vectors, threshold: float) -> Iterator[tuple[float, int, int]]:
    """(cosine, lesser place, greater place) of pairs over the threshold: the nearest few of each, each pair once."""
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
