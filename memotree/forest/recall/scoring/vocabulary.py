"""Words of a similar meaning from the built-in model, whichever model makes the vectors of texts."""

import threading
from collections.abc import Sequence

from memotree.forest.recall.scoring.related_words import RelatedWords
from memotree.models.builtin import WordllamaEmbedder


class BuiltinWords:
    """Knows the words near a word; loads the model's vocabulary at the first one. Safe to share between threads.

    Args:
        embedder: The built-in model; one of its own is loaded when there is none.
    """

    def __init__(self, embedder: WordllamaEmbedder | None = None) -> None:
        self._embedder = embedder or WordllamaEmbedder()
        self._lock = threading.Lock()
        self._loaded: RelatedWords | None = None

    def __call__(self, word: str) -> Sequence[tuple[str, float]]:
        """The words near a word, most similar first, each with its cosine."""
        with self._lock:
            if self._loaded is None:
                self._loaded = RelatedWords(*self._embedder.vocabulary())
            return self._loaded(word)
