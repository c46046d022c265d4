"""The encoder in numpy: the same vectors as a plain computation of one number after another."""

from math import erf, exp, sqrt
from typing import Any

import numpy as np
import pytest

from memotree.models import transformer
from memotree.models.transformer import Encoder

LAYERS, HEADS, WIDTH, WIDE, WORDS, POSITIONS = 2, 2, 8, 16, 50, 40


@pytest.fixture(scope="module")
def tensors() -> dict[str, Any]:
    chance = np.random.default_rng(7)

    def some(*shape: int) -> Any:
        return chance.normal(0, 0.5, shape).astype(np.float32)

    rows = {"word": WORDS, "position": POSITIONS, "token_type": 2}
    found = {f"embeddings.{name}_embeddings.weight": some(count, WIDTH) for name, count in rows.items()}
    found |= {f"embeddings.LayerNorm.{name}": some(WIDTH) for name in ("weight", "bias")}
    square = ("self.query", "self.key", "self.value", "output.dense")
    shapes: dict[str, tuple[int, ...]] = {f"attention.{name}": (WIDTH, WIDTH) for name in square}
    shapes |= {"intermediate.dense": (WIDE, WIDTH), "output.dense": (WIDTH, WIDE)}
    shapes |= dict.fromkeys(("attention.output.LayerNorm", "output.LayerNorm"), (WIDTH,))
    for number in range(LAYERS):
        for name, shape in shapes.items():
            found[f"encoder.layer.{number}.{name}.weight"] = some(*shape)
            found[f"encoder.layer.{number}.{name}.bias"] = some(shape[0])
    return found


@pytest.fixture(scope="module")
def encoder(tensors: dict[str, Any]) -> Encoder:
    return Encoder(tensors, LAYERS, HEADS)


def plainly(tensors: dict[str, Any], ids: list[int]) -> Any:
    """The vector of a text, computed token by token in double precision."""

    def applied(name: str, row: Any) -> Any:
        return tensors[f"{name}.weight"].astype(float) @ row + tensors[f"{name}.bias"]

    def normalised(name: str, row: Any) -> Any:
        centred = row - row.mean()
        return centred / sqrt((centred**2).mean() + 1e-12) * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]

    segment = tensors["embeddings.token_type_embeddings.weight"][0].astype(float)
    rows = [
        normalised(
            "embeddings.LayerNorm",
            tensors["embeddings.word_embeddings.weight"][token]
            + tensors["embeddings.position_embeddings.weight"][place]
            + segment,
        )
        for place, token in enumerate(ids)
    ]
    size = WIDTH // HEADS
    for number in range(LAYERS):
        name = f"encoder.layer.{number}"
        queries, keys, values = (
            [applied(f"{name}.attention.self.{kind}", row) for row in rows] for kind in ("query", "key", "value")
        )
        after = []
        for place, row in enumerate(rows):
            mixed = np.zeros(WIDTH)
            for head in range(HEADS):
                part = slice(head * size, (head + 1) * size)
                weights = [exp(queries[place][part] @ key[part] / sqrt(size)) for key in keys]
                for weight, value in zip(weights, values, strict=True):
                    mixed[part] += weight / sum(weights) * value[part]
            row_mixed = normalised(
                f"{name}.attention.output.LayerNorm", applied(f"{name}.attention.output.dense", mixed) + row
            )
            wide = np.array(
                [each * 0.5 * (1 + erf(each / sqrt(2))) for each in applied(f"{name}.intermediate.dense", row_mixed)]
            )
            after.append(normalised(f"{name}.output.LayerNorm", applied(f"{name}.output.dense", wide) + row_mixed))
        rows = after
    mean = np.mean(rows, axis=0)
    return mean / np.linalg.norm(mean)


def texts(count: int) -> list[list[int]]:
    chance = np.random.default_rng(count)
    return [chance.integers(0, WORDS, chance.integers(1, POSITIONS + 1)).tolist() for _ in range(count)]


def test_the_vectors_equal_those_of_a_plain_computation(encoder: Encoder, tensors: dict[str, Any]) -> None:
    asked = texts(12)
    found = encoder.encode(asked)
    assert (found.shape, found.dtype, encoder.dimensions) == ((12, WIDTH), np.float32, WIDTH)
    np.testing.assert_allclose(found, [plainly(tensors, ids) for ids in asked], atol=1e-5)


def test_a_vector_depends_on_its_batch_in_the_last_digits_only(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = texts(40)
    together = encoder.encode(asked)
    monkeypatch.setattr(transformer, "BATCH_TOKENS", 1)
    np.testing.assert_allclose(encoder.encode(asked), together, atol=1e-5)
    assert encoder.encode([]).shape == (0, WIDTH)


def test_the_activation_is_that_of_a_normal_distribution() -> None:
    values = np.linspace(-9, 9, 2_001, dtype=np.float32)
    should = [value * 0.5 * (1 + erf(value / sqrt(2))) for value in values.tolist()]
    transformer._gelu(values)
    np.testing.assert_allclose(values, should, atol=1e-6)
