"""Finds the excerpt of a long text that matches a question best, within a number of tokens.

The text is cut into units that fit the budget: lines; the sentences of a line that is long or does not fit; pieces of
such a sentence, at the ends of words. Of all runs of neighbouring units that fit, the one is taken that has most of the
question's words, in any of their forms: a word that is rare in the text weighs up to twice as much, and one that is
repeated adds little. What is left of the budget goes to the text around it. So a note of a thousand lines answers with
the paragraph that matters, and one endless line with the words around those of the question.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memotree_storage.index.terms import term_id, words_of
from memotree_storage.model.tokens import CHARS_PER_TOKEN, UNSPACED, count_tokens, truncate_to_tokens

from memotree.forest.recall.scoring.query_words import concepts

_LONG: Final = 100
"""A line of more tokens is cut into sentences, and a longer sentence into pieces."""

_PARTS: Final = 4
"""A piece has this part of the tokens of the longest unit, so that a run of pieces can be centred on a match."""

_LEAST: Final = 8
"""A piece has at least this many tokens, since a word that is cut is not found; so has a rest of the budget that the
beginning of the next unit is taken into."""

_ENDS: Final = (
    "(?<![.!?])[.!?]++[\"')\\]]*+\\s+",
    "[\u3002\uff01\uff1f\uff1b]+",  # Chinese and Japanese, without a space
    "(?<![\u061f\u06d4\u0964\u0965])[\u061f\u06d4\u0964\u0965]++\\s+",  # Arabic, Urdu, Hindi
    "$",
)
_SENTENCE: Final = re.compile(f".*?(?:{'|'.join(_ENDS)})", re.DOTALL)
"""A sentence. A run of full stops is tried once, as a whole: if it ends no sentence, no part of it does."""

_LAST_WORD: Final = re.compile(r"(?<=\s)\S+\Z")
_PAIR: Final = re.compile(f"[{UNSPACED}]{{2}}")


@dataclass(frozen=True, slots=True)
class Stretch:
    """An excerpt of a text: the characters from ``start`` to before ``end``."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Unit:
    start: int
    end: int
    tokens: int
    matches: frozenset[str]
    is_blank: bool


def best_stretch(text: str, question: str, budget: int) -> Stretch:
    """Returns the part of a text that fits ``budget`` tokens and matches the question's words best.

    Without a match, it is the beginning. The time is linear in the length of the text; call it in a thread if the text
    may be long.
    """
    if budget < 1:
        return Stretch("", 0, 0)
    wanted = {term: concept.stem for concept in concepts(question) for term in concept.terms}
    units = [
        _Unit(start, end, count_tokens(text[start:end]), _matches(text, start, end, wanted), text[start:end].isspace())
        for start, end in _spans(text, min(_LONG, budget))
    ]
    if not units:
        return Stretch("", 0, 0)
    start, end = _filled(text, units, *_heaviest(units, budget), budget)
    return Stretch(text[start:end], start, end)


def _heaviest(units: Sequence[_Unit], budget: int) -> tuple[int, int]:
    """Returns the first and last unit of the heaviest run that fits, without units before its first match."""
    spread = Counter(word for unit in units for word in unit.matches)
    weights = {word: 1.0 + math.log1p(len(units) / number) / math.log1p(len(units)) for word, number in spread.items()}
    beginning = next((number for number, unit in enumerate(units) if not unit.is_blank), 0)
    best, found = 0.0, (beginning, beginning)
    first, tokens, counts = 0, 0, Counter[str]()
    for last, unit in enumerate(units):
        tokens += unit.tokens
        counts.update(unit.matches)
        while tokens > budget or not (units[first].matches or first == last):
            tokens -= units[first].tokens
            counts.subtract(units[first].matches)
            first += 1
        weight = _weight(counts, weights) if unit.matches else 0.0
        if weight > best:
            best, found = weight, (first, last)
    return found


def _weight(counts: Mapping[str, int], weights: Mapping[str, float]) -> float:
    return round(sum(weights[word] * count / (count + 1) for word, count in sorted(counts.items())), 9)


def _filled(text: str, units: Sequence[_Unit], first: int, last: int, budget: int) -> tuple[int, int]:
    """Extends a run of units while there is room, by turns with the unit after it and the one before it."""
    room = budget - sum(unit.tokens for unit in units[first : last + 1])
    goes_on = True
    while goes_on:
        goes_on = False
        if last + 1 < len(units) and units[last + 1].tokens <= room:
            last, goes_on = last + 1, True
            room -= units[last].tokens
        if first > 0 and units[first - 1].tokens <= room:
            first, goes_on = first - 1, True
            room -= units[first].tokens
    end = units[last].end
    if last + 1 < len(units) and room >= _LEAST:
        end += len(_beginning(text[end : units[last + 1].end], room))
    return units[first].start, end


def _beginning(text: str, tokens: int) -> str:
    """Returns what fits of a text, up to the end of a word if it has several."""
    part = truncate_to_tokens(text, tokens)
    return part if len(part) == len(text) or text[len(part)].isspace() else _LAST_WORD.sub("", part)


def _matches(text: str, start: int, end: int, wanted: Mapping[int, str]) -> frozenset[str]:
    """Returns the question's words in a unit; a pair of unspaced characters on its border is one of them."""
    if _PAIR.fullmatch(text, end - 1, end + 1):
        end += 1
    return frozenset(wanted[term] for term in map(term_id, words_of(text[start:end])) if term in wanted)


def _spans(text: str, longest: int) -> Iterator[tuple[int, int]]:
    """Yields the lines, with long lines cut into sentences and long sentences into pieces; together the whole text."""
    offset = 0
    for line in text.splitlines(keepends=True):
        if count_tokens(line) <= longest:
            yield offset, offset + len(line)
        else:
            for sentence in _SENTENCE.finditer(line):
                start, end = offset + sentence.start(), offset + sentence.end()
                if count_tokens(sentence[0]) > longest:
                    yield from _pieces(text, start, end, min(longest, max(longest // _PARTS, _LEAST)))
                elif start < end:
                    yield start, end
        offset += len(line)


def _pieces(text: str, start: int, end: int, tokens: int) -> Iterator[tuple[int, int]]:
    """Yields consecutive parts of a sentence of at most this many tokens."""
    while start < end:
        ahead = text[start : min(end, start + CHARS_PER_TOKEN * tokens + 1)]
        part = _beginning(ahead, tokens) or ahead[:tokens]
        yield start, start + len(part)
        start += len(part)
