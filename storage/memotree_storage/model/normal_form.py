"""Unicode normal forms of any text, in time that is linear in its length.

A normal form sorts the marks of a letter by their classes. ``unicodedata.normalize`` does so by insertion, in the
square of their number, and no other thread runs meanwhile: 100,000 marks in another order stop everything for half a
minute. No writing has many marks on a letter; the Stream-Safe Text Format of Unicode (UAX #15) admits thirty. So longer
runs of marks are normalised in parts.
"""

import re
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from typing import Final, Literal
from unicodedata import category, normalize

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]

MOST_MARKS: Final = 64
"""How many marks in a row are sorted together."""

_KANA_MARKS: Final = "\uff9e\uff9f"  # half-width; letters by their category, which a form replaces by marks
_SCRIPTS: Final = range(0x300, 0x20000)  # all that have marks with a class


def normalized(form: Form, text: str) -> str:
    """Return a text in a normal form; of more than `MOST_MARKS` marks in a row, each part by itself."""
    if len(text) <= MOST_MARKS:
        return normalize(form, text)
    ends = [found.end() for found in _marks().finditer(text) if found.end() - found.start() == MOST_MARKS]
    return "".join(normalize(form, text[start:end]) for start, end in pairwise([0, *ends, len(text)]))


@cache
def _marks() -> re.Pattern[str]:
    marks = character_class(one for one in map(chr, _SCRIPTS) if category(one)[0] == "M")
    return re.compile(rf"(?=[^\x00-\u02ff])[{marks}{_KANA_MARKS}]{{1,{MOST_MARKS}}}+")


def character_class(characters: Iterable[str]) -> str:
    """Return letters or marks, in their order, as the inside of a character class of a regular expression.

    They are given as ranges: ``re`` has a table of those below U+10000, but compares a character with all others.
    """
    ranges: list[tuple[int, int]] = []
    for code in map(ord, characters):
        first = ranges.pop()[0] if ranges and ranges[-1][1] == code - 1 else code
        ranges.append((first, code))
    return "".join(chr(first) if first == last else f"{chr(first)}-{chr(last)}" for first, last in ranges)
