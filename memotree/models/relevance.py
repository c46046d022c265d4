"""The built-in ranking: how well a text answers a query, from the words that they share and from their vectors.

Two signals, each from 0 to 1, go into a logistic function: the share of the query's telling words that the text has,
weighted by how rare they are among the texts (the inverse document frequency of BM25, without the saturation of term
frequencies, which says little about summaries), and the cosine of the vectors above what unrelated texts have. Weights
were chosen so that 0.5 parts texts that hold an answer from those that do not; see ``docs/explanation/models.md``.
"""

import re
from collections import Counter
from collections.abc import Sequence
from math import exp, log
from typing import Final

from memotree_storage.index.terms import words_of
from memotree_storage.model.tokens import UNSPACED
from memotree_storage.ports import Vectors

from memotree.models.extractive import telling_words

MADE_BY: Final = "lexical-vector-1"

_UNSPACED: Final = re.compile(f"[{UNSPACED}]")

_SHARED: Final = 6.5
_NEAR: Final = 5.0
_BIAS: Final = -2.6

_UNRELATED: Final = 0.1
_UNRELATED_UNSPACED: Final = 0.4
"""The cosine of texts that have nothing to do with each other; in Chinese they share many tokens."""

_QUESTIONS: Final = frozenset("\u4ec0\u4e48\u8c01\u54ea\u600e\u6837\u5982\u4f55\u4e3a\u5417\u5462\u51e0\u591a\u5c11")
"""Characters of Chinese question words, which say nothing about the answer."""


def relevance(query: str, texts: Sequence[str], vectors: Vectors) -> list[float]:
    """A score from 0 to 1 for each text; ``vectors`` are the query's unit vector, then those of the texts."""
    if not texts:
        return []
    wanted = _words(query) or set(words_of(query))
    held = [_words(text) for text in texts]
    weights = _weights(wanted, held)
    total = sum(weights.values())
    cosines = (vectors[1:] @ vectors[0]).tolist()
    asked = _unspaced_share(query)
    scores = []
    for text, words, cosine in zip(texts, held, cosines, strict=True):
        if not text.strip():
            scores.append(0.0)
            continue
        shared = sum(weights[word] for word in wanted & words) / total if total else 0.0
        unspaced = min(asked, _unspaced_share(text))
        floor = _UNRELATED + (_UNRELATED_UNSPACED - _UNRELATED) * unspaced
        near = max(0.0, cosine - floor) / (1 - floor)
        scores.append(1 / (1 + exp(-(_SHARED * shared + _NEAR * near + _BIAS))))
    return scores


def _words(text: str) -> set[str]:
    """Telling words and pairs of unspaced characters, and the characters too, since pairs cross the words' borders."""
    words = {word for word in telling_words(text) if not _QUESTIONS.issuperset(word)}
    characters = {word for character in set(_UNSPACED.findall(text)) for word in telling_words(character)}
    return words | (characters - _QUESTIONS)


def _weights(wanted: set[str], held: Sequence[set[str]]) -> dict[str, float]:
    """The inverse document frequency of each word of the query; a word of no text weighs as one of a single text."""
    found = Counter(word for words in held for word in wanted & words)
    return {word: log(1 + (len(held) + 1) / (max(found[word], 1) + 0.5)) for word in wanted}


def _unspaced_share(text: str) -> float:
    """The part of the letters that is of unspaced scripts."""
    letters = sum(map(str.isalnum, text))
    return min(1.0, len(_UNSPACED.findall(text)) / letters) if letters else 0.0
