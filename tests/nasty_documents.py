"""Documents that cost more than they seem to."""

from io import BytesIO

from pypdf import PdfWriter
from pypdf.generic import ArrayObject, DictionaryObject, NameObject, StreamObject


def pdf_bomb(pages: int, operations: int) -> bytes:
    """A small PDF whose pages share one stream that unpacks to a long text."""
    writer = PdfWriter()
    stream = StreamObject()
    stream._data = b"BT /F1 9 Tf (words and words) Tj ET\n" * operations
    shared = writer._add_object(stream.flate_encode())
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    for _ in range(pages):
        page = writer.add_blank_page(200, 200)
        page[NameObject("/Contents")] = ArrayObject([shared])
        page[NameObject("/Resources")] = DictionaryObject(
            {NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})}
        )
    file = BytesIO()
    writer.write(file)
    return file.getvalue()
