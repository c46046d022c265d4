"""Reads Word documents (DOCX): mammoth turns them into HTML by their styles, which is then read like a page."""

from io import BytesIO
from typing import Any, Final
from zipfile import ZIP_STORED, ZipFile

from memotree.forest.documents import html
from memotree.forest.documents.document import Document, EmptyDocumentError, TooDeepDocumentError
from memotree.forest.documents.kinds import DOCX
from memotree.forest.documents.missing import library
from memotree.forest.documents.outline import nest
from memotree.forest.documents.packed import Archive
from memotree.forest.documents.xml_parts import DamagedOfficeDocumentError, check_part

_WHAT: Final = "Word document"
_PARTS: Final = (".xml", ".rels")
_LEFT_OUT: Final = ("word/theme/", "word/fonts/", "customxml/", "word/glossary/", "word/webextensions/")
_STYLES: Final = """
p[style-name='Title'] => h1:fresh
p[style-name='Heading 7'] => h6:fresh
p[style-name='Heading 8'] => h6:fresh
p[style-name='Heading 9'] => h6:fresh
"""


def read(data: bytes, *, name: str = "") -> Document:
    """Returns the text of a Word document; its headings are the paragraphs with a style for headings.

    Pictures, comments and the headers and footers of pages are left out; footnotes follow the text.

    Raises:
        DamagedArchiveError, UnpackedTooLargeError: If it cannot be unpacked, or becomes too large.
        UnsafeXmlError, DamagedOfficeDocumentError, TooDeepDocumentError: If its parts cannot be parsed.
        EmptyDocumentError: If it has no text.
        MissingReaderError: If mammoth is not installed.
    """
    mammoth = library("mammoth", name=name, what="a Word document")
    pictures = 0

    def leave_out(_: Any) -> list[Any]:
        nonlocal pictures
        pictures += 1
        return []

    try:
        result = mammoth.convert_to_html(
            _plain_copy(data, name),
            style_map=_STYLES,
            include_embedded_style_map=False,
            external_file_access=False,
            convert_image=leave_out,
        )
    except RecursionError as error:
        raise TooDeepDocumentError(name, "a Word document nested too deep", "one with less nesting") from error
    except (KeyError, ValueError, IndexError, AttributeError, TypeError, OSError) as error:
        # The library trusts the structure of the file and raises whatever comes of a wrong one.
        raise DamagedOfficeDocumentError(name, _WHAT) from error
    page = html.read(result.value, name=name, is_whole=True)
    if not page.text.strip():
        raise EmptyDocumentError(name)
    warnings = (f"{pictures} pictures were left out.",) if pictures else ()
    outline = nest(page.headings, page.text)
    return Document(page.text, DOCX, page.title, outline, warnings=warnings, tables=page.tables)


def _plain_copy(data: bytes, name: str) -> BytesIO:
    """Returns the document with its checked XML parts alone, not packed, so that reading it needs no limits."""
    archive = Archive(data, name=name)
    if "word/document.xml" not in archive and "_rels/.rels" not in archive:
        raise DamagedOfficeDocumentError(name, _WHAT)
    copy = BytesIO()
    with ZipFile(copy, "w", ZIP_STORED) as out:
        for entry in dict.fromkeys(archive.names):
            if not entry.lower().endswith(_PARTS) or entry.lower().startswith(_LEFT_OUT):
                continue
            part = archive.read(entry)
            check_part(part, name=name, what=_WHAT)
            out.writestr(entry, part)
    copy.seek(0)
    return copy
