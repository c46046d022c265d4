"""The n-gram encoder in numpy: the same vectors as a plain computation of one token after another."""

from math import sqrt, tanh
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memotree.models import ngrams
from memotree.models.ngrams import NgramEncoder

WIDTH, NARROW, DEEP, PARTS, ROWS = 6, 4, 24, 5, 7
BEFORE = {2: 0, 3: 1, 5: 2}


def some_tensors() -> dict[str, Any]:
    chance = np.random.default_rng(7)

    def some(*shape: int) -> Any:
        return chance.normal(0, 0.5, shape).astype(np.float32)

    found = {f"q{part + 1}": chance.integers(0, 64, (ROWS, WIDTH), dtype=np.uint8) for part in range(PARTS)}
    found |= {"scale": np.abs(some(PARTS)) / 32, "lo": some(PARTS), "eps": np.float64(1e-12)}
    for size in BEFORE:
        found |= {f"proj{size}": some(WIDTH, NARROW), f"proj_b{size}": some(NARROW)}
        found |= {f"ln_g{size}": some(NARROW), f"ln_b{size}": some(NARROW)}
        for layer in (1, 2):
            found |= {f"w{layer}_{size}": some(size * NARROW, NARROW), f"b{layer}_{size}": some(NARROW)}
    features = WIDTH + len(BEFORE) * NARROW
    found |= {"ln_g": some(features), "ln_b": some(features), "cnn_W": some(features, WIDTH), "cnn_b": some(WIDTH)}
    shapes = {"d0": (WIDTH, DEEP), "p1": (WIDTH, DEEP), "d1": (DEEP, DEEP), "d2": (DEEP, WIDTH), "p3": (DEEP, WIDTH)}
    return found | {name: some(*shape) for name, shape in shapes.items()} | {"d3": some(WIDTH, WIDTH)}


TENSORS = some_tensors()
ENCODER = NgramEncoder(TENSORS)


def normalised(row: Any, gain: Any, shift: Any) -> Any:
    return (row - row.mean()) / sqrt(((row - row.mean()) ** 2).mean() + 1e-12) * gain + shift


def plainly(ids: list[int]) -> Any:
    """The vector of a text, token by token, in 64 bits."""
    t = {name: np.asarray(values, dtype=np.float64) for name, values in TENSORS.items()}
    words = [
        t[f"q{each % PARTS + 1}"][each // PARTS] * t["scale"][each % PARTS] + t["lo"][each % PARTS] for each in ids
    ]
    gain, shift = (np.concatenate([t[f"{name}{size}"] for size in BEFORE]) for name in ("ln_g", "ln_b"))
    projected = [
        normalised(np.concatenate([word @ t[f"proj{size}"] + t[f"proj_b{size}"] for size in BEFORE]), gain, shift)
        for word in words
    ]
    parts = [words]
    for number, (size, before) in enumerate(BEFORE.items()):
        states = [row[number * NARROW : (number + 1) * NARROW] for row in projected]
        for layer in (1, 2):
            around = [np.zeros(NARROW)] * before + states + [np.zeros(NARROW)] * (size - 1 - before)
            seen = [np.concatenate(around[place : place + size]) for place in range(len(ids))]
            weights, bias = t[f"w{layer}_{size}"], t[f"b{layer}_{size}"]
            states = [state + np.maximum(row @ weights + bias, 0) for state, row in zip(states, seen, strict=True)]
        parts.append(states)
    features = [normalised(np.concatenate(rows), t["ln_g"], t["ln_b"]) for rows in zip(*parts, strict=True)]
    mean = sum(row @ t["cnn_W"] + t["cnn_b"] for row in features) / sqrt(len(ids))
    second = np.maximum(mean @ t["p1"] + np.maximum(mean @ t["d0"], 0) @ t["d1"], 0)
    top = second @ t["p3"] + np.maximum(second @ t["d2"], 0) @ t["d3"]
    found = np.array([tanh(value) for value in top])
    return found / sqrt(max(found @ found, 1e-12))


TEXTS = st.lists(st.lists(st.integers(0, PARTS * ROWS - 1), min_size=1, max_size=9), min_size=1, max_size=6)


@given(TEXTS)
def test_each_vector_is_that_of_its_text_alone_computed_plainly(texts: list[list[int]]) -> None:
    np.testing.assert_allclose(ENCODER.encode(texts), [plainly(ids) for ids in texts], atol=1e-4)


def test_batches_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [[number, 3, 1] for number in range(30)]
    together = ENCODER.encode(texts)
    monkeypatch.setattr(ngrams, "BATCH_TOKENS", 4)
    np.testing.assert_allclose(ENCODER.encode(texts), together, atol=1e-5)
    assert ENCODER.dimensions == WIDTH
