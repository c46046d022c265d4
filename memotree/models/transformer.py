"""Computes the vectors of a small BERT encoder with numpy alone, from its weights.

A framework for such models takes hundreds of megabytes, with its libraries for graphics cards several gigabytes; the
encoder itself is a dozen matrix products per layer (Devlin et al., "BERT", 2019). The vector of a text is the mean of
its tokens' vectors in the last layer (Reimers and Gurevych, "Sentence-BERT", 2019).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final

import numpy as np
from memotree_storage.ports import Vectors

from memotree.models.layers import Affine, Floats, batches, normalise

BATCH_TOKENS: Final = 2_048
"""The most tokens that are computed together: about 40 MB of working memory, and half a second on one core."""

_ROWS: Final = 32
"""The number of tokens whose activations are computed together, so that they stay in the processor's cache."""

_EPSILON: Final = 1e-12
_ERF_SCALE: Final = 0.3275911
_ERF: Final = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
"""The constants of formula 7.1.26 for the error function in Abramowitz and Stegun, "Handbook of Mathematical
Functions", 1964; its greatest error is 1.5e-7."""


@dataclass(frozen=True, slots=True)
class _Layer:
    attend: Affine
    mix: Affine
    mix_norm: Affine
    widen: Affine
    narrow: Affine
    narrow_norm: Affine


class Encoder:
    """A BERT encoder with mean pooling; safe to share between threads.

    Args:
        tensors: The weights in 32-bit floats, by the names that the `transformers` library gives them.
        layers: The number of layers.
        heads: The number of attention heads; the width of the model must be a multiple of it.
    """

    def __init__(self, tensors: Mapping[str, Floats], layers: int, heads: int) -> None:
        self._words = tensors["embeddings.word_embeddings.weight"]
        # Every text is a first segment, so the vector of that segment is the same for every token.
        segment = tensors["embeddings.token_type_embeddings.weight"][0]
        self._positions = tensors["embeddings.position_embeddings.weight"] + segment
        self._norm = _norm_of(tensors, "embeddings.LayerNorm")
        self._layers = [_layer(tensors, f"encoder.layer.{number}.", heads) for number in range(layers)]
        self._heads = heads

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return int(self._words.shape[1])

    def encode(self, texts: Sequence[Sequence[int]]) -> Vectors:
        """Returns one unit vector per text, in order; shape (texts, dimensions).

        The numbers of a vector differ in the last digits (about 1e-7) between one batch and another.

        Args:
            texts: The token ids of each text with those of its begin and end; at least one, and no more than the model
                has positions.
        """
        found = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for places in batches([len(ids) for ids in texts], BATCH_TOKENS):
            found[places] = self._encode([texts[place] for place in places])
        return found

    def _encode(self, texts: Sequence[Sequence[int]]) -> Vectors:
        """Returns the vectors of one batch. The texts stand in one matrix, one row per token, without padding."""
        ends = np.cumsum([len(ids) for ids in texts])
        spans = [slice(end - len(ids), end) for end, ids in zip(ends.tolist(), texts, strict=True)]
        state = self._words[np.concatenate([np.asarray(ids, dtype=np.int64) for ids in texts])]
        for span in spans:
            state[span] += self._positions[: span.stop - span.start]
        normalise(state, self._norm, _EPSILON)
        for layer in self._layers:
            mixed = _apply(self._attend(_apply(state, layer.attend), spans), layer.mix)
            mixed += state
            state = normalise(mixed, layer.mix_norm, _EPSILON)
            wide = _apply(state, layer.widen)
            for start in range(0, len(wide), _ROWS):
                _gelu(wide[start : start + _ROWS])
            narrow = _apply(wide, layer.narrow)
            narrow += state
            state = normalise(narrow, layer.narrow_norm, _EPSILON)
        means = np.stack([state[span].mean(axis=0) for span in spans])
        unit: Vectors = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), np.float32(_EPSILON))
        return unit

    def _attend(self, projected: Floats, spans: Sequence[slice]) -> Floats:
        """Returns what each token takes from the tokens of its text; ``projected`` has queries, keys and values."""
        width = projected.shape[1] // 3
        found = np.empty((len(projected), width), dtype=np.float32)
        for span in spans:
            parts = projected[span].reshape(-1, 3, self._heads, width // self._heads)
            queries, keys, values = parts.transpose(1, 2, 0, 3)
            weights = queries @ keys.transpose(0, 2, 1)
            weights -= weights.max(axis=-1, keepdims=True)
            np.exp(weights, out=weights)
            weights /= weights.sum(axis=-1, keepdims=True)
            found[span] = (weights @ values).transpose(1, 0, 2).reshape(-1, width)
        return found


def _layer(tensors: Mapping[str, Floats], prefix: str, heads: int) -> _Layer:
    attend = [_affine_of(tensors, f"{prefix}attention.self.{name}") for name in ("query", "key", "value")]
    # The scale of the attention is applied once to the weights of the queries, not to the result for every text.
    scale = np.float32(1.0 / sqrt(attend[0][0].shape[1] / heads))
    attend[0] = (attend[0][0] * scale, attend[0][1] * scale)
    return _Layer(
        attend=(np.concatenate([each[0] for each in attend], axis=1), np.concatenate([each[1] for each in attend])),
        mix=_affine_of(tensors, f"{prefix}attention.output.dense"),
        mix_norm=_norm_of(tensors, f"{prefix}attention.output.LayerNorm"),
        widen=_affine_of(tensors, f"{prefix}intermediate.dense"),
        narrow=_affine_of(tensors, f"{prefix}output.dense"),
        narrow_norm=_norm_of(tensors, f"{prefix}output.LayerNorm"),
    )


def _affine_of(tensors: Mapping[str, Floats], name: str) -> Affine:
    return np.ascontiguousarray(tensors[f"{name}.weight"].T), tensors[f"{name}.bias"]


def _norm_of(tensors: Mapping[str, Floats], name: str) -> Affine:
    return tensors[f"{name}.weight"], tensors[f"{name}.bias"]


def _apply(state: Floats, by: Affine) -> Floats:
    found: Floats = state @ by[0]
    found += by[1]
    return found


def _gelu(values: Floats) -> None:
    """Multiplies each value in place by the share of a normal distribution below it (Hendrycks and Gimpel, 2016).

    The share above the absolute value is half of one minus the error function; it is what a positive value loses, and
    what a negative one keeps.
    """
    absolute = np.abs(values)
    above = absolute * np.float32(sqrt(0.5))
    near = 1 / (1 + np.float32(_ERF_SCALE) * above)
    np.multiply(above, above, out=above)
    np.negative(above, out=above)
    np.exp(above, out=above)
    series = np.zeros_like(near)
    for constant in _ERF:
        series += np.float32(constant)
        series *= near
    above *= series
    above *= np.float32(0.5)
    above *= absolute
    np.maximum(values, 0, out=values)
    values -= above
