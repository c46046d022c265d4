"""PDF as text by page, with the outline where there is one, else with its pages as sections."""

import logging
import re
from collections.abc import Iterator
from io import BytesIO
from typing import Any, Final

from pypdf import PasswordType, PdfReader
from pypdf.errors import DependencyError, PyPdfError
from pypdf.generic import Destination

from memotree.forest.documents.canonical import canonical_text, one_line
from memotree.forest.documents.document import Document, UnreadableDocumentError, quoted
from memotree.forest.documents.kinds import PDF
from memotree.forest.documents.outline import Heading, nest

# The library tells of every small fault of a file; what matters of them is told by our own warnings.
_log = logging.getLogger("pypdf")
_log.addHandler(logging.NullHandler())
_log.propagate = False

_MOST_HEADINGS: Final = 20_000
_TITLE_WORDS: Final = 12
_WORD: Final = re.compile(r"\S+")


class DamagedPdfError(UnreadableDocumentError):
    """The PDF cannot be parsed."""

    reason = "DAMAGED_PDF"

    def __init__(self, name: str) -> None:
        super().__init__(f"{quoted(name)} is a damaged PDF; open it in a viewer, save it anew and ingest that.")


class EncryptedPdfError(UnreadableDocumentError):
    """The PDF asks for a password."""

    reason = "ENCRYPTED_PDF"

    def __init__(self, name: str) -> None:
        super().__init__(f"{quoted(name)} is an encrypted PDF; remove its password and ingest it again.")


class PdfWithoutTextError(UnreadableDocumentError):
    """The PDF holds pictures of text, or nothing."""

    reason = "PDF_WITHOUT_TEXT"

    def __init__(self, name: str, pages: int) -> None:
        super().__init__(
            f"{quoted(name)} is a PDF without any text on its {pages} page(s), as a scan is; run text recognition"
            " (OCR) over it and ingest the result."
        )


def read(data: bytes, *, name: str = "") -> Document:
    """The text of a PDF, page behind page.

    Raises:
        DamagedPdfError: When it cannot be parsed.
        EncryptedPdfError: When it asks for a password.
        PdfWithoutTextError: When no page has text.
    """
    try:
        reader = PdfReader(BytesIO(data), strict=False)
        locked = reader.is_encrypted and reader.decrypt("") == PasswordType.NOT_DECRYPTED
        count = 0 if locked else len(reader.pages)
    except DependencyError as error:  # a cipher that needs one more package, so there is a password
        raise EncryptedPdfError(name) from error
    except Exception as error:  # damage shows itself as errors of every kind
        raise DamagedPdfError(name) from error
    if locked:
        raise EncryptedPdfError(name)
    texts, failed = _texts(reader, count)
    if count and failed == count:
        raise DamagedPdfError(name)
    if not any(text.strip() for text in texts):
        raise PdfWithoutTextError(name, count)
    return _assemble(reader, texts, failed)


def _texts(reader: PdfReader, count: int) -> tuple[list[str], int]:
    """The text of every page, ending with a line break unless it is empty, and how many could not be read."""
    texts, failed = [], 0
    for number in range(count):
        try:
            text = canonical_text(reader.pages[number].extract_text()).strip()
        except Exception:  # noqa: BLE001 - as above; the other pages may be whole
            failed += 1
            text = ""
        texts.append(f"{text}\n\n" if text else "")
    return texts, failed


def _assemble(reader: PdfReader, texts: list[str], failed: int) -> Document:
    starts, length = [], 0
    for text in texts:
        starts.append(length)
        length += len(text)
    whole = "".join(texts)
    headings, fault = _outline(reader, texts, starts)
    if not headings and len(texts) > 1:
        headings = [
            Heading(f"Page {number}", 1, start)
            for number, (start, text) in enumerate(zip(starts, texts, strict=True), 1)
            if text
        ]
    blank = sum(1 for text in texts if not text) - failed
    warnings = [
        sentence
        for sentence, tell in (
            (f"{failed} pages are damaged and were left out.", failed),
            (f"{blank} pages have no text, as scans have none, and were left out.", blank),
            ("The outline is damaged; the pages stand for it.", fault),
        )
        if tell
    ]
    return Document(whole, PDF, _title(reader), nest(headings, whole), tuple(starts), warnings=tuple(warnings))


def _title(reader: PdfReader) -> str:
    try:
        metadata = reader.metadata
        return one_line(str(metadata.title)) if metadata is not None and metadata.title else ""
    except Exception:  # noqa: BLE001 - a damaged title is none
        return ""


def _outline(reader: PdfReader, texts: list[str], starts: list[int]) -> tuple[list[Heading], bool]:
    """The headings of the outline, and whether it is there and cannot be read."""
    try:
        entries = list(_entries(reader.outline))[:_MOST_HEADINGS]
        numbers = {
            page.indirect_reference.idnum: number
            for number, page in enumerate(reader.pages)
            if page.indirect_reference is not None
        }
    except (PyPdfError, RecursionError):
        return [], True
    except Exception:  # noqa: BLE001 - damage shows itself as errors of every kind
        return [], True
    headings: list[Heading] = []
    last = 0
    for level, entry in entries:
        number = _page_number(entry, numbers)
        if number is None:
            continue
        place = _find(str(entry.title or ""), texts[number], max(0, last - starts[number]))
        # An entry that points back stands where the one before it does, so that sections stay in order.
        last = max(last, starts[number] + place)
        headings.append(Heading(one_line(str(entry.title or "")), level, last))
    return headings, False


def _entries(outline: Any) -> Iterator[tuple[int, Destination]]:
    waiting: list[Iterator[Any]] = [iter(outline)]
    while waiting:
        for entry in waiting[-1]:
            if isinstance(entry, list):
                waiting.append(iter(entry))
                break
            yield len(waiting), entry
        else:
            waiting.pop()


def _page_number(entry: Destination, numbers: dict[int, int]) -> int | None:
    page = entry.page
    if isinstance(page, int):
        return int(page) if 0 <= page < len(numbers) else None
    number = getattr(page, "idnum", None)
    return None if number is None else numbers.get(number)


def _find(title: str, page: str, since: int) -> int:
    """Where a title stands on its page, white space aside; the place to look from when it does not."""
    words = _WORD.findall(title)[:_TITLE_WORDS]
    if words and since <= len(page):
        found = re.compile(r"\s*".join(re.escape(word) for word in words), re.IGNORECASE).search(page, since)
        if found is not None:
            return found.start()
    return min(since, len(page))
