"""Makes extractive briefs and summaries, which are used until (or unless) a language model writes better ones.

A sentence ranks high if its words are frequent in the text (words that are frequent in every text don't count), if it
comes early, and if it shares words with the title. The best sentences that fit are returned in the order of the text.
The idea is H. P. Luhn's ("The automatic creation of literature abstracts", 1958); the position and title cues are H. P.
Edmundson's ("New methods in automatic extracting", 1969). The words are those of the full text search, so unspaced
scripts work as well. The same input always gives the same output, in time linear in the length of the text.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from math import fsum, log2
from typing import Final

from memotree_storage.index.common_words import is_common
from memotree_storage.index.terms import words_of

from memotree.models.markup import UNPRINTED, Kind, blocks

BRIEF_CHARS: Final = 120
"""The most characters of a brief."""

SUMMARY_CHARS: Final = 200
"""The most characters of a summary (FOREST-10)."""

MADE_BY: Final = "extractive-1"
"""The name and version of this algorithm. Change it when the result for any text changes."""

_READ_CHARS: Final = 1 << 17  # of a longer text only the beginning is summarised
_MAX_SENTENCES: Final = 2_000
_ELLIPSIS: Final = "…"
_BREAK: Final = "; "
_UNSPACED_BREAK: Final = "\uff1b"
_PAUSES: Final = ",;:\uff0c\uff1b\uff1a\u3001"
_END_CHARS: Final = 20  # enough for a full stop and the quotes after it
_BRIEF_SENTENCES: Final = 20
_FRAGMENT: Final = 20  # in characters; no sentence is shorter
_MOSTLY_LETTERS: Final = 0.85
_HALF_PROSE: Final = 0.5
_TERM_CHARS: Final = 1_000  # of one sentence; longer ones are not prose
_TITLE_BONUS: Final = 1.0
_POSITION_BONUS: Final = 1.5
_FEW_WORDS: Final = 4
_FRAGMENT_FACTOR: Final = 0.4  # text without a full stop
_HEADING_FACTOR: Final = 0.15
_ASIDE_FACTOR: Final = 0.4
_GOOD_ENOUGH: Final = 0.5
_UNSPACED_FROM: Final = "\u2e80"  # scripts from here on use the East Asian semicolon

# --- Sentences ---
_FULL_STOPS: Final = "\u3002\uff01\uff1f\uff61"  # of Chinese and Japanese; no blank has to follow them
_CLOSERS: Final = "\"')\\]\u201d\u2019\u300d\u300f\uff09"  # quotes and brackets that may follow a full stop
_STOP: Final = re.compile(rf"[{_FULL_STOPS}]+[{_CLOSERS}]*|(?<![.!?\u2026])[.!?\u2026]++[{_CLOSERS}]*+(?= [^a-z]|\Z)")
"""The end of a sentence. A run of full stops is tried once, as a whole: if it ends no sentence, no part of it does."""
_ABBREVIATION: Final = re.compile(r"\b(?:e\.g|i\.e|etc|cf|vs|[DM]r|Mrs|[A-Z])\Z")
_ODD: Final = re.compile(r"[0-9_=+*/\\|<>\[\]{}$%^&~@#\u2190-\u2bff]")  # frequent in code, tables and formulas
_ENDS: Final = re.compile(rf"[.!?\u2026{_FULL_STOPS}][{_CLOSERS}]*\Z")


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    index: int
    terms: tuple[str, ...]
    prose: float
    folded: str


def brief_of(title: str, content: str) -> str:
    """Returns one line of at most ``BRIEF_CHARS`` characters: the first good sentence of the text, or the title."""
    title = _one_line(title[:_TERM_CHARS])
    first = _sentences(content[:_READ_CHARS], title)[:_BRIEF_SENTENCES]
    worth = [sentence.prose * (1 - sentence.index / _BRIEF_SENTENCES) for sentence in first]
    # Prefers the first sentence, because its author chose to begin with it; only a far better one replaces it.
    enough = max(worth, default=0.0) * _GOOD_ENOUGH
    best = next((sentence.text for sentence, value in zip(first, worth, strict=True) if value >= enough), title)
    return _shorten(best, BRIEF_CHARS)


def summary_of(title: str, content: str) -> str:
    """Returns a summary of at most ``SUMMARY_CHARS`` characters in sentences of the text; the title if it is blank."""
    title = _one_line(title[:_TERM_CHARS])
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
    """Returns a summary of at most ``SUMMARY_CHARS`` characters from the summaries of parts, in their order.

    It takes the best sentence of as many parts as fit before it takes a second one of any part, so that a search finds
    the whole by the subject of any of its parts.
    """
    of_part = [_sentences(part, "") for part in parts]
    part_of = [part for part, sentences in enumerate(of_part) for _ in sentences]
    numbered = [replace(sentence, index=index) for index, sentence in enumerate(chain.from_iterable(of_part))]
    ranked = _ranked(numbered, "")
    rounds, times = list[tuple[int, int, _Sentence]](), Counter[int]()
    for rank, sentence in enumerate(ranked):
        part = part_of[sentence.index]
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
    """Returns a text as a summary: one line, cut after the last whole sentence that fits, else at the end of a word."""
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
    """Joins sentences to one line; fragments are ended with a semicolon."""
    text = ""
    for sentence in sentences:
        text += _gap(text) + sentence.text
    return text


def _gap(text: str) -> str:
    """Returns the separator after a text: none after the full stop of an unspaced script."""
    if not text or text[-1] in _FULL_STOPS:
        return ""
    if _ENDS.search(text[-_END_CHARS:]) or text[-1] in _PAUSES:
        return " "
    return _BREAK if text[-1] < _UNSPACED_FROM else _UNSPACED_BREAK


def _ranked(sentences: Sequence[_Sentence], title: str) -> list[_Sentence]:
    """Returns the sentences, best first; ties in the order of the text."""
    frequency = Counter(term for sentence in sentences for term in set(sentence.terms))
    named = set(content_words(title))

    def score(sentence: _Sentence) -> float:
        terms = set(sentence.terms)
        # The mean favours dense sentences; a minimum divisor, because few words say little, however frequent they are.
        # fsum is exact: sets are ordered differently in each process, and equal sentences must tie in all of them.
        weight = fsum(log2(1 + frequency[term]) for term in terms) / max(len(terms), _FEW_WORDS)
        weight += _TITLE_BONUS * len(terms & named) / max(len(named), 1) + _POSITION_BONUS / (1 + sentence.index)
        return weight * sentence.prose

    return sorted(sentences, key=lambda sentence: (-score(sentence), sentence.index))


def _prose(text: str, terms: Collection[str], kind: Kind) -> float:
    """Returns how much a text looks like a sentence: 1, or less for asides, lead-ins, headings, code and tables."""
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
    return factor * _FRAGMENT_FACTOR  # regardless of its number of words: among fragments the first is as good as any


# --- Text ------------------------------------------------------------------------------------------------------------


def _sentences(content: str, title: str) -> Sequence[_Sentence]:
    """Returns the first distinct sentences that have a content word and do not just repeat the title."""
    found = _distinct_sentences(content)
    repeated = next((sentence.index for sentence in found if sentence.folded == title.casefold()), None)
    if repeated is None:
        return found[:_MAX_SENTENCES]
    later = (replace(sentence, index=sentence.index - 1) for sentence in found[repeated + 1 :])
    return (*found[:repeated], *later)


@lru_cache(maxsize=4)
def _distinct_sentences(content: str) -> tuple[_Sentence, ...]:
    """Returns one sentence more than are used, since the title may be one of them.

    The small cache is there because the brief and the summary of a text are usually made together, and once more when
    a node gets another title.
    """
    found: list[_Sentence] = []
    seen: set[str] = set()
    for text, kind in _texts(content):
        folded = text.casefold()
        terms = content_words(text[:_TERM_CHARS])
        if terms and folded not in seen:
            seen.add(folded)
            found.append(_Sentence(text, len(found), terms, _prose(text, terms, kind), folded))
        if len(found) > _MAX_SENTENCES:
            break
    return tuple(found)


def _texts(content: str) -> Iterator[tuple[str, Kind]]:
    """Yields the sentences of a text; short list items that are not sentences are joined."""
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
    """Yields the sentences of one line."""
    start = 0
    for stop in _STOP.finditer(line):
        if stop[0] == "." and _ABBREVIATION.search(line, max(start, stop.start() - 4), stop.start()):
            continue
        yield line[start : stop.end()].strip()
        start = stop.end()
    if start < len(line):
        yield line[start:].strip()


def content_words(text: str) -> tuple[str, ...]:
    """Returns the terms of a text in order, without words that are frequent in every text."""
    return tuple(term for term in words_of(text) if not is_common(term))


def _one_line(text: str) -> str:
    return " ".join(UNPRINTED.sub("", text).split())


def _shorten(text: str, length: int) -> str:
    """Returns the text, cut at the end of a word if it is too long."""
    if len(text) <= length:
        return text
    cut = text[: length - len(_ELLIPSIS)]
    blank = cut.rfind(" ", length // 2)
    return (cut[:blank] if blank > 0 else cut).rstrip(" ,;:-") + _ELLIPSIS
