"""Finds text that two versions of a document share, in near-linear time.

Both versions are cut by content-defined chunking, as rsync and backup programs do: where a hash of the last few
characters has certain bits. So an edit moves only the cuts near it. A part that is unique in both versions is an anchor
(like lines in patience diff). The longest sequence of anchors in the same order is kept, and each anchor is extended to
both sides as far as the characters are equal.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

_WINDOW: Final = 8
_LEAST: Final = 16
_BITS: Final = 31  # a cut about every 32 characters, and at least `_LEAST` apart
_FACTORS: Final = tuple(pow(0x9E3779B1, power + 1, 1 << 32) for power in range(_WINDOW))
_HASHED_AT_ONCE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Block:
    """A common block: ``length`` equal characters from offset ``old`` of one text and offset ``new`` of the other."""

    old: int
    new: int
    length: int


def common_blocks(old: str, new: str) -> list[Block]:
    """Returns common blocks of two texts, ordered and disjoint in both; only those around parts unique in both."""
    ours, theirs = _unique_parts(old), _unique_parts(new)
    pairs = [(start, theirs[part]) for part, start in ours.items() if part in theirs]
    blocks: list[Block] = []
    old_end = new_end = 0
    for index in longest_ascent([there for _, there in pairs]):
        here, there = pairs[index]
        if here < old_end or there < new_end:
            continue
        back = _common_suffix(old, here, new, there, min(here - old_end, there - new_end))
        length = back + common_prefix(old, here, new, there)
        blocks.append(Block(here - back, there - back, length))
        old_end, new_end = here - back + length, there - back + length
    return blocks


def longest_ascent(numbers: Sequence[int]) -> list[int]:
    """Returns the indexes of a longest strictly ascending subsequence, in O(n log n)."""
    tails: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for index, number in enumerate(numbers):
        place = bisect_left(tails, number)
        before.append(ends[place - 1] if place else -1)
        tails[place : place + 1] = [number]
        ends[place : place + 1] = [index]
    chosen: list[int] = []
    index = ends[-1] if ends else -1
    while index >= 0:
        chosen.append(index)
        index = before[index]
    return chosen[::-1]


def common_prefix(one: str, at: int, two: str, there: int) -> int:
    """Returns how many characters are equal from the two offsets on."""
    most = min(len(one) - at, len(two) - there)
    low, step = 0, 64
    # Compares whole slices: their length doubles while they are equal and is halved when they are not.
    while low < most:
        step = min(step, most - low)
        if one[at + low : at + low + step] == two[there + low : there + low + step]:
            low += step
            step *= 2
        elif step == 1:
            break
        else:
            most = low + step - 1 if step > 1 else low
            step = max(1, step // 2)
    return low


def _common_suffix(one: str, at: int, two: str, there: int, most: int) -> int:
    """Returns how many characters are equal before the two offsets, at most ``most``."""
    low, step = 0, 64
    while low < most:
        step = min(step, most - low)
        if one[at - low - step : at - low] == two[there - low - step : there - low]:
            low += step
            step *= 2
        elif step == 1:
            break
        else:
            most = low + step - 1
            step = max(1, step // 2)
    return low


def _unique_parts(text: str) -> dict[str, int]:
    """Returns the parts that occur only once among all parts of the text, with their starts, in order."""
    seen: dict[str, int] = {}
    start = 0
    for end in _cuts(text):
        part = text[start:end]
        seen[part] = -1 if part in seen else start
        start = end
    return {part: at for part, at in seen.items() if at >= 0}


def _cuts(text: str) -> Iterator[int]:
    """Yields the content-defined cuts; the last one is the end of the text."""
    last = 0
    for base in range(0, len(text), _HASHED_AT_ONCE):
        low = max(0, base - _WINDOW + 1)
        codes = np.frombuffer(text[low : base + _HASHED_AT_ONCE].encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        count = len(codes) - _WINDOW + 1
        if count <= 0:
            continue
        mixed = np.zeros(count, dtype=np.uint32)
        for offset, factor in enumerate(_FACTORS):
            mixed += codes[offset : offset + count] * np.uint32(factor)
        mixed ^= mixed >> np.uint32(15)
        for hit in np.flatnonzero((mixed >> np.uint32(8)) & np.uint32(_BITS) == 0).tolist():
            cut = low + hit + _WINDOW
            if cut - last >= _LEAST:
                yield cut
                last = cut
    if last < len(text):
        yield len(text)
