"""Word documents and EPUB books become text with headings; hostile ones are refused with a reason."""

import sys
from collections.abc import Mapping
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import pytest

from memotree.forest.documents import UnreadableDocumentError, packed, read_document, xml_parts
from memotree.forest.documents.kinds import DOCX, EPUB

pytestmark = pytest.mark.requirement("USE-9")

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
RELS = (
    '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    f'<Relationship Id="a" Type="{OFFICE}/officeDocument" Target="word/document.xml"/></Relationships>'
)
TYPES = '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>'


def zipped(parts: Mapping[str, str | bytes]) -> bytes:
    out = BytesIO()
    with ZipFile(out, "w") as file:
        for name, part in parts.items():
            entry = ZipInfo(name)  # without the time of now
            entry.compress_type = 0 if name == "mimetype" else ZIP_DEFLATED
            file.writestr(entry, part)
    return out.getvalue()


def paragraph(text: str, style: str = "") -> str:
    styled = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{styled}<w:r><w:t>{text}</w:t></w:r></w:p>"


def table(*rows: tuple[str, ...]) -> str:
    cells = ("".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in row) for row in rows)
    return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in cells)}</w:tbl>"


def word(body: str) -> bytes:
    document = f'<?xml version="1.0"?><w:document xmlns:w="{W}"><w:body>{body}</w:body></w:document>'
    return zipped({"[Content_Types].xml": TYPES, "_rels/.rels": RELS, "word/document.xml": document})


def book(chapters: Mapping[str, str], more: Mapping[str, str] | None = None) -> bytes:
    items = "".join(f'<item id="{key}" href="{key}.xhtml" media-type="application/xhtml+xml"/>' for key in chapters)
    spine = "".join(f'<itemref idref="{key}"/>' for key in chapters)
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>'
        f"<dc:title>The Boiler</dc:title></metadata><manifest>{items}"
        '<item id="ncx" href="toc.ncx" media-type="application/x-dtbncx+xml"/>'
        '<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/></manifest>'
        f'<spine><itemref idref="nav"/>{spine}</spine></package>'
    )
    container = '<container><rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
    parts = {"mimetype": "application/epub+zip", "META-INF/container.xml": container, "OEBPS/book.opf": package}
    return zipped({**parts, **{f"OEBPS/{key}.xhtml": chapter for key, chapter in chapters.items()}, **(more or {})})


def reason_of(data: bytes, name: str) -> str:
    with pytest.raises(UnreadableDocumentError) as caught:
        read_document(data, name=name)
    assert ";" in caught.value.message, "a sentence says what to do next"
    assert name in caught.value.message
    return caught.value.reason


# --- Word ------------------------------------------------------------------------------------------------------------

BODY = (
    paragraph("Guide", "Heading1")
    + paragraph("Open both taps.")
    + paragraph("Prices", "Heading2")
    + table(("Part", "Price"), ("bolt", "3"), ("nut", "4"))
    + paragraph("All in euros.")
)


def test_a_word_document_has_its_headings_and_tables() -> None:
    document = read_document(word(BODY), name="a.docx")
    assert (document.media_type, document.title) == (DOCX, "Guide")
    assert document.text == "Guide\n\nOpen both taps.\n\nPrices\n\nPart\tPrice\nbolt\t3\nnut\t4\n\nAll in euros.\n"
    assert [(section.level, section.title) for section in document.outline] == [(1, "Guide"), (2, "Prices")]
    headers = [document.header_at(document.text.index(cell)) for cell in ("Part", "bolt", "All")]
    assert headers == ["", "Part\tPrice", ""]
    assert read_document(word(BODY), name="a.docx") == document


@pytest.mark.parametrize("how", [{"name": "a.bin"}, {"media_type": DOCX}, {"name": "a.docm"}, {"name": "A.DOCX"}])
def test_a_word_document_is_recognised(how: dict[str, str]) -> None:
    assert read_document(word(BODY), **how).media_type == DOCX


def test_an_error_names_the_extra_if_its_reader_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mammoth", None)
    assert reason_of(word(BODY), "a.docx") == "DOCUMENT_READER_MISSING"


LAUGHS = (
    '<!DOCTYPE d [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>'
    f'<w:document xmlns:w="{W}"><w:body><w:p><w:r><w:t>&b;</w:t></w:r></w:p></w:body></w:document>'
)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"PK\x03\x04 and no more", "DAMAGED_ARCHIVE"),
        (word(BODY)[:-30], "DAMAGED_ARCHIVE"),
        (word(BODY).replace(b"word/document.xml", b"word/document.txt"), "DAMAGED_OFFICE_DOCUMENT"),
        (b"words", "DAMAGED_ARCHIVE"),
        (zipped({"a.txt": "words"}), "DAMAGED_OFFICE_DOCUMENT"),
        (word("</w:p>"), "DAMAGED_OFFICE_DOCUMENT"),
        (word(""), "EMPTY_DOCUMENT"),
        (zipped({"_rels/.rels": RELS, "word/document.xml": LAUGHS}), "UNSAFE_XML"),
        (word("<w:tbl><w:tr><w:tc>" * 90 + paragraph("x") + "</w:tc></w:tr></w:tbl>" * 90), "DOCUMENT_TOO_DEEP"),
        (word("<w:sdt><w:sdtContent>" * 120 + paragraph("x") + "</w:sdtContent></w:sdt>" * 120), "DOCUMENT_TOO_DEEP"),
    ],
)
def test_a_word_document_that_is_damaged_or_hostile_is_refused(data: bytes, reason: str) -> None:
    assert reason_of(data, "a.docx") == reason


@pytest.mark.parametrize(
    ("module", "limit", "most", "reason"),
    [
        (packed, "MOST_UNPACKED", 1 << 18, "UNPACKED_TOO_LARGE"),
        (packed, "MOST_ENTRIES", 2, "UNPACKED_TOO_LARGE"),
        (xml_parts, "MOST_ELEMENTS", 1, "UNSAFE_XML"),
    ],
)
def test_a_document_over_a_limit_is_refused(
    module: object, limit: str, most: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, limit, most)
    long = f"<p>{'a' * 300_000}</p>"
    assert reason_of(word(paragraph("a" * 300_000)), "a.docx") == reason
    assert reason_of(book({"one": long, "two": long}), "a.epub") == reason


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "MOST_UNPACKED", 1 << 20)
    bomb = zipped({"_rels/.rels": RELS, "word/document.xml": b" " * (8 << 20)})
    assert len(bomb) < 20_000
    assert reason_of(bomb, "a.docx") == "UNPACKED_TOO_LARGE"


# --- EPUB ------------------------------------------------------------------------------------------------------------

CHAPTERS = {
    "one": "<html><head><title>x</title></head><body><h1>Heat</h1><nav><p>Stays.</p></nav><p>Warm.</body></html>",
    "two": "<html><body><p>No heading here.</p></body></html>",
}
CONTENTS = '<nav><ol><li><a href="one.xhtml">I</a><li><a href="two.xhtml#x">On&nbsp;taps</a></ol></nav>'
ENCRYPTED = '<e><CipherReference URI="OEBPS/one.xhtml"/></e>'
NCX = (
    '<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap><navPoint><navLabel><text>On taps</text></navLabel>'
    '<content src="two.xhtml"/></navPoint></navMap></ncx>'
)


@pytest.mark.parametrize("contents", [{"OEBPS/nav.xhtml": CONTENTS}, {"OEBPS/toc.ncx": NCX}])
@pytest.mark.parametrize("how", [{"name": "a.epub"}, {}, {"media_type": EPUB}])
def test_a_book_has_its_chapters_in_order_named_by_heading_or_contents(
    contents: dict[str, str], how: dict[str, str]
) -> None:
    document = read_document(book(CHAPTERS, contents), **how)
    assert (document.media_type, document.title) == (EPUB, "The Boiler")
    assert document.text == "Heat\n\nStays.\n\nWarm.\n\nNo heading here.\n\n"
    beginnings = [(part.title, document.text[part.start :][:5]) for part in document.outline]
    assert beginnings == [("Heat", "Heat\n"), ("On taps", "No he")]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"PK\x03\x04" + b" " * 26 + b"mimetypeapplication/epub+zip", "DAMAGED_ARCHIVE"),
        (zipped({"mimetype": "application/epub+zip"}), "DAMAGED_OFFICE_DOCUMENT"),
        (book({}), "EMPTY_DOCUMENT"),
        (book({"one": "<p></p>"}), "EMPTY_DOCUMENT"),
        (book(CHAPTERS, {"OEBPS/book.opf": "<!DOCTYPE p [<!ENTITY a 'b'>]><p>&a;</p>"}), "UNSAFE_XML"),
        (book(CHAPTERS, {"META-INF/encryption.xml": ENCRYPTED}), "ENCRYPTED_BOOK"),
    ],
)
def test_a_book_that_is_damaged_or_hostile_is_refused(data: bytes, reason: str) -> None:
    assert reason_of(data, "a.epub") == reason


def test_a_missing_chapter_is_reported() -> None:
    with ZipFile(BytesIO(book(CHAPTERS))) as whole:
        rest = {name: whole.read(name) for name in whole.namelist() if name != "OEBPS/two.xhtml"}
    document = read_document(zipped(rest), name="a.epub")
    assert document.warnings == ("1 chapters are missing in the file and were left out.",)
