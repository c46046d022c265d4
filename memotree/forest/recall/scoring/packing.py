"""Packs the best leaves into a budget of tokens."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from memotree.forest.recall.scoring.leaf_index import LeafIndex

MOST_MISFITS: Final = 10
"""Packing ends after this many leaves that do not fit; the leaves after them score too low."""


def pack(total: NDArray[np.floating], leaf_index: LeafIndex, budget: float, around: int = 0) -> NDArray[np.int64]:
    """Returns the leaves to answer with, in document order; together they are within the budget.

    Leaves are taken by descending score; a leaf that does not fit any more is skipped. Leaves with a score of 0 are
    never taken.

    Args:
        total: The score of each leaf; 0 for a leaf that may not be taken.
        leaf_index: The leaves.
        budget: The most tokens.
        around: What each leaf takes beside its own tokens.
    """
    order = ranked(np.asarray(total, dtype=np.float64))
    edges = np.concatenate([[0.0], np.cumsum(leaf_index.tokens[order] + around, dtype=np.float64)])
    taken, used, place = [], 0.0, 0
    for _ in range(MOST_MISFITS):
        # Takes the longest run of leaves that fits from here on; the leaf after it does not fit.
        end = int(np.searchsorted(edges, budget - used + edges[place], side="right")) - 1
        end = max(end, place)
        taken.append(order[place:end])
        used += edges[end] - edges[place]
        place = end + 1
        if place >= len(order):
            break
    return np.sort(np.concatenate([order[:0], *taken]))


def ranked(total: NDArray[np.float64]) -> NDArray[np.int64]:
    """Returns the leaves with a score above 0, best first, ties in document order."""
    scored = np.flatnonzero(total > 0)
    return scored[np.argsort(-total[scored], kind="stable")]
