"""Cuts a text with tables: a table that fits into a piece is kept whole, a longer one is cut between its rows."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from memotree.forest.documents.document import Document, Table

_ROW_END: Final = re.compile(r"\r\n|\r(?!\n)|\n")
_BLANK_LINES: Final = re.compile(r"(?:[ \t]*(?:\r\n|\r(?!\n)|\n))*")

Span = tuple[int, int]
SplitText = Callable[[int, int], Sequence[Span]]
"""Splits the text between two offsets into pieces, by the rules for text without tables."""


def tables_within(document: Document, start: int, end: int) -> Sequence[Table]:
    """Returns the tables that have text between two offsets."""
    first = bisect_right(document.tables, start, key=lambda table: table.end)
    last = bisect_left(document.tables, end, key=lambda table: table.start)
    return document.tables[first:last]


def is_broken(text: str, spans: Sequence[Span], tables: Sequence[Table], size: int) -> bool:
    """Whether pieces cut a table that fits into one piece, or a row that does."""
    ends = [end for _, end in spans[:-1]]
    for table in tables:
        inside = ends[bisect_right(ends, table.start) : bisect_left(ends, table.end)]
        if inside and (table.end - table.start <= size or _cuts_row(text, table, inside, size)):
            return True
    return False


def _cuts_row(text: str, table: Table, cuts: Sequence[int], size: int) -> bool:
    """Whether a row that fits into a piece is cut; the cuts are in order."""
    index = 0
    for start, end in rows(text, table):
        while index < len(cuts) and cuts[index] <= start:
            index += 1
        if index == len(cuts):
            return False
        if cuts[index] < end and end - start <= size:
            return True
    return False


def rows(text: str, table: Table) -> Iterator[Span]:
    """Yields the rows of a table; the first one is the header with the row below it."""
    begin = place = table.start
    is_open = shows = False
    for found in _ROW_END.finditer(text, table.start, table.end):
        if table.is_quoted:
            is_open ^= text.count('"', place, found.end()) % 2 == 1
        before, place = max(place, table.header_end), found.end()
        shows = shows or (place > before and _shows(text, before, place))
        if shows and not is_open:
            yield begin, place
            begin, shows = place, False
    if begin < table.end:
        yield begin, table.end


def _shows(text: str, start: int, end: int) -> bool:
    return not text[start:end].isspace()


def split_around(text: str, whole: Span, tables: Sequence[Table], size: int, split_text: SplitText) -> list[Span]:
    """Returns the pieces of a text with tables.

    Args:
        text: The whole text.
        whole: The part of it to split.
        tables: The tables in the part, maybe only in part.
        size: The most characters of a piece.
        split_text: Splits the text around the tables.
    """
    spans: list[Span] = []
    place, stop = whole
    for table in tables:
        start, end = max(table.start, place), min(table.end, stop)
        if place < start:
            spans += split_text(place, start)
        spans += _table_pieces(text, table, (start, end), size, split_text)
        found = _BLANK_LINES.match(text, end, stop)
        place = found.end() if found is not None and found.end() - spans[-1][0] <= size else end
        spans[-1] = (spans[-1][0], place)
    if place < stop:
        spans += split_text(place, stop)
    return _without_crumbs(text, spans, size)


def _table_pieces(text: str, table: Table, part: Span, size: int, split_text: SplitText) -> list[Span]:
    start, end = part
    if end - start <= size:
        return [part]
    pieces: list[Span] = []
    for begin, stop in rows(text, table):
        low, high = max(begin, start), min(stop, end)
        if low >= high:
            continue
        if pieces and high - pieces[-1][0] <= size:
            pieces[-1] = (pieces[-1][0], high)
        elif high - low <= size:
            pieces.append((low, high))
        else:
            pieces += split_text(low, high)
    return pieces


def _without_crumbs(text: str, spans: Sequence[Span], size: int) -> list[Span]:
    """Joins a short piece to a neighbour if both fit into one; a piece of white space alone, too."""
    short = size // 5
    joined: list[Span] = []
    for start, end in spans:
        before = joined[-1] if joined else None
        is_crumb = before is not None and (
            end - start < short
            or before[1] - before[0] < short
            or not (_shows(text, start, end) and _shows(text, *before))
        )
        if before is not None and is_crumb and end - before[0] <= size:
            joined[-1] = (before[0], end)
        else:
            joined.append((start, end))
    return joined
