"""Blocks of leaf features: rows chosen from a block, and blocks of features that belong to no committed version."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from memotree_storage.index.leaf_features import LeafFeatureBlock, LeafFeatures
from numpy.typing import NDArray

_NO_VERSION: Final = -1


def picked(block: LeafFeatureBlock, rows: Sequence[int] | NDArray[np.int64]) -> LeafFeatureBlock:
    """Returns a new block with the given rows, in the given order."""
    chosen = np.asarray(rows, dtype=np.int64)
    sizes = block.offsets[chosen + 1] - block.offsets[chosen]
    offsets = np.zeros(len(chosen) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    # The source index of each term: the start of its row, repeated for each term, plus its offset within the row.
    source = np.repeat(block.offsets[chosen] - offsets[:-1], sizes) + np.arange(offsets[-1])
    return LeafFeatureBlock(
        version_ids=block.version_ids[chosen],
        tokens=block.tokens[chosen],
        lengths=block.lengths[chosen],
        offsets=offsets,
        terms=block.terms[source],
        counts=block.counts[source],
        vectors=block.vectors[chosen],
    )


def block_of(features: Sequence[LeafFeatures], dimensions: int) -> LeafFeatureBlock:
    """Returns a block of features that belong to no committed version."""
    offsets = np.zeros(len(features) + 1, dtype=np.int64)
    np.cumsum([len(leaf.terms) for leaf in features], out=offsets[1:])
    return LeafFeatureBlock(
        version_ids=np.full(len(features), _NO_VERSION, dtype=np.int64),
        tokens=np.array([leaf.tokens for leaf in features], dtype=np.int32),
        lengths=np.array([leaf.length for leaf in features], dtype=np.int32),
        offsets=offsets,
        terms=np.concatenate([np.zeros(0, dtype=np.uint32), *(leaf.terms for leaf in features)]),
        counts=np.concatenate([np.zeros(0, dtype=np.uint16), *(leaf.counts for leaf in features)]),
        vectors=np.array([leaf.vector for leaf in features], dtype=np.float32).reshape(len(features), dimensions),
    )


def joined_blocks(one: LeafFeatureBlock, other: LeafFeatureBlock) -> LeafFeatureBlock:
    """Returns a block with the rows of both."""
    if not len(one.version_ids):
        return other
    return LeafFeatureBlock(
        version_ids=np.concatenate([one.version_ids, other.version_ids]),
        tokens=np.concatenate([one.tokens, other.tokens]),
        lengths=np.concatenate([one.lengths, other.lengths]),
        offsets=np.concatenate([one.offsets[:-1], one.offsets[-1] + other.offsets]),
        terms=np.concatenate([one.terms, other.terms]),
        counts=np.concatenate([one.counts, other.counts]),
        vectors=np.concatenate([one.vectors, other.vectors]),
    )
