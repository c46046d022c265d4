"""Finds the excerpt of a long text that matches a question best, within a number of tokens.

The text is cut into units at line ends, and long lines at the ends of their sentences. The weight of a unit is the sum
of the weights of the question's words in it; words that are rare in the text weigh more. Of all runs of neighbouring
units that fit, the heaviest is taken, the first of equals. So a note of a thousand lines answers with the paragraph
that matters, and not with nothing.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from memotree_storage.index.terms import words_of
from memotree_storage.model.tokens import count_tokens, truncate_to_tokens

_LONG: Final = 400
"""A longer line is cut into sentences, and a longer sentence anywhere; in characters."""

_SENTENCE: Final = re.compile(".*?(?:(?<![.!?])[.!?]++[\"')\\]]*+\\s+|[\u3002\uff01\uff1f\uff1b]+|$)", re.DOTALL)
"""A sentence. A run of full stops is tried once, as a whole: if it ends no sentence, no part of it does."""


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
    weight: float


def best_stretch(text: str, question: str, budget: int) -> Stretch:
    """Returns the part of a text that fits ``budget`` tokens and matches the question's words best.

    The time is linear in the length of the text; call it in a thread if the text may be long.
    """
    units = _weighed(text, frozenset(words_of(question)))
    best, first, tokens, weight = (-1.0, 0, 0), 0, 0, 0.0
    for last, unit in enumerate(units):
        tokens, weight = tokens + unit.tokens, weight + unit.weight
        while tokens > budget and first <= last:
            tokens, weight = tokens - units[first].tokens, weight - units[first].weight
            first += 1
        if first <= last and round(weight, 9) > best[0]:
            best = (round(weight, 9), first, last)
    if best[0] < 0:  # no unit fits on its own: take the beginning of the heaviest
        unit = max(units, key=lambda unit: unit.weight, default=_Unit(0, 0, 0, 0.0))
        part = truncate_to_tokens(text[unit.start : unit.end], budget)
        return Stretch(part, unit.start, unit.start + len(part))
    start, end = _filled(units, best[1], best[2], budget)
    return Stretch(text[start:end], start, end)


def _filled(units: Sequence[_Unit], first: int, last: int, budget: int) -> tuple[int, int]:
    """Extends a run of units while there is room: first with the units after it, then with those before it."""
    room = budget - sum(unit.tokens for unit in units[first : last + 1])
    while last + 1 < len(units) and units[last + 1].tokens <= room:
        last += 1
        room -= units[last].tokens
    while first > 0 and units[first - 1].tokens <= room:
        first -= 1
        room -= units[first].tokens
    return units[first].start, units[last].end


def _weighed(text: str, wanted: frozenset[str]) -> list[_Unit]:
    spans = list(_spans(text))
    found = [wanted.intersection(words_of(text[start:end])) for start, end in spans]
    spread = Counter(word for words in found for word in words)
    weights = {word: math.log1p(len(spans) / number) for word, number in spread.items()}
    return [
        _Unit(start, end, count_tokens(text[start:end]), sum(weights[word] for word in sorted(words)))
        for (start, end), words in zip(spans, found, strict=True)
    ]


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Yields the lines, with long lines cut into sentences and long sentences into pieces; together the whole text."""
    offset = 0
    for line in text.splitlines(keepends=True):
        if len(line) <= _LONG:
            yield offset, offset + len(line)
        else:
            for sentence in _SENTENCE.finditer(line):
                yield from _pieces(offset + sentence.start(), offset + sentence.end())
        offset += len(line)


def _pieces(start: int, end: int) -> Iterator[tuple[int, int]]:
    for place in range(start, end, _LONG):
        yield place, min(place + _LONG, end)
