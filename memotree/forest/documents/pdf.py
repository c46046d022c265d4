"""PDF as a kind of document: why one cannot be read, and its reader, whose library is loaded with the first one.

The errors stand apart from the library, since the process of the server knows them and reads no PDF itself.
"""

from memotree.forest.documents.document import Document, UnreadableDocumentError, quoted


class DamagedPdfError(UnreadableDocumentError):
    """The PDF cannot be parsed."""

    reason = "DAMAGED_PDF"

    def __init__(self, name: str) -> None:
        super().__init__(f"{quoted(name)} is a damaged PDF; open it in a viewer, save it again and ingest that.")


class EncryptedPdfError(UnreadableDocumentError):
    """The PDF needs a password."""

    reason = "ENCRYPTED_PDF"

    def __init__(self, name: str) -> None:
        super().__init__(f"{quoted(name)} is an encrypted PDF; remove its password and ingest it again.")


class PdfWithoutTextError(UnreadableDocumentError):
    """The PDF has no text: it is a scan, or empty."""

    reason = "PDF_WITHOUT_TEXT"

    def __init__(self, name: str, pages: int) -> None:
        super().__init__(
            f"{quoted(name)} is a PDF without any text on its {pages} page(s), probably a scan; run text recognition"
            " (OCR) over it and ingest the result."
        )


def read(data: bytes, *, name: str = "") -> Document:
    """Returns the text of a PDF; see `pdf_pages.read`."""
    from memotree.forest.documents import pdf_pages  # noqa: PLC0415 - takes longer than all other readers together

    return pdf_pages.read(data, name=name)
