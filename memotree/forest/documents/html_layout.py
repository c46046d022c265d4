"""Lays out the text of HTML block by block."""

import re
from dataclasses import dataclass
from typing import Final

from memotree.forest.documents.canonical import canonical_text, one_line
from memotree.forest.documents.document import Table
from memotree.forest.documents.outline import Heading

_HEADINGS: Final = {f"h{level}": level for level in range(1, 7)}
_PARAGRAPHS: Final = frozenset({"p", "ul", "ol", "dl", "table", "blockquote", "pre", "figure", *_HEADINGS})
_LINES: Final = frozenset(
    {
        *("div", "section", "article", "header", "footer", "main", "nav", "aside", "address", "details", "summary"),
        *(
            "li",
            "dt",
            "dd",
            "tr",
            "caption",
            "figcaption",
            "form",
            "fieldset",
            "legend",
            "option",
            "hr",
            "body",
            "html",
        ),
    }
)
_CELLS: Final = frozenset({"td", "th"})
_SPACE: Final = re.compile(r"[ \t\n\r\f]+")
_TITLE_LOOK: Final = 2000


@dataclass(slots=True)
class _OpenTable:
    """A table of data whose rows are being written."""

    header_rows: int
    start: int = -1
    header_end: int = -1
    rows: int = 0
    cells: int = 0


class HtmlLayout:
    """Lays out the text. Breaks and blanks are held back until visible text follows them."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0
        self._breaks = 0
        self._blank = False
        self._in_cell = False
        self._lists: list[int] = []
        self._verbatim = 0
        self._prefix = ""
        self._heading: tuple[int, int, list[str]] | None = None  # level, start (or -1), text
        self._table: _OpenTable | None = None
        self.headings: list[Heading] = []
        self.tables: list[Table] = []

    def opens(self, tag: str, header_rows: int | None = None) -> None:
        """Notes that an element opens.

        Args:
            tag: Its name.
            header_rows: Of a table of data: how many of its rows are its header.
        """
        if tag == "table" and header_rows is not None and self._table is None:
            self._break(tag)
            self._table = _OpenTable(header_rows)
            return
        if tag in _CELLS:
            self._in_cell = self._table is not None
            self._prefix = "\t" if self._breaks == 0 and self._parts else ""
            if self._table is not None:
                self._open_cell(self._table)
            return
        self._break(tag)
        if tag == "li":
            count = self._lists[-1] if self._lists else -1
            if count >= 0:
                self._lists[-1] = count + 1
            mark = f"{count + 1}. " if count >= 0 else "- "
            self._prefix = "  " * (min(len(self._lists), 8) - 1) + mark
        elif tag in {"ul", "ol"}:
            self._lists.append(0 if tag == "ol" else -1)
        elif tag == "pre":
            self._verbatim += 1
        elif tag in _HEADINGS:
            self._end_heading()
            self._heading = (_HEADINGS[tag], -1, [])

    def closes(self, tag: str) -> None:
        """Notes that an element closes."""
        if self._table is not None and tag in {"table", "tr", *_CELLS}:
            self._close_table_part(self._table, tag)
            return
        if tag == "br":
            self._break_line()
            return
        if tag in _HEADINGS:
            self._end_heading()
        elif tag in {"ul", "ol"} and self._lists:
            self._lists.pop()
        elif tag == "pre":
            self._verbatim = max(0, self._verbatim - 1)
        self._break(tag)

    def text(self, text: str) -> None:
        """Adds a text."""
        if self._verbatim and not self._in_cell:
            if text:
                self._write(text)
            return
        words = _SPACE.sub(" ", text)
        if not words.strip(" "):
            self._blank = self._blank or bool(words)
            return
        self._blank = self._blank or words[0] == " "
        self._write(words.strip(" "))
        self._blank = words[-1] == " "

    def finish(self) -> str:
        """Returns the canonical text."""
        self._end_heading()
        if self._parts:
            self._parts.append("\n")
        return canonical_text("".join(self._parts))

    # --- Tables of data: a row on each line ---

    def _open_cell(self, table: "_OpenTable") -> None:
        """Writes the tab before each cell but the first, so that an empty cell keeps its column."""
        if table.cells:
            self._put("\t")
        else:
            if self._parts:
                self._put("\n" * max(1, self._breaks))
            if table.start < 0:
                table.start = self._length
            elif table.rows == table.header_rows:
                table.header_end = self._length
        table.cells += 1
        self._breaks, self._blank, self._prefix = 0, False, ""

    def _close_table_part(self, table: "_OpenTable", tag: str) -> None:
        self._in_cell = False
        self._breaks, self._blank, self._prefix = 0, False, ""
        if tag == "tr" and table.cells:
            table.rows, table.cells = table.rows + 1, 0
        elif tag == "table":
            self._table = None
            if table.start >= 0:
                header_end = max(table.start, table.header_end)
                self.tables.append(Table(table.start, self._length, header_end))
            self._breaks = 2
        if tag == "tr":
            self._breaks = 1

    # --- Text ---

    def _write(self, text: str) -> None:
        if self._parts:
            if self._breaks:
                self._put("\n" * self._breaks)
            elif self._blank and (self._parts[-1][-1:] not in {"\t", "\n"} if self._in_cell else not self._prefix):
                self._put(" ")
                self._in_heading(" ")
        self._breaks, self._blank = 0, False
        if self._heading is not None and self._heading[1] < 0:
            self._heading = (self._heading[0], self._length, self._heading[2])
        if self._prefix:
            self._put(self._prefix)
            self._prefix = ""
        self._put(text)
        self._in_heading(text)

    def _put(self, text: str) -> None:
        self._parts.append(text)
        self._length += len(text)

    def _in_heading(self, text: str) -> None:
        if self._heading is not None and sum(map(len, self._heading[2][-20:])) < _TITLE_LOOK:
            self._heading[2].append(text)

    def _break(self, tag: str) -> None:
        if self._in_cell:
            self._blank = True
            return
        wanted = 1 if tag in _LINES else 0
        if tag in _PARAGRAPHS:
            nested = tag in {"ul", "ol"} and len(self._lists) > 0
            wanted = 1 if nested else 2
        self._breaks = max(self._breaks, wanted)

    def _break_line(self) -> None:
        if self._in_cell:
            self._blank = True
            return
        self._breaks = min(2, self._breaks + 1)

    def _end_heading(self) -> None:
        if self._heading is not None:
            level, start, texts = self._heading
            if start >= 0:
                self.headings.append(Heading(one_line("".join(texts)), level, start))
            self._heading = None
