"""What the encoders in numpy share: batches of texts, and the normalisation of a layer."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]

Affine: TypeAlias = tuple[Floats, Floats]
"""A matrix and a vector: the product with the first, and then the sum with the second, elementwise for a norm."""


def batches(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Yields the places of the texts of each batch.

    Args:
        lengths: The tokens of each text.
        tokens: The most tokens of a batch of several texts; a longer text is a batch by itself.
    """
    batch, size = list[int](), 0
    for place, length in enumerate(lengths):
        if batch and size + length > tokens:
            yield batch
            batch, size = [], 0
        batch.append(place)
        size += length
    if batch:
        yield batch


def normalise(state: Floats, by: Affine, epsilon: float) -> Floats:
    """Normalises each row in place, and returns the matrix (Ba et al., "Layer Normalization", 2016)."""
    state -= state.mean(axis=1, keepdims=True)
    variance = np.einsum("ij,ij->i", state, state)[:, None] / np.float32(state.shape[1])
    state /= np.sqrt(variance + np.float32(epsilon))
    state *= by[0]
    state += by[1]
    return state
