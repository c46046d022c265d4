"""Aligns the leaves of an earlier version with a new version of a document, and finds the gaps between them.

A leaf is kept only if its exact text occurs in the new version, in the same order and within one section and one turn.
Turns with ids are matched first, then common text at both ends, then text around unique parts (see `shared_text`), then
single leaves in what is left. The work is bounded: repetitive text may cost kept leaves, but never time.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, TypeAlias

from memotree.forest.chunking.splitting import stretches
from memotree.forest.documents.document import Document, Turn
from memotree.forest.ingestion.shared_text import common_blocks, longest_ascent

THIN: Final = 24
"""A gap with fewer visible characters is too short for a leaf of its own. A leaf beside it is given up instead, so that
the text of both is split again."""

_SEARCHED_PER_CHARACTER: Final = 16
_SEARCHED_AT_LEAST: Final = 1 << 20
_NEAR: Final = 1000


@dataclass(frozen=True, slots=True)
class OldLeaf:
    """A leaf of the earlier version; ``speaker`` and ``turn_id`` are those of its turn, ``""`` if it has none."""

    id: str
    text: str
    speaker: str = ""
    turn_id: str = ""


@dataclass(frozen=True, slots=True)
class Kept:
    """A leaf that is kept, and the span of its text in the new version."""

    id: str
    start: int
    end: int


_Finder: TypeAlias = Callable[[int, int, int, int], Iterator[tuple[int, int]]]


def align(old: Sequence[OldLeaf], document: Document) -> list[Kept]:
    """Returns the leaves of an earlier version that a new one keeps, in order; the text between them is new.

    Args:
        old: All leaves of the earlier version, in document order.
        document: The new version; for plain text, ``Document(text)``.
    """
    return _Aligner(old, document).align()


class _Aligner:
    def __init__(self, old: Sequence[OldLeaf], document: Document) -> None:
        self._old = old
        self._text = document.text
        self._turns = document.turns
        self._turn_starts = [turn.start for turn in document.turns]
        self._bounds = [stretch.start for stretch in stretches(document)] if document.text else []
        self._bounds.append(len(document.text))
        self._starts = [0, *accumulate(len(leaf.text) for leaf in old)]
        self._searchable = _SEARCHED_PER_CHARACTER * (self._starts[-1] + len(self._text)) + _SEARCHED_AT_LEAST

    def align(self) -> list[Kept]:
        kept = self._by_turn_id()
        kept = self._refine(kept, self._by_both_ends)
        kept = self._refine(kept, self._by_anchors)
        kept = self._refine(kept, self._by_single_leaves)
        kept = self._refine(kept, self._by_neighbourhood)
        return self._result(self._without_thin_gaps(kept))

    def _refine(self, kept: list[tuple[int, int]], find: _Finder) -> list[tuple[int, int]]:
        """Returns ``kept`` and what ``find`` adds in each gap, as pairs (index of the leaf, start in the text)."""
        refined: list[tuple[int, int]] = []
        leaf = place = 0
        for index, start in [*kept, (len(self._old), len(self._text))]:
            if leaf < index and place < start:
                refined.extend(find(leaf, index, place, start))
            if index < len(self._old):
                refined.append((index, start))
                leaf, place = index + 1, start + len(self._old[index].text)
        return refined

    def _fits(self, index: int, start: int) -> bool:
        """Whether a leaf may be kept at an offset where its text occurs: within one section, and in the same turn."""
        leaf = self._old[index]
        end = start + len(leaf.text)
        if not leaf.text or self._bounds[bisect_right(self._bounds, start)] < end:
            return False
        if not self._turns:
            return True
        turn = self._turn_at(start)
        return (leaf.turn_id, leaf.speaker) == (turn.id, turn.speaker)

    def _turn_at(self, start: int) -> Turn:
        return self._turns[max(0, bisect_right(self._turn_starts, start) - 1)]

    # --- Ways to find kept leaves ------------------------------------------------------------------------------------

    def _by_turn_id(self) -> list[tuple[int, int]]:
        """Matches turns whose id is unique in both versions and whose leaves, joined, are the turn's text."""
        if not self._turns:
            return []
        runs = list(_runs(self._old))
        times_old = Counter(self._old[first].turn_id for first, _ in runs)
        times_new = Counter(turn.id for turn in self._turns)
        turns = {turn.id: turn for turn in self._turns if turn.id and times_new[turn.id] == 1}
        same: list[tuple[int, int, Turn]] = []
        for first, last in runs:
            turn = turns.get(self._old[first].turn_id)
            if turn is None or times_old[turn.id] > 1 or self._old[first].speaker != turn.speaker:
                continue
            if "".join(leaf.text for leaf in self._old[first:last]) == self._text[turn.start : turn.end]:
                same.append((first, last, turn))
        found: list[tuple[int, int]] = []
        for chosen in longest_ascent([turn.start for _, _, turn in same]):
            first, last, turn = same[chosen]
            shift = turn.start - self._starts[first]
            found.extend((index, self._starts[index] + shift) for index in range(first, last) if self._old[index].text)
        return found

    def _by_both_ends(self, first: int, last: int, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Matches leaf by leaf from the front, then from the back."""
        while first < last and self._text.startswith(self._old[first].text, low, high):
            if self._fits(first, low):
                yield first, low
            low += len(self._old[first].text)
            first += 1
        found: list[tuple[int, int]] = []
        while first < last and self._text.endswith(self._old[last - 1].text, low, high):
            last -= 1
            high -= len(self._old[last].text)
            if self._fits(last, high):
                found.append((last, high))
        yield from reversed(found)

    def _by_anchors(self, first: int, last: int, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Matches leaves that lie within blocks of text that both versions share."""
        base = self._starts[first]
        joined = "".join(leaf.text for leaf in self._old[first:last])
        for block in common_blocks(joined, self._text[low:high]):
            index = bisect_left(self._starts, base + block.old, first, last)
            end = base + block.old + block.length
            shift = low + block.new - base - block.old
            while index < last and self._starts[index + 1] <= end:
                if self._fits(index, self._starts[index] + shift):
                    yield index, self._starts[index] + shift
                index += 1

    def _by_single_leaves(self, first: int, last: int, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Matches leaves too short for an anchor that occur once in the gap, between the same neighbours or bounds."""
        times = Counter(leaf.text for leaf in self._old[first:last])
        found: list[tuple[int, int]] = []
        for index in range(first, last):
            text = self._old[index].text
            if times[text] > 1 or not text or self._searchable <= 0:
                continue
            place = self._text.find(text, low, high)
            self._searchable -= high - low
            if place >= 0 and self._fits_alone(index, place) and self._text.find(text, place + 1, high) < 0:
                found.append((index, place))
        end = low
        for chosen in longest_ascent([place for _, place in found]):
            index, place = found[chosen]
            if place >= end:
                yield index, place
                end = place + len(self._old[index].text)

    def _by_neighbourhood(self, first: int, last: int, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Matches leaves of repetitive text, each at its next occurrence if that is near."""
        for index in range(first, last):
            text = self._old[index].text
            near = min(high, low + 4 * len(text) + _NEAR)
            if not text or self._searchable <= 0:
                continue
            self._searchable -= near - low
            place = self._text.find(text, low, near)
            if place >= 0 and self._fits_alone(index, place):
                yield index, place
                low = place + len(text)

    def _fits_alone(self, index: int, start: int) -> bool:
        """Whether a leaf fits here and is not just a part of a word or line that is longer now."""
        if not self._fits(index, start):
            return False
        end = start + len(self._old[index].text)
        before = self._old[index - 1].text[-1:] if index else ""
        after = self._old[index + 1].text[:1] if index + 1 < len(self._old) else ""
        same_before = start in (0, self._at_bound(start)) or self._text[start - 1] in {before, "\n"}
        same_after = end in (len(self._text), self._at_bound(end)) or self._text[end] == after
        return same_before and (same_after or self._text[end - 1] == "\n")

    def _at_bound(self, place: int) -> int:
        """Returns ``place`` if a section or turn begins there, else -1."""
        index = bisect_left(self._bounds, place)
        return place if index < len(self._bounds) and self._bounds[index] == place else -1

    # --- The result --------------------------------------------------------------------------------------------------

    def _without_thin_gaps(self, kept: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Drops a kept leaf beside each gap that is too short for a leaf of its own."""
        dropped: set[int] = set()
        place = 0
        for number, (index, start) in enumerate([*kept, (-1, len(self._text))]):
            if place < start:
                left = number - 1 if number and self._at_bound(place) < 0 else None
                right = number if index >= 0 and self._at_bound(start) < 0 else None
                dropped.update(self._too_close(place, start, left, right))
            place = start + len(self._old[index].text) if index >= 0 else start
        return [leaf for number, leaf in enumerate(kept) if number not in dropped]

    def _too_close(self, start: int, end: int, left: int | None, right: int | None) -> Iterator[int]:
        """Yields the neighbours of a gap that are dropped, so that their text is split again with the gap's."""
        first = self._bounds[bisect_right(self._bounds, start)]
        if first >= end:
            if self._is_thin(start, end):
                words = self._text[start:end]
                forward = right is not None and words.strip() and not words.endswith("\n")
                chosen = right if forward or left is None else left
                if chosen is not None:
                    yield chosen
            return
        if left is not None and self._is_thin(start, first):
            yield left
        last = self._bounds[bisect_left(self._bounds, end) - 1]
        if right is not None and self._is_thin(last, end):
            yield right

    def _is_thin(self, start: int, end: int) -> bool:
        return start < end and len(self._text[start : min(end, start + 64 * THIN)].strip()) < THIN

    def _result(self, kept: list[tuple[int, int]]) -> list[Kept]:
        leaves = ((self._old[index], start) for index, start in kept)
        return [Kept(leaf.id, start, start + len(leaf.text)) for leaf, start in leaves]


def _runs(old: Sequence[OldLeaf]) -> Iterator[tuple[int, int]]:
    """Yields the leaves of each turn that has an id, as a half-open range of indexes."""
    first = 0
    for index in range(1, len(old) + 1):
        if index == len(old) or old[index].turn_id != old[first].turn_id:
            if old[first].turn_id:
                yield first, index
            first = index
