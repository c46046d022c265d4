"""Reads Jupyter notebooks: their cells as Markdown, code and the text of its outputs."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from memotree.forest.documents import markdown, tables
from memotree.forest.documents.canonical import canonical_text, one_line
from memotree.forest.documents.document import (
    Document,
    EmptyDocumentError,
    Table,
    TooDeepDocumentError,
    UnreadableDocumentError,
    quoted,
)
from memotree.forest.documents.kinds import NOTEBOOK
from memotree.forest.documents.outline import Heading, nest
from memotree.forest.documents.packed import UnpackedTooLargeError

LARGEST: Final = 64 << 20
"""The most characters of the JSON of a notebook; parsed, it takes several times as much memory."""

_OUTPUT_CHARS: Final = 20_000
"""The most characters of the outputs of one cell; a training run may print megabytes."""
_ANSI: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_FENCES: Final = re.compile(r"`{3,}")


class InvalidNotebookError(UnreadableDocumentError):
    """The JSON is no notebook."""

    reason = "INVALID_NOTEBOOK"

    def __init__(self, name: str, fault: str) -> None:
        super().__init__(f"{quoted(name)} is not a notebook: it {fault}; save it again in Jupyter and ingest that.")


def read(text: str, *, name: str = "") -> Document:
    """Returns the text of a notebook, as Markdown: its code and outputs are fenced, its headings are the sections.

    Of an output only text is read: what was printed, a value as text, the name of an error.

    Raises:
        InvalidNotebookError: If it is no notebook.
        TooDeepDocumentError: If its JSON is nested too deep.
        UnpackedTooLargeError: If it has over `LARGEST` characters.
        EmptyDocumentError: If no cell has text.
    """
    if len(text) > LARGEST:
        raise UnpackedTooLargeError(name, f"is a notebook of over {LARGEST >> 20} Mi characters, mostly of outputs")
    try:
        notebook = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidNotebookError(name, f"is not JSON at line {error.lineno}") from error
    except ValueError as error:  # Python reads no number of thousands of digits
        raise InvalidNotebookError(name, "has a number that is too long") from error
    except RecursionError as error:
        raise TooDeepDocumentError(name, "JSON nested too deep for a notebook", "one that Jupyter has saved") from error
    writer = _Writer(_language(notebook))
    for cell in _cells(notebook, name):
        writer.cell(cell)
    return writer.document(name)


def _cells(notebook: Any, name: str) -> Iterator[Mapping[str, Any]]:
    cells = None
    if isinstance(notebook, Mapping):
        cells = notebook.get("cells")
        if cells is None and isinstance(notebook.get("worksheets"), list):  # format 3, of before 2015
            sheets = (sheet for sheet in notebook["worksheets"] if isinstance(sheet, Mapping))
            cells = [cell for sheet in sheets for cell in sheet.get("cells") or ()]
    if not isinstance(cells, list):
        raise InvalidNotebookError(name, "has no list of cells")
    return (cell for cell in cells if isinstance(cell, Mapping))


def _language(notebook: Any) -> str:
    metadata = notebook.get("metadata") if isinstance(notebook, Mapping) else None
    for key in ("language_info", "kernelspec"):
        given = metadata.get(key) if isinstance(metadata, Mapping) else None
        value = given.get("name" if key == "language_info" else "language") if isinstance(given, Mapping) else None
        if isinstance(value, str) and re.fullmatch(r"[\w+#.-]{1,30}", value):
            return value.lower()
    return ""


class _Writer:
    def __init__(self, language: str) -> None:
        self._language = language
        self._parts: list[str] = []
        self._length = 0
        self._headings: list[Heading] = []
        self._tables: list[Table] = []
        self._cut = 0

    def cell(self, cell: Mapping[str, Any]) -> None:
        kind = cell.get("cell_type")
        source = canonical_text(_text(cell.get("source", cell.get("input"))))
        if kind == "code":
            self._fenced(source, self._language)
            self._outputs(cell.get("outputs"))
        elif kind == "heading":  # of format 3
            level = cell.get("level")
            self._markdown(f"{'#' * (level if isinstance(level, int) and 0 < level < 7 else 1)} {one_line(source)}")  # noqa: PLR2004 - Markdown has six levels
        elif kind == "markdown":
            self._markdown(source)
        else:
            self._fenced(source, "")

    def document(self, name: str) -> Document:
        text = "".join(self._parts)
        if not text:
            raise EmptyDocumentError(name)
        title = next((heading.title for heading in self._headings if heading.level == 1), "")
        warnings = (f"The outputs of {self._cut} cells were cut to {_OUTPUT_CHARS} characters.",) if self._cut else ()
        outline = nest(self._headings, text)
        return Document(text, NOTEBOOK, one_line(title), outline, warnings=warnings, tables=tuple(self._tables))

    def _markdown(self, source: str) -> None:
        if not source.strip():
            return
        begin = self._length
        self._headings += [
            Heading(heading.title, heading.level, heading.start + begin) for heading in markdown.headings(source)
        ]
        self._tables += [
            Table(table.start + begin, table.end + begin, table.header_end + begin)
            for table in tables.in_markdown(source)
        ]
        self._put(source.rstrip("\n") + "\n\n")

    def _fenced(self, source: str, language: str) -> None:
        if not source.strip():
            return
        longest = max((len(found[0]) for found in _FENCES.finditer(source)), default=2)
        fence = "`" * (longest + 1)
        self._put(f"{fence}{language}\n{source.rstrip()}\n{fence}\n\n")

    def _outputs(self, outputs: Any) -> None:
        if not isinstance(outputs, list):
            return
        shown = (_shown(output) for output in outputs if isinstance(output, Mapping))
        found = [_ANSI.sub("", text) for texts in shown for text in texts]
        text = "\n".join(part.strip("\r\n") for part in found if part.strip())
        if len(text) > _OUTPUT_CHARS:
            self._cut += 1
            text = text[:_OUTPUT_CHARS] + "…"
        self._fenced(canonical_text(text), "")

    def _put(self, text: str) -> None:
        self._parts.append(text)
        self._length += len(text)


def _shown(output: Mapping[str, Any]) -> Iterator[str]:
    kind = output.get("output_type")
    if kind == "stream":
        yield _text(output.get("text"))
    elif kind in {"error", "pyerr"}:
        yield f"{_text(output.get('ename'))}: {_text(output.get('evalue'))}"
    else:
        data = output.get("data")
        data = data if isinstance(data, Mapping) else output
        yield next((text for key in ("text/markdown", "text/plain", "text") if (text := _text(data.get(key)))), "")


def _text(value: Any) -> str:
    """Returns a text that may be given as a list of its lines."""
    if isinstance(value, list):
        return "".join(line for line in value if isinstance(line, str))
    return value if isinstance(value, str) else ""
