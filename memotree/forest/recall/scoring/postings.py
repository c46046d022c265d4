"""Postings: which texts have which terms, and how often, as arrays sorted by term."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memotree.forest.recall.scoring.windows import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Postings:
    """Which leaves have which terms, and how often.

    Attributes:
        terms: The ids of all terms, ascending.
        bounds: Index of each term's first posting, and the number of postings at the end.
        leaves: The leaves that have each term, term by term.
        counts: How often the term occurs in the leaf of each posting.
    """

    terms: NDArray[np.uint32]
    bounds: NDArray[np.int64]
    leaves: Ints
    counts: Floats

    @property
    def weight(self) -> int:
        """Size in bytes."""
        return self.terms.nbytes + self.bounds.nbytes + self.leaves.nbytes + self.counts.nbytes

    def of(self, terms: Sequence[int]) -> tuple[Ints, Floats]:
        """Returns the leaves that have any of some terms, and how often; a leaf is repeated for each term it has."""
        if len(terms) == 1:  # usual, and several times faster so
            place = int(self.terms.searchsorted(np.uint32(terms[0])))
            has_it = place < len(self.terms) and int(self.terms[place]) == terms[0]
            part = slice(self.bounds[place], self.bounds[place + 1]) if has_it else slice(0)
            return self.leaves[part], self.counts[part]
        wanted = np.array(terms, dtype=np.uint32)
        number = np.searchsorted(self.terms, wanted)
        known = number[number < len(self.terms)]
        known = known[self.terms[known] == wanted[number < len(self.terms)]]
        parts = [slice(self.bounds[each], self.bounds[each + 1]) for each in known]
        if not parts:
            return self.leaves[:0], self.counts[:0]
        return np.concatenate([self.leaves[part] for part in parts]), np.concatenate(
            [self.counts[part] for part in parts]
        )

    def renumbered(self, numbers: Ints) -> "Postings":
        """Returns the postings with another number for each leaf, without the leaves whose number is below 0."""
        leaves = numbers[self.leaves]
        kept = leaves >= 0
        terms = np.repeat(self.terms, np.diff(self.bounds))
        return sorted_postings(terms[kept], leaves[kept], self.counts[kept])


def sorted_postings(terms: NDArray[np.uint32], leaves: Ints, counts: Floats) -> Postings:
    """Returns postings in any order sorted by term and leaf."""
    order = np.argsort(terms.astype(np.uint64) << np.uint64(32) | leaves.astype(np.uint64), kind="stable")
    terms = terms[order]
    first = np.flatnonzero(np.concatenate([[True], terms[1:] != terms[:-1]]) if len(terms) else np.zeros(0, bool))
    return Postings(terms[first], np.append(first, len(terms)).astype(np.int64), leaves[order], counts[order])


def joined_postings(parts: Sequence[Postings], shifts: Sequence[int]) -> Postings:
    """Returns the postings of several indexes as one; ``shifts`` are the numbers of the first leaf of each."""
    return sorted_postings(
        np.concatenate([np.repeat(each.terms, np.diff(each.bounds)) for each in parts]),
        np.concatenate([each.leaves + np.int32(shift) for each, shift in zip(parts, shifts, strict=True)]),
        np.concatenate([each.counts for each in parts]),
    )
