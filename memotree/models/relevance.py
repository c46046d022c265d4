"""The built-in ranking: scores how well a text answers a query by shared words and by vectors.

Two signals, each from 0 to 1, go into a logistic function. One is the share of the query's content words that the text
has, weighted by their inverse document frequency among the texts (that of BM25; its saturation of term frequencies is
left out, because it says little about summaries). The other is the cosine of the vectors, as far as it exceeds that of
unrelated texts. The weights were chosen so that 0.5 separates texts with an answer from those without; see
``docs/explanation/models.md``.
"""

import re
from collections import Counter
from collections.abc import Sequence
from math import exp, log
from typing import Final

from memotree_storage.index.terms import words_of
from memotree_storage.model.tokens import UNSPACED
from memotree_storage.ports import Vectors

from memotree.models.extractive import content_words

MADE_BY: Final = "lexical-vector-1"

_UNSPACED: Final = re.compile(f"[{UNSPACED}]")

_SHARED: Final = 6.5
_NEAR: Final = 5.0
_BIAS: Final = -2.6

UNRELATED: Final = 0.1
UNRELATED_UNSPACED: Final = 0.4
"""The cosine of unrelated texts; it is higher for Chinese ones, because they share many tokens."""

_QUESTIONS: Final = frozenset("\u4ec0\u4e48\u8c01\u54ea\u600e\u6837\u5982\u4f55\u4e3a\u5417\u5462\u51e0\u591a\u5c11")
"""Characters of Chinese question words, which say nothing about the answer."""


def relevance(query: str, texts: Sequence[str], vectors: Vectors) -> list[float]:
    """Returns a score from 0 to 1 for each text; ``vectors`` are the query's unit vector, then those of the texts."""
    if not texts:
        return []
    wanted = _words(query) or set(words_of(query))
    held = [_words(text) for text in texts]
    weights = _weights(wanted, held)
    total = sum(weights.values())
    cosines = (vectors[1:] @ vectors[0]).tolist()
    asked = unspaced_share(query)
    scores = []
    for text, words, cosine in zip(texts, held, cosines, strict=True):
        if not text.strip():
            scores.append(0.0)
            continue
        shared = sum(weights[word] for word in wanted & words) / total if total else 0.0
        unspaced = min(asked, unspaced_share(text))
        floor = UNRELATED + (UNRELATED_UNSPACED - UNRELATED) * unspaced
        near = max(0.0, cosine - floor) / (1 - floor)
        scores.append(1 / (1 + exp(-(_SHARED * shared + _NEAR * near + _BIAS))))
    return scores


def _words(text: str) -> set[str]:
    """Returns content words, pairs of unspaced characters, and single ones, because pairs may cross word borders."""
    words = {word for word in content_words(text) if not _QUESTIONS.issuperset(word)}
    characters = {word for character in set(_UNSPACED.findall(text)) for word in content_words(character)}
    return words | (characters - _QUESTIONS)


def _weights(wanted: set[str], held: Sequence[set[str]]) -> dict[str, float]:
    """Returns the inverse document frequency of each query word; a word in no text weighs like one in a single text."""
    found = Counter(word for words in held for word in wanted & words)
    return {word: log(1 + (len(held) + 1) / (max(found[word], 1) + 0.5)) for word in wanted}


def unspaced_share(text: str) -> float:
    """Returns the share of the letters that belong to unspaced scripts."""
    letters = sum(map(str.isalnum, text))
    return min(1.0, len(_UNSPACED.findall(text)) / letters) if letters else 0.0
