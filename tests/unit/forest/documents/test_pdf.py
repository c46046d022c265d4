"""PDFs become text by page with their outline, or an error that says what to do."""

import logging
from collections.abc import Sequence
from io import BytesIO

import pytest
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from memotree.forest.documents import UnreadableDocumentError, read_document

LEVELS = 300
"""Deeper than the parser follows an outline."""


def make_pdf(pages: Sequence[Sequence[str]]) -> PdfWriter:
    """A PDF of pages of lines; a page without lines is blank, as a scan is."""
    writer = PdfWriter()
    words = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    font = DictionaryObject({NameObject(key): NameObject(value) for key, value in words.items()})
    for lines in pages:
        page = writer.add_blank_page(600, 800)
        fonts = DictionaryObject({NameObject("/F1"): font})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        stream = DecodedStreamObject()
        shown = " ".join(f"({line}) Tj 0 -20 Td" for line in lines)
        stream.set_data(f"BT /F1 12 Tf 50 750 Td {shown} ET".encode())
        page[NameObject("/Contents")] = stream
    return writer


def as_bytes(writer: PdfWriter) -> bytes:
    target = BytesIO()
    writer.write(target)
    return target.getvalue()


def reason_of(data: bytes) -> str:
    with pytest.raises(UnreadableDocumentError) as caught:
        read_document(data, name="paper.pdf")
    assert "'paper.pdf'" in caught.value.message
    return caught.value.reason


@pytest.mark.requirement("FOREST-3")
def test_pages_are_sections_when_there_is_no_outline() -> None:
    document = read_document(as_bytes(make_pdf([["First page", "more"], [], ["Third page"]])))
    assert document.media_type == "application/pdf"
    assert document.text == "First page\nmore\n\nThird page\n\n"
    assert document.pages == (0, 17, 17)
    sections = [(section.title, section.start, section.end) for section in document.outline]
    assert sections == [("Page 1", 0, 17), ("Page 3", 17, 29)]
    assert [document.page_at(offset) for offset in (0, 16, 17, 28)] == [1, 1, 3, 3]
    assert document.warnings == ("1 pages have no text (they may be scans) and were left out.",)


@pytest.mark.requirement("FOREST-3")
def test_sections_begin_where_the_titles_of_the_outline_are_in_the_text() -> None:
    writer = make_pdf([["Intro", "words", "Chapter  one", "text", "Part a", "more"], ["Chapter two", "end"]])
    writer.add_metadata({"/Title": "The paper"})
    first = writer.add_outline_item(title="Chapter one", page_number=0)
    writer.add_outline_item(title="Part A", page_number=0, parent=first)
    writer.add_outline_item(title="Not on its page", page_number=0, parent=first)
    writer.add_outline_item(title="Chapter two", page_number=1)
    writer.add_outline_item(title="Backwards", page_number=0)
    document = read_document(as_bytes(writer))
    assert document.title == "The paper"
    first_lines = {section.title: document.text[section.start :].split("\n")[0] for section in document.outline}
    assert first_lines["Chapter one"].startswith("Chapter")
    assert (first_lines["Part A"], first_lines["Chapter two"]) == ("Part a", "Chapter two")
    levels = [(section.level, section.parent) for section in document.outline]
    assert levels == [(1, -1), (2, 0), (2, 0), (1, -1), (1, -1)]
    starts = [section.start for section in document.outline]
    assert starts == sorted(starts)


def test_a_scanned_or_encrypted_pdf_is_refused_and_one_that_only_restricts_its_use_is_read() -> None:
    assert reason_of(as_bytes(make_pdf([[], []]))) == "PDF_WITHOUT_TEXT"
    for passwords in (["password"], ["", "owner"]):
        writer = make_pdf([["not for print"]])
        writer.encrypt(*passwords, algorithm="RC4-128")
        if passwords[0]:
            assert reason_of(as_bytes(writer)) == "ENCRYPTED_PDF"
        else:
            assert read_document(as_bytes(writer)).text == "not for print\n\n"


def test_a_damaged_pdf_is_refused_and_nothing_is_logged(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    whole = as_bytes(make_pdf([["words"]] * 3))
    with caplog.at_level(logging.DEBUG):
        for data in (b"%PDF-1.7", b"%PDF-1.7\n" + b"x" * 5000, whole[:100]):
            assert reason_of(data) == "DAMAGED_PDF"
        for cut in range(120, len(whole), 97):
            try:
                read_document(whole[:cut] + b"\x00<<[[" + whole[cut + 40 :])
            except UnreadableDocumentError as error:
                assert error.reason in {"DAMAGED_PDF", "PDF_WITHOUT_TEXT", "ENCRYPTED_PDF"}  # noqa: PT017
    assert capfd.readouterr().err == ""


def test_an_extremely_nested_outline_is_ignored() -> None:
    writer = make_pdf([["one"], ["two"]])
    parent = None
    for level in range(LEVELS):
        parent = writer.add_outline_item(title=f"Level {level}", page_number=0, parent=parent)
    document = read_document(as_bytes(writer))
    assert [section.title for section in document.outline] == ["Page 1", "Page 2"]
    assert document.warnings == ("The outline is damaged; the pages are the sections instead.",)
