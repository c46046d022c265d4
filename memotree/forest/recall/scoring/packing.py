"""Packing: the best leaves that fit a budget of tokens."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from memotree.forest.recall.scoring.leaf_index import LeafIndex

MOST_MISFITS: Final = 10
"""So many leaves that no longer fit end the packing: what follows is too far from the best."""


def pack(total: NDArray[np.floating], leaf_index: LeafIndex, budget: float) -> NDArray[np.int64]:
    """The leaves to answer with, in document order; their tokens together are within the budget.

    Leaves are taken as they score, and one that does not fit any more is passed over. Leaves without any score are
    never taken.

    Args:
        total: The score of each leaf; 0 for one that may not be taken.
        leaf_index: The leaves.
        budget: Tokens.
    """
    ranked = _ranked(np.asarray(total, dtype=np.float64))
    edges = np.concatenate([[0.0], np.cumsum(leaf_index.tokens[ranked], dtype=np.float64)])
    taken, used, place = [], 0.0, 0
    for _ in range(MOST_MISFITS):
        # All that fit from here on, at once; the one behind them does not.
        end = int(np.searchsorted(edges, budget - used + edges[place], side="right")) - 1
        end = max(end, place)
        taken.append(ranked[place:end])
        used += edges[end] - edges[place]
        place = end + 1
        if place >= len(ranked):
            break
    return np.sort(np.concatenate([ranked[:0], *taken]))


def _ranked(total: NDArray[np.float64]) -> NDArray[np.int64]:
    """The leaves with a score, best first, equals in document order."""
    scored = np.flatnonzero(total > 0)
    return scored[np.argsort(-total[scored], kind="stable")]
