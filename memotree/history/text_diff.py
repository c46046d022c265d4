"""Line diffs of two texts with limits: of texts that are too long to compare, only the sizes are given."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from memotree_storage.model.line_matching import Match, matches

MOST_CHARS: Final = 1 << 16
"""The most characters of a value or a diff in an answer; the number of omitted ones is given."""

CONTEXT: Final = 3
"""How many equal lines are shown above and below those that differ."""


@dataclass(frozen=True, slots=True)
class Differing:
    """Lines ``low`` to ``high`` of the older text in whose place the newer one has lines ``begin`` to ``end``."""

    low: int
    high: int
    begin: int
    end: int


def unified(old: str, new: str) -> str:
    """The hunks of a unified diff, without the two lines of file names; "" for equal texts.

    A last line without a line break is marked as git does. The cost is that of `matches`, which has a bound.
    """
    if old == new:
        return ""
    before, after = lines_of(old), lines_of(new)
    found = matches(before, after)
    if found is None:
        return f"@@ too long to compare line by line: {size_of(old)} before, {size_of(new)} after @@\n"
    hunks = grouped(differing(before, after, found))
    return _bounded("".join(line for hunk in hunks for line in _hunk(before, after, hunk)))


def cut(value: str) -> str:
    """The value, truncated to fit into an answer; a truncated one ends with the number of omitted characters."""
    if len(value) <= MOST_CHARS:
        return value
    return f"{value[:MOST_CHARS]}… ({len(value) - MOST_CHARS} more characters)"


def lines_of(text: str) -> list[str]:
    """The lines with their line breaks; only a line feed ends a line, as in git."""
    parts = text.split("\n")
    return [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def differing(before: Sequence[str], after: Sequence[str], found: Iterable[Match]) -> Iterator[Differing]:
    """What lies between the matches."""
    low = begin = 0
    for match in [*found, Match(len(before), len(after), 0)]:
        if (low, begin) != (match.before, match.after):
            yield Differing(low, match.before, begin, match.after)
        low, begin = match.before + match.count, match.after + match.count


def grouped(changes: Iterable[Differing]) -> Iterator[list[Differing]]:
    """Those of each hunk: one is in the hunk of the last one if no line between them would be left out."""
    hunk: list[Differing] = []
    for each in changes:
        if hunk and each.low - hunk[-1].high > 2 * CONTEXT:
            yield hunk
            hunk = []
        hunk.append(each)
    if hunk:
        yield hunk


def _hunk(before: Sequence[str], after: Sequence[str], hunk: Sequence[Differing]) -> Iterator[str]:
    """The lines of a hunk with its heading: those that differ, and a few equal ones around them."""
    first, last = hunk[0], hunk[-1]
    above, below = min(CONTEXT, first.low), min(CONTEXT, len(before) - last.high)
    old = _place(first.low - above, last.high + below)
    new = _place(first.begin - above, last.end + below)
    yield f"@@ -{old} +{new} @@\n"
    at = first.low - above
    for each in hunk:
        yield from (_shown(" ", line) for line in before[at : each.low])
        yield from (_shown("-", line) for line in before[each.low : each.high])
        yield from (_shown("+", line) for line in after[each.begin : each.end])
        at = each.high
    yield from (_shown(" ", line) for line in before[at : at + below])


def _place(start: int, end: int) -> str:
    """The lines of a text in a heading: the number of the first, counted from 1, and how many, if not one."""
    count = end - start
    if count == 1:
        return str(start + 1)
    return f"{start + 1 if count else start},{count}"


def _shown(sign: str, line: str) -> str:
    return f"{sign}{line}" if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file\n"


def _bounded(text: str) -> str:
    if len(text) <= MOST_CHARS:
        return text
    end = text.rfind("\n", 0, MOST_CHARS) + 1
    rest = text.count("\n", end)
    return f"{text[:end]}@@ {rest} more lines @@\n"


def size_of(text: str) -> str:
    """How long a text is, for a person."""
    return f"{len(text)} characters in {text.count(chr(10)) + 1} lines"
