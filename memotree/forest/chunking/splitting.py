"""Cuts a document into the pieces that become leaves: joined they are its text, to the last character.

`langchain-text-splitters` chooses the places, best first: paragraphs, lines, ends of sentences (those of Chinese too),
clauses, words; for code, the beginnings of classes and functions before them. It works inside of one stretch (the text
of one section, or one turn) at a time. A word too long for a piece is cut between graphemes.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final

from langchain_text_splitters import RecursiveCharacterTextSplitter

from memotree.forest.chunking.graphemes import cut_before, may_cut
from memotree.forest.chunking.separators import WITHIN_PARAGRAPHS, separators_of
from memotree.forest.documents.document import NO_SECTION, Document

SPLITTER: Final = "recursive-1"
"""Names the rules of this module, to be kept with an archive: other rules would cut an unchanged text elsewhere."""

_BLOCK: Final = 1 << 19
"""The longest text that the splitter gets at once, in characters; it holds a string for every word of it."""

_SHORT: Final = 5
"""A piece under this part of ``chunk_size`` is too short to stand alone."""

_FINER: Final = tuple(re.compile(separator) for separator in WITHIN_PARAGRAPHS)

Cut = Callable[[str], list[str]]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Text of one section and at most one turn: no piece reaches over its ends."""

    start: int
    end: int
    section: int = NO_SECTION
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """What becomes one leaf: ``text[start:end]``, in a section (by its index, or ``NO_SECTION``) and maybe a turn."""

    start: int
    end: int
    section: int = NO_SECTION
    turn: int | None = None


def stretches(document: Document) -> list[Stretch]:
    """The document cut where its sections and turns begin, without gaps.

    A stretch of nothing but white space goes to the one behind it (the last one to the one before it).
    """
    found = [stretch for stretch in _bounded(document) if stretch.end > stretch.start]
    whole: list[Stretch] = []
    blank_from: int | None = None
    for stretch in found:
        start = stretch.start if blank_from is None else blank_from
        if document.text[start : stretch.end].isspace():
            blank_from = start
            continue
        blank_from = None
        whole.append(Stretch(start, stretch.end, stretch.section, stretch.turn))
    if blank_from is not None:
        last = whole.pop() if whole else found[0]
        whole.append(Stretch(last.start, found[-1].end, last.section, last.turn))
    return whole


def _bounded(document: Document) -> Iterator[Stretch]:
    outline = document.outline
    first = outline[0].start if outline else len(document.text)
    owned = [(0, first, NO_SECTION)]
    owned.extend((section.start, document.own_end(index), index) for index, section in enumerate(outline))
    if not document.turns:
        yield from (Stretch(*owner) for owner in owned)
        return
    turn = 0
    for start, end, section in owned:
        while turn < len(document.turns) and document.turns[turn].start < end:
            spoken = document.turns[turn]
            yield Stretch(max(start, spoken.start), min(end, spoken.end), section, turn)
            turn += 1


def split(document: Document, chunk_size: int, gaps: Iterable[tuple[int, int]] | None = None) -> list[Piece]:
    """Cut a document into pieces.

    Args:
        document: The document.
        chunk_size: The most characters of a piece, at least 1.
        gaps: The spans to cut, in order and apart; the whole text when not given. The pieces of each joined are its
            text, and none reaches over the end of a section or turn.

    Returns:
        The pieces in order: never empty, never over ``chunk_size``, and never of white space alone but where a run of
        it is too long for its neighbours.
    """
    if chunk_size < 1:
        message = f"chunk_size is {chunk_size}; a piece needs room for one character"
        raise ValueError(message)
    whole = stretches(document)
    parts = whole if gaps is None else _within(whole, gaps)
    cut = _cutter(separators_of(document.language), chunk_size)
    return [
        Piece(part.start + start, part.start + end, part.section, part.turn)
        for part in parts
        for start, end in _split_text(document.text[part.start : part.end], chunk_size, cut)
    ]


def _within(whole: Sequence[Stretch], gaps: Iterable[tuple[int, int]]) -> Iterator[Stretch]:
    index = 0
    for start, end in gaps:
        while index < len(whole) and whole[index].end <= start:
            index += 1
        for stretch in whole[index:]:
            if stretch.start >= end:
                break
            low, high = max(start, stretch.start), min(end, stretch.end)
            if low < high:
                yield Stretch(low, high, stretch.section, stretch.turn)


# --- One stretch -----------------------------------------------------------------------------------------------------


def _split_text(text: str, size: int, cut: Cut) -> list[tuple[int, int]]:
    if len(text) <= size:
        return [(0, len(text))] if text else []
    pieces = (part for block in _blocks(text) for piece in cut(block) for part in _fit(piece, size))
    ends = [0]
    for piece in pieces:
        ends.append(ends[-1] + len(piece))
    ends = _whole_graphemes(text, ends, size)
    return _without_crumbs(text, ends, size)


class _LinearSplitter(RecursiveCharacterTextSplitter):
    """The library's splitter with its last step in linear time.

    The library drops the parts of a full chunk one by one from the front of a list, so that a chunk of ``n`` parts
    costs ``n²``; without an overlap all of them go at once. Chunks are the same.
    """

    def _merge_splits(self, splits: Iterable[str], separator: str) -> list[str]:
        merged: list[str] = []
        parts: list[str] = []
        total = 0
        for part in splits:
            if parts and total + len(part) > self._chunk_size:
                merged.append(separator.join(parts))
                parts, total = [], 0
            parts.append(part)
            total += len(part)
        if parts:
            merged.append(separator.join(parts))
        return merged


@lru_cache(maxsize=32)
def _cutter(separators: tuple[str, ...], size: int) -> Cut:
    splitter = _LinearSplitter(
        separators=list(separators),
        is_separator_regex=True,
        keep_separator="end",
        strip_whitespace=False,
        chunk_size=size,
        chunk_overlap=0,
    )
    return splitter.split_text


def _blocks(text: str) -> Iterator[str]:
    """The text in parts of at most `_BLOCK` characters, cut at the best place in the last quarter of each."""
    start = 0
    while len(text) - start > _BLOCK:
        latest = start + _BLOCK
        earliest = latest - _BLOCK // 4
        for mark in ("\n\n", "\n", "。", ". ", " "):
            found = text.rfind(mark, earliest, latest)
            if found >= 0:
                end = found + len(mark)
                break
        else:
            end = cut_before(text, latest, start)
        yield text[start:end]
        start = end
    yield text[start:]


def _fit(piece: str, size: int) -> Iterator[str]:
    """What no separator could cut, cut between graphemes."""
    start = 0
    while len(piece) - start > size:
        end = cut_before(piece, start + size, start)
        yield piece[start:end]
        start = end
    yield piece[start:]


def _whole_graphemes(text: str, ends: list[int], size: int) -> list[int]:
    """Moves a cut that a separator put into a grapheme to the grapheme's start, where the next piece has room."""
    for index in range(1, len(ends) - 1):
        at = ends[index]
        if not may_cut(text, at):
            place = cut_before(text, at, ends[index - 1])
            if ends[index + 1] - place <= size:
                ends[index] = place
    return ends


def _without_crumbs(text: str, ends: list[int], size: int) -> list[tuple[int, int]]:
    """Joins pieces that are very short to a neighbour: a heading before a long paragraph, a name before a long turn.

    The splitter leaves them where the next part had to be cut itself. Where the two are too long together, they are cut
    anew near their middle; a piece of white space alone is joined to whatever stands beside it.
    """
    short = size // _SHORT
    pieces: list[tuple[int, int]] = []
    for start, end in pairwise(ends):
        before = pieces[-1] if pieces else (start, start)
        crumb = end - start < short or before[1] - before[0] < short
        if not pieces or not (crumb or text[start:end].isspace() or text[slice(*before)].isspace()):
            pieces.append((start, end))
            continue
        if end - before[0] <= size:
            pieces[-1] = (before[0], end)
            continue
        middle = _middle(text, before[0], end, size)
        if middle is None:
            pieces.append((start, end))
        else:
            pieces[-1:] = [(before[0], middle), (middle, end)]
    return pieces


def _middle(text: str, start: int, end: int, size: int) -> int | None:
    """The best place near the middle that cuts ``text[start:end]`` into two pieces that show something, if any."""
    middle = (start + end) // 2
    low, high = max(start + 1, end - size, middle - size // 4), min(end - 1, start + size, middle + size // 4)
    for pattern in _FINER:
        places = [found.end() for found in pattern.finditer(text, low - 1, high)]
        for place in sorted(places, key=lambda place: abs(place - middle)):
            if low <= place <= high and _both_show(text, start, place, end):
                return place
    place = cut_before(text, middle, low)
    return place if low <= place <= high and _both_show(text, start, place, end) else None


def _both_show(text: str, start: int, place: int, end: int) -> bool:
    return not text[start:place].isspace() and not text[place:end].isspace() and may_cut(text, place)
