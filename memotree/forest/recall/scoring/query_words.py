"""Extracts the content words of a question, each with the terms that match it in a text.

Function words and words of asking (``discuss``, ``meeting``, ``summarize``) are left out, because they say how to
answer and not about what. Each remaining word is expanded by its other forms, and by words of a similar meaning, which
weigh less.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Final, TypeAlias

from memotree_storage.index.han_variants import SIMPLIFIED
from memotree_storage.index.terms import earlier_terms, fold, term_id, tokens, words_of

from memotree.forest.recall.scoring.stemming import forms, forms_in, stem
from memotree.models.languages import ENGLISH, Language, language, language_of

Related: TypeAlias = Callable[[str], Sequence[tuple[str, float]]]
"""Returns words of a similar meaning, most similar first, each with its cosine; nothing for an unknown word."""

MOST_CONCEPTS: Final = 32
"""Only the first this many different words of a question are used."""

_MOST_RELATED: Final = 20
_ASKING: Final = "discuss talk group meet meeting think opinion summary summarize conclude conclusion regard mention"
STOP_WORDS: Final = language(ENGLISH).stop_words
_ASKING_STEMS: Final = frozenset(map(stem, _ASKING.split()))


@dataclass(frozen=True, slots=True)
class Concept:
    """One content word of a question.

    Attributes:
        stem: The stem that its forms share.
        terms: The term ids of its forms.
        related: The term ids of words of a similar meaning, each with its weight relative to the word itself.
    """

    stem: str
    terms: tuple[int, ...]
    related: tuple[tuple[int, float], ...] = ()


def terms_of(asked: Iterable[Concept]) -> list[int]:
    """Returns the ids of all terms of some concepts and of the words related to them, ascending."""
    return sorted({term for concept in asked for term in (*concept.terms, *(other for other, _ in concept.related))})


def concepts(question: str, related: Related | None = None, *, share: float = 0.7) -> list[Concept]:
    """Returns the content words of a question in order, at most `MOST_CONCEPTS`.

    If the question has no other words, its words of asking or its function words are used.

    Args:
        question: The question.
        related: Returns words of a similar meaning.
        share: The weight of such a word at a cosine of 1; it falls with the square of the cosine.
    """
    asked_in = language_of(question)
    if asked_in.name != ENGLISH:
        return _as_before(question, list(islice(_foreign_concepts(question, asked_in), MOST_CONCEPTS)))
    words = [word for word in _words(question) if word not in STOP_WORDS]
    content = [word for word in words if stem(word) not in _ASKING_STEMS] or words or list(_words(question))
    by_stem: dict[str, str] = {}
    for word in content:
        by_stem.setdefault(stem(word), word)
    found = [_concept(root, word, related, share) for root, word in list(by_stem.items())[:MOST_CONCEPTS]]
    return _as_before(question, found)


def _as_before(question: str, found: list[Concept]) -> list[Concept]:
    """Returns the concepts with the terms that an index of an earlier version has for their words."""
    before = {term_id(now): term_id(other) for now, other in earlier_terms(question)}
    if not before:
        return found
    return [
        replace(each, terms=(*each.terms, *(before[term] for term in each.terms if term in before))) for each in found
    ]


def _foreign_concepts(question: str, asked_in: Language) -> Iterator[Concept]:
    """Yields the content words of a question in another language; words of a similar meaning are not known there."""
    seen = set[str]()
    for without in (True, False):  # a question of nothing but function words is asked by these
        for word in _foreign_words(question, asked_in if without else None):
            root, forms = forms_in(asked_in, word)
            if root not in seen:
                seen.add(root)
                yield Concept(root, tuple(dict.fromkeys(map(_term, forms))))
        if seen:
            return


def _foreign_words(question: str, asked_in: Language | None) -> Iterator[str]:
    """Yields the words of a question, and the pairs of its unspaced runs, without what says nothing in its language."""
    if asked_in is not None and asked_in.asking is not None:
        question = asked_in.asking.sub(" ", question.translate(SIMPLIFIED))
    for found in tokens(question):
        for word in words_of(found[0]) if found.lastgroup == "run" else found[0].split("."):
            folded = fold(word)
            if asked_in is None or not (folded in asked_in.stop_words or (len(folded) == 1 and folded.isascii())):
                yield word.casefold() if asked_in is not None and asked_in.stems_accents else folded


@lru_cache(maxsize=1 << 14)
def stems(text: str) -> frozenset[str]:
    """Returns the stems of all words of a text, such as the name of a speaker."""
    return frozenset(stem(word) for word in _words(text))


def _words(text: str) -> Iterable[str]:
    """Returns the folded words without single letters; characters of unspaced scripts come as pairs."""
    return (word for word in words_of(fold(text)) if len(word) > 1 or not (word.isascii() and word.isalpha()))


def _concept(root: str, word: str, related: Related | None, share: float) -> Concept:
    own = dict.fromkeys(_term(form) for form in forms(word))
    others: dict[int, float] = {}
    for other, cosine in () if related is None else related(word):
        if len(others) >= _MOST_RELATED:
            break
        term = _term(other)
        if term not in own and stem(other) != root:
            others[term] = max(others.get(term, 0.0), share * cosine * cosine)
    return Concept(root, tuple(own), tuple(others.items()))


def _term(word: str) -> int:
    """Returns the term id of a word in the index."""
    return term_id(next(iter(words_of(word)), word))
