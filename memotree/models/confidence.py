"""How likely it is that what was found answers a question, from two signals that hardly depend on other results.

Words: the share of the question's words that stand together in one place, rare words weighing more. How rare they are
is smoothed (`memotree_storage.index.rarity.smoothed_idf`), so the share is about the same beside one note and beside a
thousand. Meaning: the cosine of that place's vector with the question's. A logistic function of both gives a likelihood
from 0 to 1. Its weights were fitted on questions with an answer in the texts and questions without one (those of other
texts, general knowledge, nonsense), on one half of the documents of five sets, asked of one document and of all
documents of a set. They were tested on the other half: docs/reference/recall.md.

The weights of meaning hold for the built-in embedding model and for English. It compares texts of other languages by
the tokens that their letters make, so even unrelated ones are close to each other (a cosine of 0.3 in German and of 0.9
in Arabic), and so only words count there, with weights of their own. Cosines of other models are distributed
differently. With another model only words count, and they never make the confidence ``none``, because a text may say
the same in other words.
"""

from dataclasses import dataclass
from enum import Enum
from math import exp
from typing import Final

from memotree.models.languages import ENGLISH, language_of
from memotree.models.relevance import unspaced_share


class Confidence(Enum):
    """What a likelihood means for a reader.

    Below 0.2 there probably is no answer: 94 % or more of the questions that have one are above. From 0.7 there
    probably is one: of the questions about something else, 1 % are above in one document, and 7 to 13 % in dozens of
    documents, where more texts could resemble the question by chance.
    """

    NONE = "none"
    WEAK = "weak"
    STRONG = "strong"

    @classmethod
    def of(cls, likelihood: float) -> "Confidence":
        """Returns the confidence of a likelihood."""
        if likelihood < _LEAST_WEAK:
            return cls.NONE
        return cls.WEAK if likelihood < _LEAST_STRONG else cls.STRONG


_LEAST_WEAK: Final = 0.2
_LEAST_STRONG: Final = 0.7

_UNSUPPORTED: Final = 0.3
"""What each part of the question that nothing found supports leaves of the likelihood. On notes to develop on, 4 of 5
near misses have such a part, and 1 of 25 answered questions."""


def with_unsupported(likelihood: float, parts: int, *, has_known_vectors: bool = True) -> float:
    """Returns a likelihood less what parts of the question take from it that nothing found supports."""
    less = likelihood * _UNSUPPORTED**parts
    return less if has_known_vectors else min(likelihood, max(_LEAST_WEAK, less))


@dataclass(frozen=True, slots=True)
class Calibration:
    """The weights of one kind of search.

    Attributes:
        both: Bias, weight of words, weight of meaning.
        words: Bias and weight if only words were compared.
        foreign: The same for languages other than English.
        meaning: Bias and weight if only meaning was compared.
    """

    both: tuple[float, float, float]
    words: tuple[float, float]
    foreign: tuple[float, float]
    meaning: tuple[float, float]

    def likelihood(
        self, question: str, words: float | None, meaning: float | None, *, has_known_vectors: bool = True
    ) -> float:
        """Returns how likely the best result answers the question, from 0 to 1; 0 without any signal.

        Args:
            question: The question.
            words: The signal of words; ``None`` if words were not compared.
            meaning: The best cosine; ``None`` if vectors were not compared.
            has_known_vectors: Whether the vectors are those of the built-in model.
        """
        if meaning is not None and not has_known_vectors:
            return _LEAST_WEAK if words is None else max(_LEAST_WEAK, self.likelihood(question, words, None))
        if words is None and meaning is None:
            return 0.0
        if language_of(question).name != ENGLISH:
            return _LEAST_WEAK if words is None else _logistic(*self.foreign, _comparable(question, words))
        if words is None:
            return _logistic(*self.meaning, meaning or 0.0)
        if meaning is None:
            return _logistic(*self.words, words)
        bias, by_words, by_meaning = self.both
        return _logistic(bias + by_words * words, by_meaning, meaning)


def _logistic(bias: float, weight: float, signal: float) -> float:
    return 1.0 / (1.0 + exp(-(bias + weight * signal)))


def _comparable(question: str, words: float) -> float:
    """Returns the share of words as it would be in a spaced script, since pairs of characters match less often."""
    return min(1.0, _PAIRS * words) if unspaced_share(question) > 0.5 else words  # noqa: PLR2004 - most of it


_PAIRS: Final = 1.45

LEAVES: Final = Calibration(both=(-7.5, 5.9, 13.8), words=(-4.7, 10.0), foreign=(-3.8, 9.3), meaning=(-6.4, 18.8))
"""For a recall of leaves. Words: the weighted share of the question's content words in a window of 120 tokens."""

NODES: Final = Calibration(both=(-8.6, 6.9, 17.1), words=(-4.5, 14.6), foreign=(-4.5, 14.6), meaning=(-8.0, 21.1))
"""For a search of nodes. Words: the score of a search by words, a share of the most that any text could have."""
