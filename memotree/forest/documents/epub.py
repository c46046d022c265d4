"""Reads EPUB books: their chapters in the order of the spine, each an XHTML page."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import unquote
from xml.etree import ElementTree as ET

from selectolax.lexbor import LexborHTMLParser

from memotree.forest.documents import html
from memotree.forest.documents.canonical import one_line
from memotree.forest.documents.decoding import decode
from memotree.forest.documents.document import Document, EmptyDocumentError, Table, UnreadableDocumentError, quoted
from memotree.forest.documents.kinds import EPUB
from memotree.forest.documents.outline import Heading, nest
from memotree.forest.documents.packed import Archive
from memotree.forest.documents.xml_parts import DamagedOfficeDocumentError, check_part

_WHAT: Final = "EPUB"
_CONTAINER: Final = "META-INF/container.xml"
_ENCRYPTION: Final = "META-INF/encryption.xml"
_PAGES: Final = frozenset({"application/xhtml+xml", "text/html", "application/x-dtbook+xml"})
_CONTENTS: Final = "application/x-dtbncx+xml"
_LOCAL: Final = re.compile(r"\{[^}]*\}")
_DEEPEST_HEADING: Final = 6


class EncryptedBookError(UnreadableDocumentError):
    """The chapters of the book are encrypted."""

    reason = "ENCRYPTED_BOOK"

    def __init__(self, name: str) -> None:
        super().__init__(f"{quoted(name)} is protected against copying; ingest a copy without this protection.")


def read(data: bytes, *, name: str = "") -> Document:
    """Returns the text of a book; its sections are the headings of its chapters, or their names in its contents.

    Raises:
        DamagedArchiveError, UnpackedTooLargeError: If it cannot be unpacked, or becomes too large.
        UnsafeXmlError, DamagedOfficeDocumentError, TooDeepDocumentError: If its parts cannot be parsed.
        EncryptedBookError: If its chapters are encrypted.
        EmptyDocumentError: If it has no text.
    """
    archive = Archive(data, name=name)
    package_path = _package_path(archive, name)
    package = _parsed(archive, package_path, name)
    items = {
        item.get("id", ""): (_resolved(package_path, item.get("href", "")), item.get("media-type", ""), item)
        for item in _all(package, "item")
    }
    spine = [items[key] for part in _all(package, "itemref") if (key := part.get("idref", "")) in items]
    chapters = [
        path for path, kind, item in spine if kind in _PAGES and "nav" not in item.get("properties", "").split()
    ]
    if any(path in _encrypted(archive, name) for path in chapters):
        raise EncryptedBookError(name)
    contents = _contents(archive, items, name)
    title = next((one_line("".join(found.itertext())) for found in _all(package, "title")), "")
    return _joined(archive, dict.fromkeys(chapters), contents, title, name)


def _joined(
    archive: Archive, chapters: Mapping[str, None], contents: Mapping[str, str], title: str, name: str
) -> Document:
    parts: list[str] = []
    headings: list[Heading] = []
    tables: list[Table] = []
    length = missing = 0
    for path in chapters:
        if path not in archive:
            missing += 1
            continue
        page = html.read(decode(archive.read(path), name=name).text, name=name, is_whole=True)
        if not page.text.strip():
            continue
        named = contents.get(path, "")
        if named and not (page.headings and not page.text[: page.headings[0].start].strip()):
            highest = min((heading.level for heading in page.headings), default=1)
            headings.append(Heading(named, min(highest, _DEEPEST_HEADING), length))
        headings += [Heading(heading.title, heading.level, heading.start + length) for heading in page.headings]
        tables += [Table(table.start + length, table.end + length, table.header_end + length) for table in page.tables]
        parts.append(f"{page.text}\n")
        length += len(parts[-1])
    if not parts:
        raise EmptyDocumentError(name)
    text = "".join(parts)
    warnings = (f"{missing} chapters are missing in the file and were left out.",) if missing else ()
    title = title or (headings[0].title if headings else "")
    return Document(text, EPUB, title, nest(headings, text), warnings=warnings, tables=tuple(tables))


def _package_path(archive: Archive, name: str) -> str:
    if _CONTAINER in archive:
        for found in _all(_parsed(archive, _CONTAINER, name), "rootfile"):
            path = found.get("full-path", "")
            if path in archive:
                return path
    raise DamagedOfficeDocumentError(name, _WHAT)


def _parsed(archive: Archive, path: str, name: str) -> ET.Element:
    part = archive.read(path)
    check_part(part, name=name, what=_WHAT)
    return ET.fromstring(part)  # noqa: S314 - it is checked: no entities, not too deep


def _all(root: ET.Element, tag: str) -> Iterator[ET.Element]:
    """Yields the elements with a name in any namespace; books use several."""
    return (element for element in root.iter() if isinstance(element.tag, str) and _LOCAL.sub("", element.tag) == tag)


def _resolved(base: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(base), unquote(target.partition("#")[0])))


def _encrypted(archive: Archive, name: str) -> frozenset[str]:
    if _ENCRYPTION not in archive:
        return frozenset()
    references = _all(_parsed(archive, _ENCRYPTION, name), "CipherReference")
    return frozenset(unquote(found.get("URI", "")) for found in references)


def _contents(archive: Archive, items: Mapping[str, tuple[str, str, ET.Element]], name: str) -> Mapping[str, str]:
    """Returns the name of each chapter in the table of contents, by its path."""
    found: dict[str, str] = {}
    for path, kind, item in items.values():
        if path not in archive:
            continue
        if _is_contents(item):  # a page, which may have the entities of HTML
            page = LexborHTMLParser(archive.read(path))
            links = [(link.attributes.get("href") or "", link.text(deep=True)) for link in page.css("a")]
        elif kind == _CONTENTS:
            links = list(_points(_parsed(archive, path, name)))
        else:
            continue
        for target, label in links:
            if target and label.strip():
                found.setdefault(_resolved(path, target), one_line(label))
    return found


def _is_contents(item: ET.Element) -> bool:
    return "nav" in item.get("properties", "").split()


def _points(contents: ET.Element) -> Iterator[tuple[str, str]]:
    for point in _all(contents, "navPoint"):
        label = next(("".join(text.itertext()) for text in _all(point, "text")), "")
        yield next((content.get("src", "") for content in _all(point, "content")), ""), label
