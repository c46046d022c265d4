"""Decodes the bytes of a document.

The encoding is, in this order: the one of the byte order mark, the one that the sender named, UTF-8, the one that the
document declares, and a guess, which is reported as a warning.
"""

import codecs
import re
from dataclasses import dataclass
from typing import Final

from memotree.forest.documents.document import UnreadableDocumentError, quoted

_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_MAGIC: Final = (
    (b"PK\x03\x04", "a ZIP archive or an office document"),
    (b"\xd0\xcf\x11\xe0", "an old office document"),
    (b"\x89PNG\r\n", "an image"),
    (b"\xff\xd8\xff", "an image"),
    (b"GIF8", "an image"),
    (b"\x1f\x8b", "a compressed file"),
    (b"BZh", "a compressed file"),
    (b"\xfd7zXZ\x00", "a compressed file"),
    (b"(\xb5/\xfd", "a compressed file"),
    (b"7z\xbc\xaf\x27\x1c", "a compressed file"),
    (b"\x7fELF", "a program"),
    (b"SQLite format 3\x00", "a database"),
)
_DECLARED: Final = re.compile(
    rb"<(?:meta|\?xml)\b[^>]{0,200}?(?:charset|encoding)\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE
)
_CONTROLS: Final = bytes(byte for byte in range(32) if byte not in b"\t\n\x0b\x0c\r\x1b")
_SAMPLE: Final = 1 << 18
_MANY_CONTROLS: Final = 0.02
_WIDE_SHARE: Final = 0.3


class BinaryDocumentError(UnreadableDocumentError):
    """The bytes are not text."""

    reason = "BINARY_DOCUMENT"

    def __init__(self, name: str, what: str = "binary data") -> None:
        super().__init__(
            f"{quoted(name)} is {what}, not text; export it as text, Markdown, HTML or PDF and ingest that."
        )


class UndecodableDocumentError(UnreadableDocumentError):
    """The bytes are not text in the encoding that was named, or in any that could be detected."""

    reason = "UNDECODABLE_DOCUMENT"

    def __init__(self, name: str, encoding: str = "") -> None:
        what = f"is not in the encoding {encoding!r} that was named" if encoding else "is in an unknown encoding"
        super().__init__(f"{quoted(name)} {what}; save it as UTF-8 and ingest it again.")


@dataclass(frozen=True, slots=True)
class Decoded:
    """The decoded text, and a warning if its encoding was guessed."""

    text: str
    warning: str = ""


def decode(data: bytes, *, name: str = "", encoding: str = "") -> Decoded:
    """Returns the characters of a file.

    Args:
        data: The bytes; a byte order mark is removed.
        name: The name of the document, for messages.
        encoding: The encoding that the sender named, or ``""``.

    Raises:
        BinaryDocumentError: If the bytes are not text.
        UndecodableDocumentError: If the encoding cannot be detected, or the text is not in the one that was named.
    """
    for mark, marked in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return Decoded(_strictly(data[len(mark) :], marked, name))
    for magic, what in _MAGIC:
        if data.startswith(magic):
            raise BinaryDocumentError(name, what)
    sample = data[:_SAMPLE]
    if b"\0" in data:
        wide = _wide_encoding(sample)
        if not wide:
            raise BinaryDocumentError(name)
        return Decoded(_strictly(data, wide, name), f"The encoding is not declared; it was read as {wide}.")
    if encoding:
        return Decoded(_strictly(data, encoding, name))
    try:
        return Decoded(data.decode())
    except UnicodeDecodeError:
        pass
    return _guessed(data, sample, name)


def _guessed(data: bytes, sample: bytes, name: str) -> Decoded:
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    if controls > _MANY_CONTROLS * len(sample):
        raise BinaryDocumentError(name)
    declared = _DECLARED.search(sample[:4096])
    if declared is not None and (text := _maybe(data, declared[1].decode("ascii", "replace"))) is not None:
        return Decoded(text)
    # A sample that ends in the middle of a line may end in the middle of a character.
    end = sample.rfind(b"\n") + 1 if len(data) > len(sample) else 0
    from charset_normalizer import from_bytes  # noqa: PLC0415 - few documents need it

    best = from_bytes(sample[:end] if end else sample).best()
    if best is None:
        raise UndecodableDocumentError(name)
    text = _maybe(data, best.encoding)
    if text is None:
        raise UndecodableDocumentError(name)
    return Decoded(text, f"The text is not UTF-8; it was read as {best.encoding}, which is a guess.")


def _strictly(data: bytes, encoding: str, name: str) -> str:
    text = _maybe(data, encoding)
    if text is None:
        raise UndecodableDocumentError(name, encoding)
    return text


def _maybe(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except (LookupError, UnicodeError):  # an unknown name, or a codec that is not for text
        return None


def _wide_encoding(sample: bytes) -> str:
    """Detects UTF-16 without a mark by the zeros in every second byte of Latin text; ``""`` for anything else."""
    even, odd = sample[::2], sample[1::2]
    if odd.count(0) > _WIDE_SHARE * len(odd) and not even.count(0):
        return "utf-16-le"
    if even.count(0) > _WIDE_SHARE * len(even) and not odd.count(0):
        return "utf-16-be"
    return ""
