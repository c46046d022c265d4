"""Finds the tables of Markdown and CSV, and tells whether the first row of a table is its header."""

import csv
import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Final

from markdown_it import MarkdownIt

from memotree.forest.documents.document import Table

_DELIMITER_ROW: Final = re.compile(
    r"^[ \t>]*+(?:\|[ \t]*+)?:?-++:?[ \t]*+(?:\|[ \t]*+:?-++:?[ \t]*+)*+(?:\|[ \t]*+)?\r?$", re.MULTILINE
)
_LINE_END: Final = re.compile(r"\r\n?|\n")
_LETTER: Final = re.compile(r"[^\W\d_]")
_DELIMITERS: Final = ",;\t|"
_LOOKED_AT: Final = 200
_LONGEST_NAME: Final = 80
_REGULAR: Final = 0.9


def in_markdown(text: str) -> tuple[Table, ...]:
    """Returns the tables of a Markdown text, as GitHub's extension of CommonMark defines them."""
    if not any("|" in found[0] for found in _DELIMITER_ROW.finditer(text)):
        return ()  # saves parsing megabytes that have no table
    starts = [0, *(found.end() for found in _LINE_END.finditer(text)), len(text)]
    tables = []
    start = end = 0
    for token in _blocks().parse(text):
        if token.map is None:
            continue
        if token.type == "table_open":
            start, end = (starts[min(line, len(starts) - 1)] for line in token.map)
        elif token.type == "thead_open":
            header_end = starts[min(token.map[0] + 2, len(starts) - 1)]  # its line, and the row of dashes
            tables.append(Table(start, end, min(header_end, end)))
    return tuple(tables)


@cache
def _blocks() -> MarkdownIt:
    """Returns a parser of blocks and tables; what is in the cells is not needed here."""
    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


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
