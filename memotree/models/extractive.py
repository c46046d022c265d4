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
from dataclasses import dataclass
from functools import lru_cache
from math import log2
from typing import Final

from memotree_storage.terms import words_of

BRIEF_CHARS: Final = 120
"""The longest brief."""

SUMMARY_CHARS: Final = 200
"""The longest summary (FOREST-10)."""

_READ_CHARS: Final = 1 << 17  # what a summary can tell of a longer text stands at its beginning
_MAX_SENTENCES: Final = 2_000
_ELLIPSIS: Final = "…"
_BRIEF_SENTENCES: Final = 20
_FRAGMENT: Final = 20  # characters: no sentence fits into less
_MOSTLY_LETTERS: Final = 0.85
_HALF_PROSE: Final = 0.5
_TERM_CHARS: Final = 1_000  # of one sentence; longer ones are no prose
_TITLE_BONUS: Final = 1.0
_POSITION_BONUS: Final = 1.5
_FEW_WORDS: Final = 4

# Frequent everywhere, so they say nothing about a text. Terms are folded: no plural ending.
_COMMON_WORDS: Final = (
    "a about after all also an and any are as at be been but by can could did do does doe for from had has have he "
    "her his how i if in into is it its just like may more most must my no not of on one only or other our out "
    "over she should so some such than that the their them then there these they thi this to up us use used was "
    "wa we were what when where which who will with would you your"
)
_COMMON: Final = frozenset(_COMMON_WORDS.split())
_COMMON_UNSPACED: Final = frozenset("的了是在和有不这也就人都一个上中大为以到说们与及或其而于之")

# --- Markup ---
_FENCED: Final = re.compile(r"^[ \t]*(```|~~~)[^\n]*\n.*?(?:^[ \t]*\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_RULE: Final = re.compile(r"^[ \t]*(?:[=\-~^\"'`#*+_.:|<>]{3,}|[|+][-=+|: \t]*[|+])[ \t]*$", re.MULTILINE)
_DIRECTIVE: Final = re.compile(r"^[ \t]*(?:\.\.(?:[ \t][^\n]*)?|:[\w -]+:[^\n]*)$", re.MULTILINE)
_LINE_START: Final = re.compile(r"^[ \t]*(?:#{1,6}[ \t]+|>[ \t]?|[-*+•][ \t]+|[0-9]{1,3}[.)][ \t]+)+", re.MULTILINE)
_LINK: Final = re.compile(r"!?\[([^\[\]\n]{0,300})\](?:\([^()\n]{0,500}\)|\[[^\[\]\n]{0,100}\])")
_ROLE: Final = re.compile(r":[\w:.-]{1,40}:`([^`\n]{1,300})`")
_TAGGED: Final = re.compile(r"<[/!]?[A-Za-z][^<>\n]{0,300}>")
_EMPHASIS: Final = re.compile(r"([*_`])(?<!\w[*_`])\1{0,2}(?=\S)([^*`\n]{1,300}?)(?<=\S)\1{1,3}(?!\w)")
_UNPRINTED: Final = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ud800-\udfff\ufeff]")

# --- Sentences ---
_PARAGRAPH: Final = re.compile(r"\n[ \t\r]*\n|\u2029")
_FULL_STOPS: Final = "\u3002\uff01\uff1f\uff61"  # of Chinese and Japanese: nothing need follow them
_CLOSERS: Final = "\"')\\]\u201d\u2019\u300d\u300f\uff09"  # quotes and brackets that may follow a full stop
_STOP: Final = re.compile(rf"[{_FULL_STOPS}]+[{_CLOSERS}]*|[.!?\u2026]+[{_CLOSERS}]*(?= [^a-z]|\Z)")
_ABBREVIATION: Final = re.compile(r"\b(?:e\.g|i\.e|etc|cf|vs|[DM]r|Mrs|[A-Z])\Z")
_ODD: Final = re.compile(r"[0-9_=+*/\\|<>\[\]{}$%^&~@#`\u2190-\u2bff]")  # what code, tables and formulas are full of
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
    best = max(first, key=lambda sentence: sentence.prose * (1 - sentence.index / _BRIEF_SENTENCES), default=None)
    return _shorten(best.text if best is not None else title, BRIEF_CHARS)


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
            room -= len(sentence.text) + 1
        elif not chosen:
            return _shorten(sentence.text, SUMMARY_CHARS)
        if room < _FRAGMENT:
            break
    return _join(sorted(chosen, key=lambda sentence: sentence.index)) or _shorten(title, SUMMARY_CHARS)


def _join(sentences: list[_Sentence]) -> str:
    """Sentences with a blank between, save behind the full stop of an unspaced script."""
    text = ""
    for sentence in sentences:
        text += sentence.text if not text or text[-1] in _FULL_STOPS else f" {sentence.text}"
    return text


def _ranked(sentences: Sequence[_Sentence], title: str) -> list[_Sentence]:
    """The sentences, best first; ties in the order of the text."""
    frequency = Counter(term for sentence in sentences for term in set(sentence.terms))
    named = set(_terms(title))

    def score(sentence: _Sentence) -> float:
        terms = set(sentence.terms)
        # The mean favours dense sentences; few words tell little, however frequent they are.
        weight = sum(log2(1 + frequency[term]) for term in terms) / max(len(terms), _FEW_WORDS)
        weight += _TITLE_BONUS * len(terms & named) / max(len(named), 1) + _POSITION_BONUS / (1 + sentence.index)
        return weight * sentence.prose

    return sorted(sentences, key=lambda sentence: (-score(sentence), sentence.index))


def _prose(text: str, terms: Collection[str]) -> float:
    """How much a text looks like a sentence: 1, or less for asides, lead-ins, headings, code and tables."""
    text = text[:_TERM_CHARS]
    factor = 1.0 if len(_ODD.sub("", text)) >= _MOSTLY_LETTERS * len(text) else 0.3
    factor *= 0.6 if text.startswith("(") else 1.0
    factor *= min(1.0, len(terms) / _FEW_WORDS)
    if len(text) == _TERM_CHARS or _ENDS.search(text):
        return factor
    return factor * (0.9 if text.endswith((":", "\uff1a")) else 0.4)


# --- Text ------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _sentences(content: str, title: str) -> tuple[_Sentence, ...]:
    """The first different sentences that have any telling word and do not just repeat the title.

    Brief and summary of one text are asked for together, hence the small cache.
    """
    found: list[_Sentence] = []
    seen = {title.casefold()}
    for paragraph in _PARAGRAPH.split(_plain(content)):
        for text in _split(_one_line(paragraph)):
            terms = _terms(text[:_TERM_CHARS])
            if terms and text.casefold() not in seen:
                seen.add(text.casefold())
                found.append(_Sentence(text, len(found), terms, _prose(text, terms)))
        if len(found) >= _MAX_SENTENCES:
            break
    return tuple(found)


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


def _terms(text: str) -> tuple[str, ...]:
    """The telling terms of a text: no words that every text has."""
    return tuple(term for term in words_of(text) if term not in _COMMON and not _COMMON_UNSPACED.issuperset(term))


def _plain(text: str) -> str:
    """The text with the marks of Markdown and reStructuredText taken off, code blocks and rules left out."""
    text = _FENCED.sub("\n", text.replace("\r\n", "\n"))
    text = _RULE.sub("\n", _DIRECTIVE.sub("\n", text))
    text = _LINE_START.sub("", text)
    text = _LINK.sub(r"\1", _ROLE.sub(r"\1", text))
    return _EMPHASIS.sub(r"\2", _TAGGED.sub("", text))


def _one_line(text: str) -> str:
    return " ".join(_UNPRINTED.sub("", text).split())


def _shorten(text: str, length: int) -> str:
    """The text, cut at a word's end when it is too long."""
    if len(text) <= length:
        return text
    cut = text[: length - len(_ELLIPSIS)]
    blank = cut.rfind(" ", length // 2)
    return (cut[:blank] if blank > 0 else cut).rstrip(" ,;:-") + _ELLIPSIS
