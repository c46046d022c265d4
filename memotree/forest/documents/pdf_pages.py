"""Reads PDF into text by page. Its sections are those of its outline, or its pages if it has none."""

import logging
import re
from collections.abc import Iterator
from io import BytesIO
from typing import Any, Final

from pypdf import PasswordType, PdfReader
from pypdf.errors import DependencyError, PyPdfError
from pypdf.generic import Destination

from memotree.forest.documents.canonical import canonical_text, one_line
from memotree.forest.documents.document import Document
from memotree.forest.documents.kinds import PDF
from memotree.forest.documents.outline import Heading, nest
from memotree.forest.documents.pdf import DamagedPdfError, EncryptedPdfError, PdfWithoutTextError

# The library logs every small fault of a file; our own warnings report those that matter.
_log = logging.getLogger("pypdf")
_log.addHandler(logging.NullHandler())
_log.propagate = False

_MOST_HEADINGS: Final = 20_000
_TITLE_WORDS: Final = 12
_WORD: Final = re.compile(r"\S+")


def read(data: bytes, *, name: str = "") -> Document:
    """Returns the text of a PDF, one page after the other.

    Raises:
        DamagedPdfError: If it cannot be parsed.
        EncryptedPdfError: If it needs a password.
        PdfWithoutTextError: If no page has text.
    """
    try:
        reader = PdfReader(BytesIO(data), strict=False)
        locked = reader.is_encrypted and reader.decrypt("") == PasswordType.NOT_DECRYPTED
        count = 0 if locked else len(reader.pages)
    except DependencyError as error:  # the cipher needs an optional package, so the file is encrypted
        raise EncryptedPdfError(name) from error
    except Exception as error:  # the library raises any kind of error for a damaged file
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
    """Returns the text of every page, ended by line breaks unless it is empty, and the count of unreadable pages."""
    texts, failed = [], 0
    for number in range(count):
        try:
            text = canonical_text(reader.pages[number].extract_text()).strip()
        except Exception:  # noqa: BLE001 - any kind of error, as above; the other pages may be readable
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
        for sentence, applies in (
            (f"{failed} pages are damaged and were left out.", failed),
            (f"{blank} pages have no text (they may be scans) and were left out.", blank),
            ("The outline is damaged; the pages are the sections instead.", fault),
        )
        if applies
    ]
    return Document(whole, PDF, _title(reader), nest(headings, whole), tuple(starts), warnings=tuple(warnings))


def _title(reader: PdfReader) -> str:
    try:
        metadata = reader.metadata
        return one_line(str(metadata.title)) if metadata is not None and metadata.title else ""
    except Exception:  # noqa: BLE001 - a damaged title counts as no title
        return ""


def _outline(reader: PdfReader, texts: list[str], starts: list[int]) -> tuple[list[Heading], bool]:
    """Returns the headings of the outline, and whether the outline is damaged."""
    try:
        entries = list(_entries(reader.outline))[:_MOST_HEADINGS]
        numbers = {
            page.indirect_reference.idnum: number
            for number, page in enumerate(reader.pages)
            if page.indirect_reference is not None
        }
    except (PyPdfError, RecursionError):
        return [], True
    except Exception:  # noqa: BLE001 - the library raises any kind of error for a damaged file
        return [], True
    headings: list[Heading] = []
    last = 0
    for level, entry in entries:
        number = _page_number(entry, numbers)
        if number is None:
            continue
        place = _find(str(entry.title or ""), texts[number], max(0, last - starts[number]))
        # An entry that points backwards gets the offset of the entry before it, so that sections stay in order.
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
    """Returns the offset of a title on its page, ignoring white space, or ``since`` if the page does not have it."""
    words = _WORD.findall(title)[:_TITLE_WORDS]
    if words and since <= len(page):
        found = re.compile(r"\s*".join(re.escape(word) for word in words), re.IGNORECASE).search(page, since)
        if found is not None:
            return found.start()
    return min(since, len(page))
