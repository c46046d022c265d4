"""A document after reading: one canonical text with its sections, pages and turns."""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from memotree_storage.errors import FieldViolation, InvalidInputError

NO_SECTION: Final = -1
"""The section of the text before the first heading, and the parent of an outermost section."""

DEEPEST_LEVEL: Final = 12
"""The greatest depth of an outline; deeper sections are put at this level."""

_HEADING_CHARS: Final = 2000
_JOINT: Final = " > "


class UnreadableDocumentError(InvalidInputError):
    """A document cannot be read; each cause has a reason of its own."""

    reason = "UNREADABLE_DOCUMENT"

    def __init__(self, message: str) -> None:
        super().__init__(message, [FieldViolation("document", message)])


class EmptyDocumentError(UnreadableDocumentError):
    """The document has no visible text."""

    reason = "EMPTY_DOCUMENT"

    def __init__(self, name: str) -> None:
        super().__init__(f"{quoted(name)} has no text; give a document with at least one visible character.")


class TooDeepDocumentError(UnreadableDocumentError):
    """The document is nested too deep to be parsed safely."""

    reason = "DOCUMENT_TOO_DEEP"

    def __init__(self, name: str, what: str, instead: str) -> None:
        super().__init__(f"{quoted(name)} is {what}; give {instead}.")


def quoted(name: str) -> str:
    """Returns the name of a document as the beginning of a sentence."""
    return f"The document {name[:200]!r}" if name else "The document"


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the document under a heading, with its subsections.

    Attributes:
        title: The heading: one line of at most 500 characters, at least one of them visible.
        level: Depth in the outline, 1 to `DEEPEST_LEVEL`.
        start: Offset of the heading's first character.
        end: Offset after the last character of the section and its subsections.
        parent: Index of the enclosing section, or `NO_SECTION`.
    """

    title: str
    level: int
    start: int
    end: int
    parent: int = NO_SECTION


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a conversation: ``text[start:end]`` is ``"speaker: words"`` and a line break.

    ``time``, ``id`` and ``session`` are as the caller wrote them, ``""`` when not given.
    """

    start: int
    end: int
    speaker: str = ""
    time: str = ""
    id: str = ""
    session: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table in the text, with a row on each line.

    Attributes:
        start: Offset of its first character, which is that of its header if it has one.
        end: Offset after its last row.
        header_end: Offset after its header; ``start`` if it has none.
        is_quoted: Whether a row goes on over the line ends in quotes, as in CSV.
    """

    start: int
    end: int
    header_end: int
    is_quoted: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """A document that has been read.

    Attributes:
        text: The canonical text; all offsets refer to it. It is the decoded or extracted text without its byte order
            mark, and with each character that a node may not hold replaced by one that it may (see `canonical_text`);
            of text, Markdown, code, CSV and turns, ``warnings`` names them. Line ends stay as they are. So every slice
            of it is valid content of a node.
        media_type: What it was read as, such as ``text/markdown``.
        title: The title found in the document, one line, or ``""``.
        outline: Its sections in document order, each before its subsections. Two sections are disjoint or nested.
        pages: Offset of the first character of each page; empty when there are no pages.
        turns: The turns of a conversation in order, which cover the whole text; empty for other documents.
        language: The programming language, as ``langchain_text_splitters.Language`` calls it, or ``""``.
        warnings: Sentences that say what was guessed or left out.
        tables: The tables in the text, in order and disjoint.
    """

    text: str
    media_type: str = "text/plain"
    title: str = ""
    outline: tuple[Section, ...] = ()
    pages: tuple[int, ...] = ()
    turns: tuple[Turn, ...] = ()
    language: str = ""
    warnings: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()

    def header_at(self, offset: int) -> str:
        """Returns the header of the table whose rows go on at ``offset``; ``""`` elsewhere and in the header itself."""
        index = bisect_right(self.tables, offset, key=lambda table: table.start) - 1
        if index < 0:
            return ""
        table = self.tables[index]
        return self.text[table.start : table.header_end].strip() if table.header_end <= offset < table.end else ""

    def page_at(self, offset: int) -> int:
        """Returns the page number, from 1, of the character at ``offset``; 0 for a document without pages."""
        return max(1, bisect_right(self.pages, offset)) if self.pages else 0

    def own_end(self, section: int) -> int:
        """Returns the end of a section's own text: the start of the next section of any level, or the text's end."""
        after = section + 1
        return self.outline[after].start if after < len(self.outline) else len(self.text)

    def heading_path(self, section: int) -> str:
        """Returns the headings from the outermost section to this one, joined by `` > ``; at most 2000 characters."""
        titles: list[str] = []
        while section != NO_SECTION:
            titles.append(self.outline[section].title)
            section = self.outline[section].parent
        path = _JOINT.join(reversed(titles))
        if len(path) <= _HEADING_CHARS:
            return path
        room = _HEADING_CHARS // len(titles) - len(_JOINT)
        return _JOINT.join(title if len(title) <= room else title[: room - 1] + "…" for title in reversed(titles))
