"""Briefs and summaries taken from the text itself, until (or unless) a language model writes better ones.

A sentence ranks high when its words are frequent in the text (without the words that are frequent in every text), when
it stands early and when it shares words with the title; the best that fit are given in the order of the text. The idea
is H. P. Luhn's ("The automatic creation of literature abstracts", 1958), the position and title cues are H. P.
Edmundson's ("New methods in automatic extracting", 1969). The words are those of the full text search, so that unspaced
scripts work alike. The same input always gives the same output, in time that grows with the length of the text.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from math import fsum, log2
from typing import Final

from memotree_storage.index.terms import words_of

from memotree.models.markup import UNPRINTED, Kind, blocks

BRIEF_CHARS: Final = 120
"""The longest brief."""

SUMMARY_CHARS: Final = 200
"""The longest summary (FOREST-10)."""

MADE_BY: Final = "extractive-1"
"""The name of this way to summarise; another result for the same text would be another name."""

_READ_CHARS: Final = 1 << 17  # what a summary can tell of a longer text stands at its beginning
_MAX_SENTENCES: Final = 2_000
_ELLIPSIS: Final = "…"
_BREAK: Final = "; "
_UNSPACED_BREAK: Final = "\uff1b"
_PAUSES: Final = ",;:\uff0c\uff1b\uff1a\u3001"
_END_CHARS: Final = 20  # in which a full stop and the quotes behind it stand
_BRIEF_SENTENCES: Final = 20
_FRAGMENT: Final = 20  # characters: no sentence fits into less
_MOSTLY_LETTERS: Final = 0.85
_HALF_PROSE: Final = 0.5
_TERM_CHARS: Final = 1_000  # of one sentence; longer ones are no prose
_TITLE_BONUS: Final = 1.0
_POSITION_BONUS: Final = 1.5
_FEW_WORDS: Final = 4
_FRAGMENT_FACTOR: Final = 0.4  # text without a full stop
_HEADING_FACTOR: Final = 0.15
_ASIDE_FACTOR: Final = 0.4
_GOOD_ENOUGH: Final = 0.5
_UNSPACED_FROM: Final = "\u2e80"  # where the semicolon of East Asian text is at home

# Frequent everywhere, so they say nothing about a text. Terms are folded: no plural ending.
_COMMON_WORDS: Final = (
    "a about after all also an and any are as at be been but by can could did do does doe for from had has have he "
    "her his how i if in into is it its just like may more most must my no not of on one only or other our out "
    "over she should so some such than that the their them then there these they thi this to up us use used was "
    "wa we were what when where which who will with would you your"
)
_COMMON: Final = frozenset(_COMMON_WORDS.split())
_COMMON_UNSPACED: Final = frozenset("的了是在和有不这也就人都一个上中大为以到说们与及或其而于之")

# --- Sentences ---
_FULL_STOPS: Final = "\u3002\uff01\uff1f\uff61"  # of Chinese and Japanese: nothing need follow them
_CLOSERS: Final = "\"')\\]\u201d\u2019\u300d\u300f\uff09"  # quotes and brackets that may follow a full stop
_STOP: Final = re.compile(rf"[{_FULL_STOPS}]+[{_CLOSERS}]*|[.!?\u2026]+[{_CLOSERS}]*(?= [^a-z]|\Z)")
_ABBREVIATION: Final = re.compile(r"\b(?:e\.g|i\.e|etc|cf|vs|[DM]r|Mrs|[A-Z])\Z")
_ODD: Final = re.compile(r"[0-9_=+*/\\|<>\[\]{}$%^&~@#\u2190-\u2bff]")  # what code, tables and formulas are full of
_ENDS: Final = re.compile(rf"[.!?\u2026{_FULL_STOPS}][{_CLOSERS}]*\Z")


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    index: int
    terms: tuple[str, ...]
    prose: float


def brief_of(title: str, content: str) -> str:
    """One line of at most ``BRIEF_CHARS`` characters: the text's first telling sentence, or the title."""
    title = _one_line(title)
    first = _sentences(content[:_READ_CHARS], title)[:_BRIEF_SENTENCES]
    worth = [sentence.prose * (1 - sentence.index / _BRIEF_SENTENCES) for sentence in first]
    # The first sentence is what its author began with: only a far better one takes its place.
    enough = max(worth, default=0.0) * _GOOD_ENOUGH
    best = next((sentence.text for sentence, value in zip(first, worth, strict=True) if value >= enough), title)
    return _shorten(best, BRIEF_CHARS)


def summary_of(title: str, content: str) -> str:
    """A paragraph of at most ``SUMMARY_CHARS`` characters in the text's own words; the title for a blank text."""
    title = _one_line(title)
    sentences = _sentences(content[:_READ_CHARS], title)
    prose = [sentence for sentence in sentences if sentence.prose > _HALF_PROSE]
    chosen: list[_Sentence] = []
    room = SUMMARY_CHARS
    for sentence in _ranked(prose or sentences, title):
        if len(sentence.text) <= room:
            chosen.append(sentence)
            room -= len(sentence.text) + len(_BREAK)
        elif not chosen:
            return _shorten(sentence.text, SUMMARY_CHARS)
        if room < _FRAGMENT:
            break
    return _join(sorted(chosen, key=lambda sentence: sentence.index)) or _shorten(title, SUMMARY_CHARS)


def digest_of(parts: Sequence[str]) -> str:
    """A paragraph of at most ``SUMMARY_CHARS`` characters from summaries of the parts of one whole, in their order.

    As many parts as fit are heard, each by its best sentence, before one is heard twice: a whole is found by what any
    of its parts is about.
    """
    of_part = [_sentences(part, "") for part in parts]
    heard = [part for part, sentences in enumerate(of_part) for _ in sentences]
    numbered = [replace(sentence, index=index) for index, sentence in enumerate(chain.from_iterable(of_part))]
    ranked = _ranked(numbered, "")
    rounds, times = list[tuple[int, int, _Sentence]](), Counter[int]()
    for rank, sentence in enumerate(ranked):
        part = heard[sentence.index]
        rounds.append((times[part], rank, sentence))
        times[part] += 1
    chosen: dict[str, _Sentence] = {}
    room = SUMMARY_CHARS
    for _, _, sentence in sorted(rounds, key=lambda entry: entry[:2]):
        if len(sentence.text) <= room and sentence.text not in chosen:
            chosen[sentence.text] = sentence
            room -= len(sentence.text) + len(_BREAK)
    if not chosen and ranked:
        return _shorten(ranked[0].text, SUMMARY_CHARS)
    return _join(sorted(chosen.values(), key=lambda sentence: sentence.index))


def fitted(text: str) -> str:
    """A text as a summary: one line, cut behind its last whole sentence that fits, or else at a word's end."""
    text = _one_line(text)
    if len(text) <= SUMMARY_CHARS:
        return text
    end = 0
    for stop in _STOP.finditer(text):
        if stop.end() > SUMMARY_CHARS:
            break
        end = stop.end()
    return text[:end] if end >= SUMMARY_CHARS * _GOOD_ENOUGH else _shorten(text, SUMMARY_CHARS)


def _join(sentences: list[_Sentence]) -> str:
    """Sentences in one line: fragments end with a semicolon, others have their own ends."""
    text = ""
    for sentence in sentences:
        text += _gap(text) + sentence.text
    return text


def _gap(text: str) -> str:
    """What stands between a text and what follows it; no blank behind the full stop of an unspaced script."""
    if not text or text[-1] in _FULL_STOPS:
        return ""
    if _ENDS.search(text[-_END_CHARS:]) or text[-1] in _PAUSES:
        return " "
    return _BREAK if text[-1] < _UNSPACED_FROM else _UNSPACED_BREAK


def _ranked(sentences: Sequence[_Sentence], title: str) -> list[_Sentence]:
    """The sentences, best first; ties in the order of the text."""
    frequency = Counter(term for sentence in sentences for term in set(sentence.terms))
    named = set(telling_words(title))

    def score(sentence: _Sentence) -> float:
        terms = set(sentence.terms)
        # The mean favours dense sentences; few words tell little, however frequent they are.
        # The sum is exact: a set has another order in each process, and equal sentences have to tie in all of them.
        weight = fsum(log2(1 + frequency[term]) for term in terms) / max(len(terms), _FEW_WORDS)
        weight += _TITLE_BONUS * len(terms & named) / max(len(named), 1) + _POSITION_BONUS / (1 + sentence.index)
        return weight * sentence.prose

    return sorted(sentences, key=lambda sentence: (-score(sentence), sentence.index))


def _prose(text: str, terms: Collection[str], kind: Kind) -> float:
    """How much a text looks like a sentence: 1, or less for asides, lead-ins, headings, code and tables."""
    text = text[:_TERM_CHARS]
    factor = 1.0 if len(_ODD.sub("", text)) >= _MOSTLY_LETTERS * len(text) else 0.3
    factor *= _ASIDE_FACTOR if text.startswith("(") else 1.0
    if kind is Kind.HEADING:
        return factor * _HEADING_FACTOR
    whole = min(1.0, len(terms) / _FEW_WORDS)
    if len(text) == _TERM_CHARS or _ENDS.search(text):
        return factor * whole
    if text.endswith((":", "\uff1a")):
        return factor * whole * 0.9
    return factor * _FRAGMENT_FACTOR  # however few words: the first of several fragments is as good as any


# --- Text ------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _sentences(content: str, title: str) -> tuple[_Sentence, ...]:
    """The first different sentences that have any telling word and do not just repeat the title.

    Brief and summary of one text are asked for together, hence the small cache.
    """
    found: list[_Sentence] = []
    seen = {title.casefold()}
    for text, kind in _texts(content):
        terms = telling_words(text[:_TERM_CHARS])
        if terms and text.casefold() not in seen:
            seen.add(text.casefold())
            found.append(_Sentence(text, len(found), terms, _prose(text, terms, kind)))
        if len(found) >= _MAX_SENTENCES:
            break
    return tuple(found)


def _texts(content: str) -> Iterator[tuple[str, Kind]]:
    """The sentences of a text; short items of a list that are no sentences come together."""
    items = ""
    for block in blocks(content):
        for text in _split(block.text):
            is_short = block.kind is Kind.ITEM and not _ENDS.search(text[-_END_CHARS:])
            joined = items + _gap(items) + text
            if is_short and len(joined) <= BRIEF_CHARS:
                items = joined
                continue
            if items:
                yield items, Kind.ITEM
            items = text if is_short else ""
            if not is_short:
                yield text, block.kind
    if items:
        yield items, Kind.ITEM


def _split(line: str) -> Iterator[str]:
    """The sentences of one line."""
    start = 0
    for stop in _STOP.finditer(line):
        if stop[0] == "." and _ABBREVIATION.search(line, max(start, stop.start() - 4), stop.start()):
            continue
        yield line[start : stop.end()].strip()
        start = stop.end()
    if start < len(line):
        yield line[start:].strip()


def telling_words(text: str) -> tuple[str, ...]:
    """The terms of a text that tell what it is about, in order: no words that every text has."""
    return tuple(term for term in words_of(text) if term not in _COMMON and not _COMMON_UNSPACED.issuperset(term))


def _one_line(text: str) -> str:
    return " ".join(UNPRINTED.sub("", text).split())


def _shorten(text: str, length: int) -> str:
    """The text, cut at a word's end when it is too long."""
    if len(text) <= length:
        return text
    cut = text[: length - len(_ELLIPSIS)]
    blank = cut.rfind(" ", length // 2)
    return (cut[:blank] if blank > 0 else cut).rstrip(" ,;:-") + _ELLIPSIS
