"""Reads bytes into a document: finds its kind and calls the reader of that kind."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from memotree.forest.documents import code, docx, epub, html, markdown, notebook, packed, pdf, roff, tables
from memotree.forest.documents.canonical import canonical_text, shows_something, told_of_unfit, unfit_characters
from memotree.forest.documents.conversation import InvalidTurnsError, parse_turns
from memotree.forest.documents.decoding import decode
from memotree.forest.documents.document import Document, EmptyDocumentError
from memotree.forest.documents.kinds import (
    CONVERSATION,
    CSV,
    DOCX,
    EPUB,
    HTML,
    JSON,
    MAN,
    MARKDOWN,
    NDJSON,
    NOTEBOOK,
    PDF,
    TEXT,
    TSV,
    Kind,
    UnsupportedMediaTypeError,
    kind_of,
)
from memotree.forest.documents.outline import nest

_LOOK: Final = 4096
_PARTIAL: Final = "What stands around the main content of the page, such as navigation, was left out."
_ARCHIVES: Final = (".tgz", ".tar.gz")


def read_document(data: bytes | str, *, media_type: str = "", name: str = "") -> Document:
    """Reads a document of any kind that `kinds` knows.

    These are text, Markdown, HTML, PDF, code, man pages, Word documents, EPUB books, notebooks, CSV, and conversations
    as JSON.

    The media type decides what it is, else the name's suffix, else the content. Text of every kind is decoded by its
    byte order mark, as UTF-8, or in the encoding that it or the media type declares; if all fail, the encoding is
    guessed, with a warning. `Document.text` says which characters are replaced.

    Args:
        data: The bytes of a file, or a text.
        media_type: Such as ``text/markdown``, parameters allowed; ``""`` to detect it. ``application/json`` and
            ``application/x-ndjson`` mean a list of turns.
        name: A file name or any other name; used to find the kind, and in messages.

    Raises:
        EmptyDocumentError: If it has no visible text.
        BinaryDocumentError: If it is not text.
        UndecodableDocumentError: If its encoding cannot be detected.
        UnsupportedMediaTypeError: If its media type is not a kind of text.
        InvalidTurnsError: If it is declared to be turns and is not.
        DamagedPdfError, EncryptedPdfError, PdfWithoutTextError: If no text can be extracted from a PDF.
        DamagedArchiveError, UnpackedTooLargeError: If a packed document cannot be unpacked, or becomes too large.
        UnsafeXmlError, DamagedOfficeDocumentError: If the parts of a Word document or book cannot be parsed.
        EncryptedBookError: If a book is protected against copying.
        InvalidNotebookError: If a notebook is not one.
        MissingReaderError: If the library that reads its kind is not installed.
        TooDeepDocumentError: If HTML, XML or JSON is nested too deep.
    """
    if not data:
        raise EmptyDocumentError(name)
    if isinstance(data, bytes) and data.startswith(packed.GZIP_MAGIC) and not name.lower().endswith(_ARCHIVES):
        data = packed.unpack(data, name=name)
        name = name[:-3] if name.lower().endswith(".gz") else name
        media_type = "" if "gzip" in media_type else media_type
        if not data:
            raise EmptyDocumentError(name)
    head = data[:_LOOK].encode("utf-8", "replace") if isinstance(data, str) else data[:_LOOK]
    kind = kind_of(head, media_type=media_type, name=name)
    of_bytes = _READERS_OF_BYTES.get(kind.media_type)
    if of_bytes is not None:
        if isinstance(data, str):
            raise UnsupportedMediaTypeError(name, f"{kind.media_type} given as text")
        return of_bytes(data, name=name)
    text, warning = data, ""
    if isinstance(text, bytes):
        decoded = decode(text, name=name, encoding=kind.encoding)
        text, warning = decoded.text, decoded.warning
    else:
        text = text.removeprefix("\ufeff")
    if not shows_something(text):
        raise EmptyDocumentError(name)
    document = _read(text, kind, name)
    if not shows_something(document.text):
        raise EmptyDocumentError(name)
    told: tuple[str, ...] = (warning,) if warning else ()
    if document.media_type not in _EXTRACTED:
        told += told_of_unfit(unfit_characters(text))
    return replace(document, warnings=(*told, *document.warnings)) if told else document


def _read(text: str, kind: Kind, name: str) -> Document:
    reader = _READERS.get(kind.media_type)
    if reader is not None:
        return reader(text, kind, name)
    if not kind.media_type and markdown.looks_like_markdown(text):
        return _markdown(text, kind, name)
    if kind.language:
        return _code(text, kind, name)
    return Document(canonical_text(text), kind.media_type or TEXT)


def _code(text: str, kind: Kind, name: str) -> Document:
    text = canonical_text(text)
    found = code.outline(text, kind.language, name=name)
    warnings = (found.warning,) if found.warning else ()
    outlined = nest(found.headings, text)
    return Document(text, kind.media_type, outline=outlined, language=kind.language, warnings=warnings)


def _markdown(text: str, _: Kind, __: str) -> Document:
    text = canonical_text(text)
    found = markdown.headings(text)
    return Document(text, MARKDOWN, markdown.title(text, found), nest(found, text), tables=tables.in_markdown(text))


def _csv(text: str, kind: Kind, _: str) -> Document:
    text = canonical_text(text)
    return Document(text, kind.media_type, tables=tables.in_csv(text))


def _html(text: str, _: Kind, name: str) -> Document:
    page = html.read(text, name=name)
    warnings = (_PARTIAL,) if page.is_partial else ()
    outline = nest(page.headings, page.text)
    return Document(page.text, HTML, page.title, outline, warnings=warnings, tables=page.tables)


def _turns(text: str, kind: Kind, name: str) -> Document:
    by_line = kind.media_type == NDJSON
    try:
        document = parse_turns(text, name=name, by_line=by_line)
    except InvalidTurnsError as error:
        # A file named .json that is not JSON is still text. A bad line after good ones is an error.
        if kind.declared or (by_line and error.line > 1):
            raise
        document = None
    if document is not None:
        return document
    if kind.declared:
        raise InvalidTurnsError(name, 1, "does not begin a list of turns")
    # The type is kept for the next version of the file, which is then declared: it must not promise turns.
    return Document(canonical_text(text), TEXT)


def _conversation(text: str, kind: Kind, name: str) -> Document:
    """Reads what was a conversation before: a list of turns, or a turn on each line."""
    try:
        return _turns(text, replace(kind, media_type=JSON), name)
    except InvalidTurnsError as error:
        try:
            return _turns(text, replace(kind, media_type=NDJSON), name)
        except InvalidTurnsError:
            raise error from None


def _man(text: str, _: Kind, __: str) -> Document:
    page = roff.read(text)
    return Document(page.text, MAN, page.title, nest(page.headings, page.text))


def _notebook(text: str, _: Kind, name: str) -> Document:
    return notebook.read(text, name=name)


_EXTRACTED: Final = frozenset({HTML, MAN, NOTEBOOK, CONVERSATION})
"""Kinds whose text is not the file, but what a reader of it sees; a conversation tells of its own turns."""
_READERS_OF_BYTES: Final[dict[str, Callable[..., Document]]] = {PDF: pdf.read, DOCX: docx.read, EPUB: epub.read}
_READERS: Final[dict[str, Callable[[str, Kind, str], Document]]] = {
    MARKDOWN: _markdown,
    CSV: _csv,
    TSV: _csv,
    HTML: _html,
    MAN: _man,
    NOTEBOOK: _notebook,
    JSON: _turns,
    NDJSON: _turns,
    CONVERSATION: _conversation,
}
