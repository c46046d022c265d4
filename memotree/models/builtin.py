"""The built-in embedding model: the mean of WordLlama's token vectors.

It works well for English, and for Chinese by the overlap of characters. The package contains its weights (256
dimensions, 16 MB), so nothing is downloaded. We use its tokenizer and its matrix but average ourselves, because the
package pads every text of a batch to the longest one, which needs gigabytes for one long text. Also, a vector computed
here does not depend on its batch.
"""

import asyncio
import importlib
import logging
import threading
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeGuard

import numpy as np
from memotree_storage.errors import UnavailableError
from memotree_storage.ports import Embedder, Vectors
from numpy.typing import NDArray

from memotree.models.wordpieces import TokenIds, WordPieces

DIMENSIONS: Final = 256

SIZES: Final = (64, 128, DIMENSIONS)
"""The lengths of vectors that the model gives: it was trained so that the beginning of a vector is one as well."""

NAME: Final = "wordllama-l2"

MAX_CHARS: Final = 32_768
"""Only this many characters of a text are embedded; an average over more would add nothing."""

_BATCH_TEXTS: Final = 256
_BATCH_CHARS: Final = 1 << 17  # bounds the working memory to about 128 MiB
_SMALLEST_NORM: Final = 1e-6
_WORD_BEGINS: Final = "\u2581"
"""The character that the tokenizer writes for the space before a word."""


class EmbeddingUnavailableError(UnavailableError):
    """The built-in model cannot be loaded."""

    reason = "EMBEDDING_UNAVAILABLE"


class WordllamaEmbedder:
    """The built-in `Embedder`. Loads its weights at the first call, in a thread; safe to share between threads.

    Args:
        dimensions: The length of its vectors, one of `SIZES`.
    """

    def __init__(self, dimensions: int = DIMENSIONS) -> None:
        self._dimensions = dimensions
        self._lock = threading.Lock()
        self._loaded: tuple[Any, NDArray[np.float32], WordPieces] | None = None

    def __reduce__(self) -> tuple[type, tuple[int]]:
        """Pickles the model as itself, without weights: a copy in another process loads them there."""
        return type(self), (self._dimensions,)

    @property
    def model(self) -> str:
        """The name of the model."""
        return f"{NAME}-{self._dimensions}"

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return self._dimensions

    @property
    def is_slow(self) -> bool:
        """False: a text takes less than a millisecond."""
        return False

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Returns one unit vector per text, in order; shape (texts, dimensions).

        A text without any known token (such as an empty one) gives the unit vector of the first axis.

        Raises:
            EmbeddingUnavailableError: If the weights cannot be loaded.
        """
        if not texts:
            return np.zeros((0, self._dimensions), dtype=np.float32)
        return await asyncio.to_thread(self.embed_now, list(texts))

    def embed_now(self, texts: Sequence[str]) -> Vectors:
        """Does the same as `embed`, in the calling thread."""
        _, matrix, pieces = self._load()
        vectors = np.zeros((len(texts), self._dimensions), dtype=np.float32)
        for start, batch in _batches(texts):
            for offset, ids in enumerate(pieces.of(batch), start):
                vectors[offset] = _mean(matrix, ids)
        return vectors

    def vocabulary(self) -> tuple[list[str], Vectors]:
        """Returns the lower-case words that are a single token of the model, and their vectors; in the calling thread.

        Capitalised words are left out: most are names, and the nearest words of a name are other names.

        Raises:
            EmbeddingUnavailableError: If the weights cannot be loaded.
        """
        tokenizer, matrix, _ = self._load()
        found: dict[str, int] = {}
        for token, place in sorted(tokenizer.get_vocab().items()):
            word = token.removeprefix(_WORD_BEGINS)
            if token.startswith(_WORD_BEGINS) and word.isalpha() and word == word.lower() and place < len(matrix):
                found[word] = place
        return list(found), matrix[list(found.values())]

    def _load(self) -> tuple[Any, NDArray[np.float32], WordPieces]:
        with self._lock:
            if self._loaded is None:
                try:
                    tokenizer, matrix = _load_wordllama(self._dimensions)
                    self._loaded = (tokenizer, matrix, WordPieces(tokenizer))
                except Exception as error:
                    raise EmbeddingUnavailableError(
                        "The built-in embedding model cannot be loaded; install the package 'wordllama' again."
                    ) from error
            return self._loaded


def has_known_vectors(embedder: Embedder) -> TypeGuard[WordllamaEmbedder]:
    """Whether the confidence of answers was fitted for the vectors of a model."""
    return isinstance(embedder, WordllamaEmbedder) and embedder.dimensions == DIMENSIONS


def _load_wordllama(dimensions: int) -> tuple[Any, NDArray[np.float32]]:
    """Loads the tokenizer and the matrix of token vectors from the installed package, never from a network."""
    package = _import_quietly("wordllama")
    inference = package.WordLlama.load(dim=DIMENSIONS, cache_dir=Path(package.__file__).parent, disable_download=True)
    tokenizer = inference.tokenizer
    tokenizer.no_padding()
    return tokenizer, np.ascontiguousarray(inference.embedding[:, :dimensions], dtype=np.float32)


def _import_quietly(name: str) -> Any:
    """Imports a package without letting it configure the program's logging or print warnings about versions."""
    root = logging.getLogger()
    placeholder = logging.NullHandler()
    root.addHandler(placeholder)  # logging.basicConfig does nothing while there is a handler
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    finally:
        root.removeHandler(placeholder)


def _batches(texts: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yields batches of bounded size, each with the index of its first text."""
    start, batch, size = 0, list[str](), 0
    for text in texts:
        # The tokenizer needs UTF-8, which does not exist for a lone surrogate.
        clean = text[:MAX_CHARS].encode("utf-8", "replace").decode()
        if batch and (len(batch) >= _BATCH_TEXTS or size + len(clean) > _BATCH_CHARS):
            yield start, batch
            start, batch, size = start + len(batch), [], 0
        batch.append(clean)
        size += len(clean)
    yield start, batch


def _mean(matrix: NDArray[np.float32], ids: TokenIds) -> NDArray[np.float32]:
    """Returns the normalised mean of the tokens' vectors."""
    total: NDArray[np.float32] = np.add.reduce(matrix.take(ids, axis=0), axis=0)
    norm = float(np.sqrt(total.dot(total)))  # as numpy.linalg.norm does it, without its checks
    if norm < _SMALLEST_NORM:
        total = np.zeros(matrix.shape[1], dtype=np.float32)
        total[0] = norm = 1.0
    unit: NDArray[np.float32] = (total / norm).astype(np.float32)
    return unit
