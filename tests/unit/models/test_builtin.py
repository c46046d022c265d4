"""The built-in embedding: unit vectors, independent of the batch, without a network."""

import asyncio
import logging
import pickle
import re
import socket
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from memotree_storage.errors import UnavailableError

from memotree.models import builtin, wordpieces
from memotree.models.builtin import DIMENSIONS, EmbeddingUnavailableError, WordllamaEmbedder
from memotree.models.wordpieces import WordPieces

if TYPE_CHECKING:
    from memotree_storage.ports import Embedder


@pytest.fixture(scope="module")
def embedder() -> WordllamaEmbedder:
    return WordllamaEmbedder()


@pytest.mark.requirement("FOREST-13")
async def test_it_works_without_a_network_and_leaves_logging_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name in ((socket.socket, "connect"), (socket, "getaddrinfo")):
        monkeypatch.setattr(owner, name, lambda *_: pytest.fail("a connection was opened"))
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    fresh: Embedder = WordllamaEmbedder()
    vectors = await fresh.embed(["a knowledge tree", "\u77e5\u8bc6\u6811"])
    assert (vectors.shape, vectors.dtype) == ((2, DIMENSIONS), np.float32)
    assert (list(root.handlers), root.level) == before
    assert (fresh.model, fresh.dimensions) == ("wordllama-l2-256", DIMENSIONS)


async def test_every_text_gives_a_unit_vector_and_an_empty_one_a_fixed_one(embedder: WordllamaEmbedder) -> None:
    long = ["a" * 200_000, "word " * 100_000, "-" * 5000]
    vectors = await embedder.embed(["", " ", "\n", "\0", "\ud800", "\U0001f600", "\u0e01", "\ue000", *long, ""])
    assert np.isfinite(vectors).all()
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0].tolist() == vectors[-1].tolist() == [1.0] + [0.0] * (DIMENSIONS - 1)
    assert (await embedder.embed([])).shape == (0, DIMENSIONS)


async def test_a_vector_does_not_depend_on_its_batch(embedder: WordllamaEmbedder) -> None:
    texts = [f"text {number} " * (1 + number % 40) for number in range(700)] + ["long " * 6000]
    together = await embedder.embed(texts)
    for index in (0, 255, 256, 511, 699, 700):
        alone = await embedder.embed([texts[index]])
        assert alone[0].tolist() == together[index].tolist()


@pytest.mark.requirement("CANVAS-5")
async def test_texts_of_similar_meaning_are_near(embedder: WordllamaEmbedder) -> None:
    query, near, far, chinese, like, unlike = await embedder.embed(
        [
            *("How do I fix a broken car engine?", "Repairing the motor of an automobile"),
            *("A recipe for apple pie with cinnamon", "\u673a\u5668\u5b66\u4e60\u6a21\u578b"),
            *("\u6df1\u5ea6\u5b66\u4e60\u7684\u6a21\u578b", "\u4eca\u5929\u5929\u6c14\u5f88\u597d"),
        ]
    )
    assert query @ near > query @ far + 0.1
    assert chinese @ like > chinese @ unlike + 0.1


async def test_many_threads_share_one_load(embedder: WordllamaEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    loads = []
    loaded = embedder._load()[:2]
    monkeypatch.setattr(builtin, "_load_wordllama", lambda _: loads.append(threading.get_ident()) or loaded)
    fresh = WordllamaEmbedder()
    results = await asyncio.gather(*(fresh.embed([f"text {number}"]) for number in range(20)))
    assert len(loads) == 1
    assert len(results) == 20


@pytest.mark.requirement("STORE-7")
@pytest.mark.parametrize("size", builtin.SIZES)
async def test_vectors_of_each_size_tell_what_is_alike(size: int) -> None:
    shorter = pickle.loads(pickle.dumps(WordllamaEmbedder(size)))  # noqa: S301 - as it goes to a worker process
    assert (shorter.model, shorter.dimensions) == (f"wordllama-l2-{size}", size)
    vectors = await shorter.embed(["Roses need water.", "Flowers have to be watered.", "The engine of a car.", ""])
    assert vectors.shape == (4, size)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]


async def test_a_missing_model_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_dimensions: int) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(builtin, "_load_wordllama", fail)
    with pytest.raises(EmbeddingUnavailableError, match="install the package"):
        await WordllamaEmbedder().embed(["x"])
    assert issubclass(EmbeddingUnavailableError, UnavailableError)


# --- Word by word -----------------------------------------------------------------------------------------------------

_ODD = st.sampled_from([" ", "  ", "\n", "\t", "\u2581", "<s>", "</s>", "<unk>", "<0x0A>", "\ue000", "知识", "\xa0"])
_WORDS = st.sampled_from(["the", "tree", "of_knowledge", "Needs", "isn't", "3.14", "a,b", "na\xefve", "мир"])


@pytest.fixture(scope="module")
def tokenizer(embedder: WordllamaEmbedder) -> Any:
    return embedder._load()[0]


@example([" ", " a", "a ", "a  b", "a \n b", "\n\n", "a\n b\n"])
@given(st.lists(st.lists(_WORDS | _ODD | st.text(max_size=90), max_size=12).map("".join), max_size=3))
def test_the_tokens_of_single_words_equal_those_of_the_whole_text(tokenizer: Any, texts: list[str]) -> None:
    clean = [text.encode("utf-8", "replace").decode() for text in texts]
    whole = tokenizer.encode_batch_fast(clean, add_special_tokens=False)
    assert [list(ids) for ids in WordPieces(tokenizer).of(clean)] == [one.ids for one in whole]


def test_no_token_reaches_across_a_space_or_a_line_end(tokenizer: Any) -> None:
    assert [token for token in tokenizer.get_vocab() if re.search("[^\u2581]\u2581|\n| ", token)] == []


def test_the_cache_of_words_is_bounded_and_keeps_frequent_words(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wordpieces, "_MOST_WORDS", 10)
    pieces = WordPieces(tokenizer)
    read: list[str] = []
    known = pieces._known
    monkeypatch.setattr(known, "_read", lambda word: read.append(word) or pieces._read(word))
    pieces.of([" ".join(f"often word{number}" for number in range(95))])
    assert len(known) + len(known._earlier) <= 20
    assert len(read) == len(set(read)) == 96
