"""Finds the tables of Markdown and CSV, and tells whether the first row of a table is its header."""

import csv
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from memotree.forest.documents import markdown
from memotree.forest.documents.document import Table

_DELIMITER_ROW: Final = re.compile(
    r"^[ \t>]*+(?:\|[ \t]*+)?:?-++:?[ \t]*+(?>(?:\|[ \t]*+:?-++:?[ \t]*+)*)(?:\|[ \t]*+)?\r?$", re.MULTILINE
)
_LINE_END: Final = re.compile(r"\r\n?|\n")
_BAR: Final = re.compile(r"(?<!\\)\|")
_LETTER: Final = re.compile(r"[^\W\d_]")
_DELIMITERS: Final = ",;\t|"
_LOOKED_AT: Final = 200
_LONGEST_NAME: Final = 80
_REGULAR: Final = 0.9


def in_markdown(text: str) -> tuple[Table, ...]:
    """Returns the tables of a Markdown text, as GitHub's extension of CommonMark defines them.

    For CommonMark itself a table is a paragraph, or the end of one. So its blocks tell where a table can be (not in
    code), and a row of dashes below a row of as many cells begins one. The rule for tables of the parser would do the
    same, but takes ten times as long, because it makes a token for each cell.
    """
    dashes = [found for found in _DELIMITER_ROW.finditer(text) if "|" in found[0]]
    if not dashes:
        return ()  # saves parsing megabytes that have no table
    starts = [0, *(found.end() for found in _LINE_END.finditer(text)), len(text)]
    lines = [bisect_right(starts, found.start()) - 1 for found in dashes]
    tables = []
    for token in markdown.blocks().parse(text):
        if token.type != "paragraph_open" or token.map is None:
            continue
        first, last = token.map
        for line in lines[bisect_right(lines, first) : bisect_left(lines, last)]:
            begin, middle, end = starts[line - 1], starts[line], starts[line + 1]
            if _count(text[begin:middle]) == _count(text[middle:end]):
                tables.append(Table(begin, starts[min(last, len(starts) - 1)], end))
                break
    return tuple(tables)


def _count(row: str) -> int:
    return len(_BAR.findall(row.strip(" \t\r\n>").removeprefix("|").removesuffix("|")))


def in_csv(text: str) -> tuple[Table, ...]:
    """Returns the one table of a CSV text with its header, or none if its rows have different numbers of cells."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = max(_DELIMITERS, key=first.count)
    if not first.count(delimiter):
        return ()
    try:
        reader = csv.reader(_lines(text), delimiter=delimiter)
        header = next(reader)
        header_lines = reader.line_num
        rows = [row for row in islice(reader, _LOOKED_AT) if row]
    except (csv.Error, StopIteration):
        return ()
    if sum(len(row) == len(header) for row in rows) < _REGULAR * len(rows):
        return ()
    has_header = is_header(header) and len(rows) > 0
    header_end = sum(len(line) for line in islice(_lines(text), header_lines)) if has_header else 0
    return (Table(0, len(text), header_end, is_quoted=True),)


def _lines(text: str) -> Iterator[str]:
    start = 0
    for found in _LINE_END.finditer(text):
        yield text[start : found.end()]
        start = found.end()
    if start < len(text):
        yield text[start:]


def is_header(cells: Sequence[str]) -> bool:
    """Whether a row looks like the header of a table: several short names, all different."""
    names = [cell.strip() for cell in cells]
    return (
        len(names) > 1
        and len(set(names)) == len(names)
        and all(_LETTER.search(name) and len(name) <= _LONGEST_NAME for name in names)
    )
