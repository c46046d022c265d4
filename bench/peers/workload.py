"""The workload: notes of Zipf-distributed words, their vectors by our built-in embedding, and questions."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bench.peers.program import Note
from bench.worlds import Text
from memotree.models.builtin import WordllamaEmbedder

MARK: Final = "lighthouse"
"""A word that only the last note has, to see whether a peer finds anything."""

OFTEN: Final = 20
"""How many notes are updated one at a time, again and again."""

_EMBED_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Question:
    """A question and its vector."""

    text: str
    vector: Sequence[float]


class Workload:
    """Makes notes, changed notes and questions; the same arguments give the same ones.

    Args:
        words: The words of a note.
    """

    def __init__(self, words: int) -> None:
        self._words = words
        self._text = Text()
        self._embedder = WordllamaEmbedder()

    async def notes(self, count: int) -> list[Note]:
        """Return new notes; the last one has ``MARK``."""
        texts = [self._text.page(self._words) for _ in range(count - 1)]
        texts.append(f"The {MARK} is the last note. {self._text.page(self._words)}")
        return await self._made(list(map(_key, range(count))), texts)

    async def questions(self, count: int) -> list[Question]:
        """Return questions of one to five words."""
        texts = self._text.queries(count)
        return [Question(text, vector) for text, vector in zip(texts, await self._vectors(texts), strict=True)]

    async def changes(self, count: int, size: int, total: int) -> list[list[Note]]:
        """Return changed notes for so many updates of ``size`` notes each, of ``total`` notes.

        Updates of one note go to the same few notes in turn, others to different notes.
        """
        turn: Iterator[int] = itertools.cycle(range(min(OFTEN, total)) if size == 1 else range(total))
        keys = [_key(next(turn)) for _ in range(count * size)]
        notes = await self._made(keys, [self._text.page(self._words) for _ in keys])
        return [notes[start : start + size] for start in range(0, len(notes), size)]

    async def _made(self, keys: Sequence[str], texts: Sequence[str]) -> list[Note]:
        vectors = await self._vectors(texts)
        return [Note(key, text, vector) for key, text, vector in zip(keys, texts, vectors, strict=True)]

    async def _vectors(self, texts: Sequence[str]) -> list[Sequence[float]]:
        found: list[Sequence[float]] = []
        for start in range(0, len(texts), _EMBED_AT_ONCE):
            made = await self._embedder.embed(texts[start : start + _EMBED_AT_ONCE])
            found += np.asarray(made, dtype=np.float32).tolist()
        return found


def _key(number: int) -> str:
    return f"note-{number:06}"
