"""Computes the vectors of the Universal Sentence Encoder with numpy alone, from its weights.

The encoder is a deep averaging network (Iyyer et al., "Deep Unordered Composition Rivals Syntactic Methods", 2015) over
token vectors and over convolutions of two, three and five neighbouring tokens, trained in sixteen languages at once
(Yang et al., "Multilingual Universal Sentence Encoder for Semantic Retrieval", 2019).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from memotree_storage.ports import Vectors
from numpy.typing import NDArray

from memotree.models.layers import Affine, Floats, batches, normalise

BATCH_TOKENS: Final = 1_024
"""The most tokens that are computed together: about 20 MB of working memory."""

_REACHES: Final = {2: 0, 3: 1, 5: 2}
"""How many tokens a convolution sees, and how many of them stand before its own."""


@dataclass(frozen=True, slots=True)
class _Convolution:
    """Two layers over a token and its neighbours; each adds what it finds to what it was given."""

    before: int
    layers: Sequence[Affine]


class NgramEncoder:
    """The encoder; safe to share between threads.

    Args:
        tensors: The weights by their names in the package. Token vectors are bytes, in as many tables ``q1``, ``q2``, …
            as there are scales; token number n stands in table n modulo their number.
    """

    def __init__(self, tensors: Mapping[str, NDArray[np.float32]]) -> None:
        self._scale, self._least = tensors["scale"], tensors["lo"]
        rows, width = tensors["q1"].shape
        # Kept as bytes, 65 MB; the vectors as floats would take four times as much.
        self._tokens = np.empty((rows * len(self._scale), width), dtype=np.uint8)
        for number in range(len(self._scale)):
            self._tokens[number :: len(self._scale)] = tensors[f"q{number + 1}"]
        self._project = np.concatenate([tensors[f"proj{size}"] for size in _REACHES], axis=1)
        self._shift = np.concatenate([tensors[f"proj_b{size}"] for size in _REACHES])
        gain, shift = (np.concatenate([tensors[f"{name}{size}"] for size in _REACHES]) for name in ("ln_g", "ln_b"))
        self._project_norm = (gain, shift)
        self._convolutions = [
            _Convolution(before, [(tensors[f"w{layer}_{size}"], tensors[f"b{layer}_{size}"]) for layer in (1, 2)])
            for size, before in _REACHES.items()
        ]
        self._norm = (tensors["ln_g"], tensors["ln_b"])
        self._mean = (tensors["cnn_W"], tensors["cnn_b"])
        self._deep = {name: tensors[name] for name in ("d0", "d1", "d2", "d3", "p1", "p3")}
        self._epsilon = float(tensors["eps"])

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return int(self._deep["d3"].shape[1])

    def encode(self, texts: Sequence[Sequence[int]]) -> Vectors:
        """Returns one unit vector per text, in order; shape (texts, dimensions).

        The numbers of a vector differ in the last digits (about 1e-7) between one batch and another.

        Args:
            texts: The token ids of each text with those of its begin and end; at least one.
        """
        found = np.empty((len(texts), self.dimensions), dtype=np.float32)
        for batch in batches([len(ids) for ids in texts], BATCH_TOKENS):
            found[batch] = self._encode([texts[place] for place in batch])
        return found

    def _encode(self, texts: Sequence[Sequence[int]]) -> Vectors:
        """Returns the vectors of one batch. The texts stand in one matrix, one row per token, without padding."""
        lengths = np.array([len(ids) for ids in texts], dtype=np.int64)
        ids = np.concatenate([np.asarray(text, dtype=np.int64) for text in texts])
        part = ids % len(self._scale)
        words = self._tokens[ids] * self._scale[part, None] + self._least[part, None]
        projected = normalise(words @ self._project + self._shift, self._project_norm, self._epsilon)
        home = np.repeat(np.arange(len(texts)), lengths)
        found, width = [words], self._convolutions[0].layers[0][0].shape[1]
        for number, convolution in enumerate(self._convolutions):
            state = projected[:, number * width : (number + 1) * width]
            for weights, shift in convolution.layers:
                seen = _neighbours(state, home, convolution.before, len(weights) // width)
                state = state + np.maximum(seen @ weights + shift, 0)
            found.append(state)
        features = normalise(np.concatenate(found, axis=1), self._norm, self._epsilon)
        mean: Floats = np.add.reduceat(features, np.cumsum(lengths) - lengths, axis=0) @ self._mean[0]
        long = lengths.astype(np.float32)[:, None]
        mean += long * self._mean[1]
        mean /= np.sqrt(long)
        return self._top(mean)

    def _top(self, mean: Floats) -> Vectors:
        """Returns the vectors of texts by the sums of their tokens, divided by the square root of their number."""
        deep = self._deep
        first = np.maximum(mean @ deep["d0"], 0)
        second = np.maximum(mean @ deep["p1"] + first @ deep["d1"], 0)
        third = np.maximum(second @ deep["d2"], 0)
        found = np.tanh(second @ deep["p3"] + third @ deep["d3"])
        unit: Vectors = found / np.sqrt(
            np.maximum((found * found).sum(axis=1, keepdims=True), np.float32(self._epsilon))
        )
        return unit


def _neighbours(state: Floats, home: NDArray[np.int64], before: int, size: int) -> Floats:
    """Returns for each token its neighbours' values side by side; 0 for what would stand in another text."""
    count, width = state.shape
    found = np.zeros((count, size, width), dtype=np.float32)
    for place in range(size):
        step = place - before
        own = slice(max(0, -step), count - max(0, step))
        other = slice(max(0, step), count - max(0, -step))
        if own.start < own.stop:
            found[own, place] = np.where((home[own] == home[other])[:, None], state[other], 0)
    return found.reshape(count, size * width)
