"""Documents to ingest."""

from io import BytesIO
from typing import Any

from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

WORDS = (
    *("river", "mountain", "forest", "memory", "branch", "commit", "search"),
    *("pelican", "harbour", "violin", "kettle"),
)


def paragraphs(count: int, *, words: int = 40) -> list[str]:
    """Paragraphs that differ, of one leaf each at the chunk size of 300."""
    return [
        " ".join(
            f"Paragraph {number} tells of the {WORDS[(number * 7 + place * place) % len(WORDS)]} and its"
            f" {WORDS[(number + place * 5) % len(WORDS)]}."
            for place in range(words // 8)
        )
        for number in range(count)
    ]


def prose(count: int, **fields: Any) -> str:
    return "\n\n".join(paragraphs(count, **fields)) + "\n"


def pdf(pages: list[str], outline: list[tuple[str, int, int]] = (), *, password: str = "") -> bytes:  # type: ignore[assignment]
    """A PDF with a line of text on each page, and an outline of (title, page, depth)."""
    writer = PdfWriter()
    facts = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    font = DictionaryObject({NameObject(key): NameObject(value) for key, value in facts.items()})
    for text in pages:
        page = writer.add_blank_page(width=600, height=800)
        stream = DecodedStreamObject()
        lines = "".join(f"({line}) Tj T* " for line in text.split("\n"))
        stream.set_data(f"BT /F1 12 Tf 14 TL 50 700 Td {lines}ET".encode("latin-1"))
        page[NameObject("/Contents")] = writer._add_object(stream)
        fonts = DictionaryObject({NameObject("/F1"): writer._add_object(font)})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
    above: dict[int, Any] = {}
    for title, page_number, depth in outline:
        above[depth] = writer.add_outline_item(title=title, page_number=page_number, parent=above.get(depth - 1))
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    out = BytesIO()
    writer.write(out)
    return out.getvalue()
