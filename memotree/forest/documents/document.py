"""What a document is once it has been read: one text, and what is known about its parts."""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from memotree_storage.errors import FieldViolation, InvalidInputError

NO_SECTION: Final = -1
"""Stands for the text before the first section, and for the parent of an outermost one."""

DEEPEST_LEVEL: Final = 12
"""The greatest depth of an outline; what is deeper stands at this level."""

_HEADING_CHARS: Final = 2000
_JOINT: Final = " > "


class UnreadableDocumentError(InvalidInputError):
    """The family of documents that cannot be read; each kind has a reason of its own."""

    reason = "UNREADABLE_DOCUMENT"

    def __init__(self, message: str) -> None:
        super().__init__(message, [FieldViolation("document", message)])


class EmptyDocumentError(UnreadableDocumentError):
    """There is nothing to read in the document."""

    reason = "EMPTY_DOCUMENT"

    def __init__(self, name: str) -> None:
        super().__init__(f"{quoted(name)} has no text; give a document with at least one visible character.")


class TooDeepDocumentError(UnreadableDocumentError):
    """The document is nested deeper than anything that people write."""

    reason = "DOCUMENT_TOO_DEEP"

    def __init__(self, name: str, what: str, instead: str) -> None:
        super().__init__(f"{quoted(name)} is {what}; give {instead}.")


def quoted(name: str) -> str:
    """The name of a document as it stands at the beginning of a sentence."""
    return f"The document {name[:200]!r}" if name else "The document"


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the document under a heading, with the parts below it.

    Attributes:
        title: The heading: one line of at most 500 characters that shows something.
        level: Depth in the outline, 1 to `DEEPEST_LEVEL`.
        start: Offset of the heading's first character.
        end: Offset behind the last character of the section and of all below it.
        parent: Index of the section above, or `NO_SECTION`.
    """

    title: str
    level: int
    start: int
    end: int
    parent: int = NO_SECTION


@dataclass(frozen=True, slots=True)
class Turn:
    """What one speaker said at once: ``text[start:end]`` is ``"speaker: words"`` and a line break.

    ``time``, ``id`` and ``session`` are as the caller wrote them, ``""`` when not given.
    """

    start: int
    end: int
    speaker: str = ""
    time: str = ""
    id: str = ""
    session: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """A document that has been read.

    Attributes:
        text: The canonical text, which all offsets refer to. It is what was decoded or extracted, with a byte order
            mark removed and each character that a node may not hold replaced by one that it may, one for one (see
            `canonical_text`); line ends stay as they are. So every slice of it is valid content of a node.
        media_type: What it was read as, such as ``text/markdown``.
        title: What it calls itself, one line, or ``""``.
        outline: Its sections in document order, each before those below it; sections never overlap but to contain.
        pages: Offset of the first character of each page; empty when there are no pages.
        turns: The turns of a conversation in order, which cover the whole text; empty for other documents.
        language: The programming language, as ``langchain_text_splitters.Language`` calls it, or ``""``.
        warnings: Sentences about what had to be guessed or was left out.
    """

    text: str
    media_type: str = "text/plain"
    title: str = ""
    outline: tuple[Section, ...] = ()
    pages: tuple[int, ...] = ()
    turns: tuple[Turn, ...] = ()
    language: str = ""
    warnings: tuple[str, ...] = ()

    def page_at(self, offset: int) -> int:
        """The page, from 1, that the character at ``offset`` stands on; 0 for a document without pages."""
        return max(1, bisect_right(self.pages, offset)) if self.pages else 0

    def own_end(self, section: int) -> int:
        """Where the text of a section itself ends: at the next section of any level, or with the document."""
        after = section + 1
        return self.outline[after].start if after < len(self.outline) else len(self.text)

    def heading_path(self, section: int) -> str:
        """The headings above the text of a section, its own last, joined by `` > ``; at most 2000 characters."""
        titles: list[str] = []
        while section != NO_SECTION:
            titles.append(self.outline[section].title)
            section = self.outline[section].parent
        path = _JOINT.join(reversed(titles))
        if len(path) <= _HEADING_CHARS:
            return path
        room = _HEADING_CHARS // len(titles) - len(_JOINT)
        return _JOINT.join(title if len(title) <= room else title[: room - 1] + "…" for title in reversed(titles))
