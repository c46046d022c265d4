"""Finds words of a similar meaning in the built-in model's vocabulary, whichever model embeds the texts."""

import threading
from collections.abc import Sequence

from memotree.forest.recall.scoring.related_words import RelatedWords
from memotree.models.builtin import WordllamaEmbedder


class BuiltinWords:
    """Returns the words near a word. Loads the model's vocabulary at the first call; safe to share between threads.

    Args:
        embedder: The built-in model; a new one is made if ``None``.
    """

    def __init__(self, embedder: WordllamaEmbedder | None = None) -> None:
        self._embedder = embedder or WordllamaEmbedder()
        self._lock = threading.Lock()
        self._loaded: RelatedWords | None = None

    def __call__(self, word: str) -> Sequence[tuple[str, float]]:
        """Returns the words near a word, most similar first, each with its cosine."""
        with self._lock:
            if self._loaded is None:
                self._loaded = RelatedWords(*self._embedder.vocabulary())
            return self._loaded(word)
