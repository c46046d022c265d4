"""The local embedding models with their weights: the vectors that they are known for, of any text."""

import socket
from typing import Any

import numpy as np
import pytest

from memotree.models.embeddings import LOCAL
from memotree.models.local_model import Encode
from memotree.settings import LOCAL_EMBEDDING_MODELS


@pytest.fixture(scope="module")
def minilm() -> Encode:
    return LOCAL["all-minilm-l6-v2"].read()


@pytest.fixture(scope="module")
def universal() -> Encode:
    return LOCAL["use-multilingual-3"].read()


@pytest.fixture(params=LOCAL_EMBEDDING_MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def encode(name: str, minilm: Encode, universal: Encode) -> Encode:
    return {"all-minilm-l6-v2": minilm, "use-multilingual-3": universal}[name]


@pytest.fixture(autouse=True)
def no_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        pytest.fail("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def test_english_cosines_are_those_that_minilm_is_known_for(minilm: Encode) -> None:
    persons = ["That is a happy person", "That is a very happy person"]
    machines = ["How do I fix a broken car engine?", "Repairing the motor of an automobile"]
    happy, very_happy, engine, motor, pie = minilm([*persons, *machines, "A recipe for apple pie with cinnamon"])
    assert happy @ very_happy == pytest.approx(0.943, abs=0.001)
    assert engine @ motor > engine @ pie + 0.5, "the words are different and the meaning is the same"


def test_the_universal_model_has_the_cosines_of_its_package_and_compares_across_languages(universal: Encode) -> None:
    """The first figure is that of the package's README; there its own code computes it."""
    short, long = universal(["gato preto correu", "o gato preto correu pelo jardim"])
    assert short @ long == pytest.approx(0.82, abs=0.005)
    same = [
        "The cat sleeps on the sofa.",
        "Die Katze schläft auf dem Sofa.",
        "猫在沙发上睡觉。",
        "القطة تنام على الأريكة.",
    ]
    other = [
        "Taxes were raised again.",
        "Die Steuern wurden wieder erhöht.",
        "税收又提高了。",
        "رفعت الضرائب مرة أخرى.",
    ]
    vectors = universal([*same, *other])
    cosines = vectors @ vectors.T
    assert cosines[:4, :4].min() > 0.6
    assert cosines[4:, 4:].min() > 0.5
    assert cosines[:4, 4:].max() < 0.2


def test_every_text_gives_a_unit_vector_that_hardly_depends_on_its_batch(encode: Encode, name: str) -> None:
    texts = [
        "",
        " ",
        "\0",
        "?",
        "\U0001f600",
        "\ue000",
        "\u77e5\u8bc6\u6811",
        "a" * 20_000,
        "word " * 10_000,
        "<s></s>",
    ]
    vectors = encode(texts)
    assert (vectors.shape, vectors.dtype) == ((len(texts), LOCAL[name].dimensions), np.float32)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(np.concatenate([encode([text]) for text in texts]), vectors, atol=1e-5)


@pytest.mark.parametrize(("name", "words"), [("all-minilm-l6-v2", 254), ("use-multilingual-3", 510)])
def test_of_a_long_text_only_the_beginning_counts(encode: Encode, words: int) -> None:
    # Each word is one token; the begin and the end are two.
    long, same, shorter = encode(
        ["tree " * words + "river " * 50, "tree " * words + "stone", "stone " + "tree " * (words - 1)]
    )
    np.testing.assert_allclose(long, same, atol=1e-5)
    assert np.abs(long - shorter).max() > 1e-4
