"""Computes the windows around leaves, the tree nodes that contain them, and the topic reach of documents, by scale.

A scale is a size in tokens. All intervals are half-open ranges of whole leaves in document order.
"""

from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

SCALES: Final = (30.0, 120.0, 300.0, 700.0, 1500.0, 2500.0)
"""Sizes of windows and nodes, in tokens; at the first scale each leaf is a window of its own."""

TYPICAL_REACH: Final = 150.0
"""Over how many tokens a topic lasts, if it cannot be estimated."""

_LAGS: Final = (0.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0)
"""Borders of the distance bands, in tokens, over which the similarity of leaves is averaged."""

MOST_SAMPLED: Final = 1024
"""The leaves of a document that its topic reach is estimated from."""

SMALLEST: Final = 1e-6
"""The least norm of an interval's vector, so that none is divided by zero."""

Floats: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.int32]


def windows(tokens: Floats, borders: NDArray[np.int64]) -> tuple[Ints, Ints]:
    """Returns for each scale and leaf the leaves that lie within half the scale of the leaf's middle, itself included.

    At the first scale a window is the leaf alone, so that the right leaf stands out even among leaves of three words.
    """
    ends = np.cumsum(tokens, dtype=np.float64)
    edges = np.concatenate([[0.0], ends])
    middle = edges[:-1] + tokens / 2.0
    place = np.arange(len(tokens))
    home = np.searchsorted(borders, place, side="right") - 1
    low, high = np.zeros((2, len(SCALES), len(tokens)), dtype=np.int32)
    low[0], high[0] = place, place + 1
    for number, scale in enumerate(SCALES[1:], 1):
        first = np.searchsorted(edges, middle - scale / 2, side="left")
        behind = np.searchsorted(edges, middle + scale / 2, side="right") - 1
        low[number] = np.maximum(np.minimum(first, place), borders[home])
        high[number] = np.minimum(np.maximum(behind, place + 1), borders[home + 1])
    return low, high


def in_trees(spans: NDArray[np.int64], borders: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Returns for each document whether any of the tree nodes, given as ranges of leaves, is in it."""
    found = np.zeros(max(len(borders) - 1, 0), dtype=bool)
    found[np.searchsorted(borders, spans[:, 0], side="right") - 1] = True
    return found


def nodes(
    tokens: Floats, spans: NDArray[np.int64], in_tree: NDArray[np.bool_], low: Ints, high: Ints
) -> tuple[Ints, Ints]:
    """Returns for each scale and leaf the largest node that contains the leaf and is not larger than the scale.

    The window around the leaf is used instead if the node has less than half of its tokens, or if the document has no
    tree.

    Args:
        tokens: The tokens of each leaf.
        spans: The nodes as ranges of leaves, shape (nodes, 2).
        in_tree: For each leaf whether its document has a tree.
        low: First leaf of the window around each leaf, by scale.
        high: The leaf after the last one of that window.
    """
    node_low, node_high = low.copy(), high.copy()
    leaves = np.flatnonzero(in_tree)
    node_low[:, leaves], node_high[:, leaves] = leaves, leaves + 1
    edges = np.concatenate([[0.0], np.cumsum(tokens, dtype=np.float64)])
    spans = spans[np.lexsort((-spans[:, 1], spans[:, 0]))]
    sizes = edges[spans[:, 1]] - edges[spans[:, 0]]
    for number, scale in enumerate(SCALES[1:], 1):
        fitting = spans[sizes <= scale]
        # Nodes are nested or disjoint, and sorted by start: a node that ends no later than an earlier one is inside it.
        furthest = np.maximum.accumulate(fitting[:, 1]) if len(fitting) else fitting[:, 1]
        top = fitting[np.concatenate([[True], fitting[1:, 1] > furthest[:-1]]) if len(fitting) else slice(0)]
        width = top[:, 1] - top[:, 0]
        inside = np.repeat(top[:, 0] - np.cumsum(width) + width, width) + np.arange(width.sum())
        node_low[number, inside] = np.repeat(top[:, 0], width)
        node_high[number, inside] = np.repeat(top[:, 1], width)
        # If merging stopped early, a node is too small for this scale: below half of the window, the window is used.
        poor = 2 * (edges[node_high[number]] - edges[node_low[number]]) < edges[high[number]] - edges[low[number]]
        node_low[number, poor], node_high[number, poor] = low[number, poor], high[number, poor]
    return node_low, node_high


def norms(vectors: Floats, lengths: Floats, low: Ints, high: Ints) -> Floats:
    """Returns the norms of the vectors of intervals: the sums of the leaves' vectors times their lengths.

    The prefix sums are of 64 bits, so that the norm of an interval does not depend on what stands before it.

    Args:
        vectors: The vectors of leaves.
        lengths: The number of words of these leaves.
        low: First leaf of intervals, by scale.
        high: The leaf after the last one.
    """
    weighted = vectors.astype(np.float64) * np.maximum(lengths, 1)[:, None]
    sums = np.concatenate([np.zeros_like(weighted[:1]), np.cumsum(weighted, axis=0)])
    found = np.zeros(low.shape, dtype=np.float32)
    for number in range(len(low)):
        inside = sums[high[number]] - sums[low[number]]
        found[number] = np.sqrt(np.einsum("ij,ij->i", inside, inside))
    return np.maximum(found, SMALLEST)


def reach(vectors: NDArray[np.float32], lengths: Floats, tokens: Floats) -> float:
    """Returns over how many tokens a topic of a document lasts: the integral of the leaves' similarity over distance.

    This is the autocovariance of the leaves' vectors about their mean, in bands of distance, divided by that of near
    leaves, and integrated: the integral scale of a turbulent flow (Taylor, "Diffusion by continuous movements", 1921),
    applied to texts. The first leaves of a long document are looked at: they are sample enough, and a change to the
    document does not cost what the document is long.
    """
    vectors, lengths, tokens = vectors[:MOST_SAMPLED], lengths[:MOST_SAMPLED], tokens[:MOST_SAMPLED]
    total = float(lengths.sum())
    if total <= 0:
        return TYPICAL_REACH
    around = (vectors - (lengths @ vectors) / total) * lengths[:, None]
    sums = np.concatenate([np.zeros_like(around[:1]), np.cumsum(around, axis=0)])
    words = np.concatenate([[0.0], np.cumsum(lengths, dtype=np.float64)])
    begin = np.concatenate([[0.0], np.cumsum(tokens, dtype=np.float64)])[:-1]
    place, bands = np.arange(len(tokens)), []
    for near, far in pairwise(_LAGS):
        first = np.maximum(np.searchsorted(begin, begin + near, side="right"), place + 1)
        behind = np.maximum(np.searchsorted(begin, begin + far, side="right"), first)
        pairs = float(lengths @ (words[behind] - words[first]))
        covariance = float(np.einsum("ij,ij->", around, sums[behind] - sums[first]))
        bands.append(max(covariance / pairs, 0.0) if pairs > 0 else 0.0)
    nearest = max(bands[:2])
    return float(np.dot(bands, np.diff(_LAGS)) / nearest) if nearest > 0 else TYPICAL_REACH
