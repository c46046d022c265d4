"""Splits a document into the pieces that become leaves. Joining the pieces gives its text, to the last character.

`langchain-text-splitters` chooses the places, in this order: paragraphs, lines, ends of sentences (Chinese ones too),
clauses, words; for code, the beginnings of classes and functions come first. It works on one stretch (the text of one
section, or one turn) at a time. Tables are kept whole, or cut between rows (`tables`). A word too long for a piece is
cut between graphemes.

The size of a piece is that of spaced text. In an unspaced script, such as Chinese, a character is a token, so a
stretch gets pieces of a quarter of the characters: leaves have about as many tokens in all languages.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final

from memotree_storage.model.tokens import spaced_length

from memotree.forest.chunking.graphemes import cut_before, may_cut
from memotree.forest.chunking.separators import PROSE, WITHIN_PARAGRAPHS, separators_of
from memotree.forest.chunking.tables import is_broken, split_around, tables_within
from memotree.forest.documents.document import NO_SECTION, Document
from memotree.forest.documents.kinds import MAN

SPLITTER: Final = "recursive-2"
"""The version of the rules of this module. It is stored with an archive, because other rules would cut an unchanged
text at other places."""

_BLOCK: Final = 1 << 19
"""The longest text given to the splitter at once, in characters. The limit bounds its memory: it makes a string for
every word."""

_SHORT: Final = 5
"""A piece shorter than ``chunk_size / _SHORT`` is joined to a neighbour."""

_FINER: Final = tuple(re.compile(separator) for separator in WITHIN_PARAGRAPHS)
_WHOLE_PARAGRAPHS: Final = tuple(re.compile(separator) for separator in PROSE)

Cut = Callable[[str], list[str]]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Text of one section and at most one turn. No piece crosses the ends of a stretch."""

    start: int
    end: int
    section: int = NO_SECTION
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """The text of one leaf: ``text[start:end]``, with the index of its section (or ``NO_SECTION``) and of its turn."""

    start: int
    end: int
    section: int = NO_SECTION
    turn: int | None = None


def stretches(document: Document) -> list[Stretch]:
    """Returns the document cut where its sections and turns begin, without gaps.

    A stretch of white space alone is joined to the one after it, or to the one before it at the end of the document.
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
    """Splits a document into pieces.

    Args:
        document: The document.
        chunk_size: The most characters of a piece, at least 1; fewer in a stretch with unspaced scripts.
        gaps: The spans to split, in order and disjoint; the whole text if not given. Joining the pieces of a span gives
            its text, and no piece crosses the end of a section or turn.

    Returns:
        The pieces in order, each of 1 to ``chunk_size`` characters. A piece is white space alone only where a run of
        white space is too long to join it to a neighbour.
    """
    if chunk_size < 1:
        message = f"chunk_size is {chunk_size}; give at least 1, because a piece holds at least one character"
        raise ValueError(message)
    whole = stretches(document)
    parts = whole if gaps is None else _within(whole, gaps)
    separators = separators_of(document.language)
    return [
        Piece(start, end, part.section, part.turn)
        for part in parts
        for start, end in _split_part(document, part, chunk_size, separators)
    ]


def _split_part(
    document: Document, part: Stretch, chunk_size: int, separators: tuple[str, ...]
) -> Sequence[tuple[int, int]]:
    has_heads = document.media_type == MAN
    text = document.text[part.start : part.end]
    size = max(1, chunk_size * len(text) // max(spaced_length(text), 1))
    cut = _cutter(separators, size)

    def split_text(start: int, end: int) -> list[tuple[int, int]]:
        pieces = _split_text(document.text[start:end], size, cut, has_heads=has_heads)
        return [(start + low, start + high) for low, high in pieces]

    spans = split_text(part.start, part.end)
    tables = tables_within(document, part.start, part.end) if document.tables else []
    if not is_broken(document.text, spans, tables, size):
        return spans
    return split_around(document.text, (part.start, part.end), tables, size, split_text)


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


def _split_text(text: str, size: int, cut: Cut, *, has_heads: bool) -> list[tuple[int, int]]:
    if len(text) <= size:
        return [(0, len(text))] if text else []
    pieces = (part for block in _blocks(text) for piece in cut(block) for part in _fit(piece, size))
    ends = [0]
    for piece in pieces:
        ends.append(ends[-1] + len(piece))
    ends = _whole_graphemes(text, ends, size)
    return _without_crumbs(text, ends, size, has_heads=has_heads)


@lru_cache(maxsize=32)
def _cutter(separators: tuple[str, ...], size: int) -> Cut:
    from memotree.forest.chunking.linear_splitter import LinearSplitter  # noqa: PLC0415 - see there

    splitter = LinearSplitter(
        separators=list(separators),
        is_separator_regex=True,
        keep_separator="end",
        strip_whitespace=False,
        chunk_size=size,
        chunk_overlap=0,
    )
    return splitter.split_text


def _blocks(text: str) -> Iterator[str]:
    """Yields the text in parts of at most `_BLOCK` characters, each cut at the best place in its last quarter."""
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
    """Cuts a piece that no separator could cut, between graphemes."""
    start = 0
    while len(piece) - start > size:
        end = cut_before(piece, start + size, start)
        yield piece[start:end]
        start = end
    yield piece[start:]


def _whole_graphemes(text: str, ends: list[int], size: int) -> list[int]:
    """Moves each cut that is inside a grapheme to the start of the grapheme, if the next piece has room for it."""
    for index in range(1, len(ends) - 1):
        at = ends[index]
        if not may_cut(text, at):
            place = cut_before(text, at, ends[index - 1])
            if ends[index + 1] - place <= size:
                ends[index] = place
    return ends


def _without_crumbs(text: str, ends: list[int], size: int, *, has_heads: bool) -> list[tuple[int, int]]:
    """Joins very short pieces to a neighbour, such as a heading before a long paragraph or a name before a long turn.

    The splitter leaves such pieces where the part after them had to be cut. If the two are too long together, they are
    cut again near their middle. A piece of white space alone is always joined if it fits.

    With ``has_heads``, the first line of a paragraph says what the paragraph is about, such as an option in a man page:
    it is joined to what follows it, and not to the paragraph before.
    """
    short = size // _SHORT
    pieces: list[tuple[int, int]] = []
    for start, end in pairwise(ends):
        before = pieces[-1] if pieces else (start, start)
        crumb = end - start < short or before[1] - before[0] < short
        is_head = has_heads and end < len(text) and _ends_paragraph(text, start) and not _ends_paragraph(text, end)
        if not pieces or is_head or not (crumb or text[start:end].isspace() or text[slice(*before)].isspace()):
            pieces.append((start, end))
            continue
        if end - before[0] <= size:
            pieces[-1] = (before[0], end)
            continue
        middle = _middle(text, before[0], end, size, _WHOLE_PARAGRAPHS if has_heads else _FINER)
        if middle is None:
            pieces.append((start, end))
        else:
            pieces[-1:] = [(before[0], middle), (middle, end)]
            earlier = pieces[-3] if len(pieces) > 2 else before  # noqa: PLR2004 - the one before these two
            if text[slice(*earlier)].isspace() and middle - earlier[0] <= size:  # there is room for it now
                pieces[-3:-1] = [(earlier[0], middle)]
    return pieces


def _ends_paragraph(text: str, place: int) -> bool:
    return text.endswith("\n\n", 0, place)


def _middle(text: str, start: int, end: int, size: int, separators: Sequence[re.Pattern[str]]) -> int | None:
    """Returns the best place near the middle to cut ``text[start:end]`` into two pieces that are not just white space.

    ``None`` if there is no such place. The first of the separators that occurs near the middle decides.
    """
    middle = (start + end) // 2
    low, high = max(start + 1, end - size, middle - size // 4), min(end - 1, start + size, middle + size // 4)
    for pattern in separators:
        places = [found.end() for found in pattern.finditer(text, low - 1, high)]
        for place in sorted(places, key=lambda place: abs(place - middle)):
            if low <= place <= high and _both_show(text, start, place, end):
                return place
    place = cut_before(text, middle, low)
    return place if low <= place <= high and _both_show(text, start, place, end) else None


def _both_show(text: str, start: int, place: int, end: int) -> bool:
    return not text[start:place].isspace() and not text[place:end].isspace() and may_cut(text, place)
