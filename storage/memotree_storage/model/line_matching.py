"""Finds the lines that two versions of a text have in common, with work that is bounded by construction.

Lines that are equal at the beginning and at the end come first. Between them, the lines that each version has exactly
once are anchors, as many of them as are in the same order in both (the patience diff of Bram Cohen, which reads well
because it aligns what is special). What is between two anchors is compared in the same way. A part without anchors gets
a longest common subsequence, with one bit for each pair of lines (H. Hyyrö, "Bit-parallel LCS-length computation
revisited", 2004).

So a line is looked at on at most `_MOST_LEVELS` levels, on each in time n log n for n lines, and then costs two bits
for each line that it is compared with: 20,000 lines take a few tenths of a second, whatever they are.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Final

MOST_LINES: Final = 20_000
"""The most lines of a text that are compared, not counting those that both texts begin and end with."""

_MOST_LEVELS: Final = 16
"""How often a part may be divided at anchors. Texts that somebody wrote are divided three or four times."""


@dataclass(frozen=True, slots=True)
class Match:
    """Lines that both texts have: where they begin in each, and how many they are."""

    before: int
    after: int
    count: int


@dataclass(frozen=True, slots=True)
class _Part:
    """Lines ``low`` to ``high`` of the older text, ``begin`` to ``end`` of the newer one, and how deep the part is."""

    low: int
    high: int
    begin: int
    end: int
    level: int = 0


def matches(before: Sequence[str], after: Sequence[str]) -> list[Match] | None:
    """Return what two lists of lines have in common, in order; ``None`` if more than `MOST_LINES` would be compared."""
    numbers: defaultdict[str, int] = defaultdict(lambda: len(numbers))
    old, new = [numbers[line] for line in before], [numbers[line] for line in after]
    head, tail = common_ends(old, new)
    if max(len(old), len(new)) - head - tail > MOST_LINES:
        return None
    found = [Match(0, 0, head), Match(len(old) - tail, len(new) - tail, tail)]
    waiting = [_Part(head, len(old) - tail, head, len(new) - tail)]
    while waiting:
        part = waiting.pop()
        some_old, some_new = old[part.low : part.high], new[part.begin : part.end]
        head, tail = common_ends(some_old, some_new)
        found += [Match(part.low, part.begin, head), Match(part.high - tail, part.end - tail, tail)]
        part = _Part(part.low + head, part.high - tail, part.begin + head, part.end - tail, part.level)
        some_old, some_new = some_old[head : len(some_old) - tail], some_new[head : len(some_new) - tail]
        pairs = _anchors(some_old, some_new) if part.level < _MOST_LEVELS else []
        if pairs:
            waiting += _between(part, pairs)
        else:
            pairs = _common_subsequence(some_old, some_new)
        found += [Match(part.low + one, part.begin + other, 1) for one, other in pairs]
    return _joined(found)


def common_ends(before: Sequence[object], after: Sequence[object]) -> tuple[int, int]:
    """Return the number of equal items at the start of both, and at the end among the others."""
    most = min(len(before), len(after))
    head = 0
    while head < most and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < most - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    return head, tail


def _between(part: _Part, anchors: Sequence[tuple[int, int]]) -> Iterable[_Part]:
    """The parts before, between and after anchors, whose places are counted from the start of the part."""
    low, begin = part.low, part.begin
    for one, other in [*anchors, (part.high - part.low, part.end - part.begin)]:
        yield _Part(low, part.low + one, begin, part.begin + other, part.level + 1)
        low, begin = part.low + one + 1, part.begin + other + 1


def _anchors(old: Sequence[int], new: Sequence[int]) -> list[tuple[int, int]]:
    """The places of lines that are once in each, as many as are in the same order in both."""
    ours, theirs = Counter(old), Counter(new)
    place = {line: at for at, line in enumerate(new)}
    unique = [(at, place[line]) for at, line in enumerate(old) if ours[line] == 1 == theirs[line]]
    return [unique[index] for index in _increasing([other for _, other in unique])]


def _increasing(places: Sequence[int]) -> list[int]:
    """The indexes of a longest increasing subsequence (M. L. Fredman, 1975): n log n for n places."""
    ends: list[int] = []  # the index where the best subsequence of each length ends, and the place there
    tops: list[int] = []
    previous: list[int] = []
    for index, place in enumerate(places):
        length = bisect_left(tops, place)
        previous.append(ends[length - 1] if length else -1)
        ends[length : length + 1] = [index]
        tops[length : length + 1] = [place]
    chain: list[int] = []
    index = ends[-1] if ends else -1
    while index >= 0:
        chain.append(index)
        index = previous[index]
    return chain[::-1]


def _common_subsequence(old: Sequence[int], new: Sequence[int]) -> list[tuple[int, int]]:
    """The places of a longest common subsequence, from the last one to the first.

    For each line of ``new``, a row has a bit for each line of ``old``: 0 where the longest subsequence of the lines up
    to both has one line more than without that line of ``old``. Only the first row of each group is kept; the others of
    one group at a time are made again on the way back. So the rows of 20,000 lines take a megabyte, and not fifty.
    """
    where = dict.fromkeys(new, 0)
    for at, line in enumerate(old):
        if line in where:
            where[line] |= 1 << at
    size = isqrt(len(new)) + 1
    groups = [new[start : start + size] for start in range(0, len(new), size)]
    firsts = [every := (1 << len(old)) - 1]
    for group in groups:
        firsts.append(_rows(firsts[-1], group, where, every)[-1])
    pairs: list[tuple[int, int]] = []
    one = len(old)
    for number in reversed(range(len(groups))):
        rows = _rows(firsts[number], groups[number], where, every)
        other = len(rows) - 1
        while one and other:
            if rows[other] >> (one - 1) & 1:
                one -= 1
            elif not rows[other - 1] >> (one - 1) & 1:
                other -= 1
            else:
                one, other = one - 1, other - 1
                pairs.append((one, number * size + other))
    return pairs


def _rows(first: int, lines: Sequence[int], where: Mapping[int, int], every: int) -> list[int]:
    """A row of bits, and those of the lines after it; ``where`` has a bit for each place of a line, ``every`` all."""
    rows = [row := first]
    for line in lines:
        here = row & where[line]
        row = ((row + here) | (row - here)) & every
        rows.append(row)
    return rows


def _joined(found: Iterable[Match]) -> list[Match]:
    """The matches in order, neighbours as one, without empty ones."""
    joined: list[Match] = []
    for match in sorted(found, key=lambda match: (match.before, match.after)):
        last = joined[-1] if joined else None
        if last and (last.before + last.count, last.after + last.count) == (match.before, match.after):
            joined[-1] = Match(last.before, last.after, last.count + match.count)
        elif match.count:
            joined.append(match)
    return joined
