"""Finds words of a similar meaning by the vectors of single words in a model's vocabulary."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from memotree_storage.cache import BoundedCache
from numpy.typing import NDArray

LEAST_COSINE: Final = 0.35
MOST_WORDS: Final = 64
_REMEMBERED: Final = 4096
_SHORTEST: Final = 4


class RelatedWords:
    """Finds the words whose vectors are near the vector of a word. Takes about a millisecond if it is not cached.

    Args:
        words: Folded words.
        vectors: The vectors of the words, shape (words, dimensions).
    """

    def __init__(self, words: Sequence[str], vectors: NDArray[np.float32]) -> None:
        kept = {word: place for place, word in enumerate(words) if len(word) >= _SHORTEST and word.isalpha()}
        self._words = tuple(kept)
        self._place = {word: place for place, word in enumerate(self._words)}
        rows = np.asarray(vectors, dtype=np.float32)[list(kept.values())]
        self._vectors = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-6))
        self._known: BoundedCache[str, tuple[tuple[str, float], ...]] = BoundedCache(_REMEMBERED)

    def __call__(self, word: str) -> tuple[tuple[str, float], ...]:
        """Returns at most `MOST_WORDS` other words with a cosine of `LEAST_COSINE` or more, most similar first."""
        found = self._known.get(word)
        if found is None:
            found = self._find(word)
            self._known.put(word, found)
        return found

    def _find(self, word: str) -> tuple[tuple[str, float], ...]:
        own = self._place.get(word)
        if own is None:
            return ()
        cosines = self._vectors @ self._vectors[own]
        near = np.flatnonzero(cosines >= LEAST_COSINE)
        ranked = near[np.argsort(-cosines[near], kind="stable")][: MOST_WORDS + 1]
        return tuple((self._words[place], float(cosines[place])) for place in ranked.tolist() if place != own)
