"""Unpacks gzip, in which systems keep their man pages, up to a limit."""

import zlib
from typing import Final

from memotree.forest.documents.document import UnreadableDocumentError, quoted

MAGIC: Final = b"\x1f\x8b\x08"
MOST_UNPACKED: Final = 64 << 20
"""The most bytes of a document after unpacking."""

_GZIP: Final = 16 + zlib.MAX_WBITS


class DamagedArchiveError(UnreadableDocumentError):
    """A packed file cannot be unpacked."""

    reason = "DAMAGED_ARCHIVE"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{quoted(name)} is packed and damaged; unpack it with another program and ingest what it holds."
        )


class UnpackedTooLargeError(UnreadableDocumentError):
    """A packed file would be too large when it is unpacked."""

    reason = "UNPACKED_TOO_LARGE"

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{quoted(name)} {what}; divide it into smaller documents and ingest those.")


def unpack(data: bytes, *, name: str = "") -> bytes:
    """Returns the content of a file packed with gzip.

    Raises:
        DamagedArchiveError: If it is damaged or cut off.
        UnpackedTooLargeError: If it has over `MOST_UNPACKED` bytes.
    """
    unpacker = zlib.decompressobj(_GZIP)
    try:
        content = unpacker.decompress(data, MOST_UNPACKED + 1)
    except zlib.error as error:
        raise DamagedArchiveError(name) from error
    if len(content) > MOST_UNPACKED:
        raise UnpackedTooLargeError(name, f"has over {MOST_UNPACKED >> 20} MiB when it is unpacked")
    if not unpacker.eof:
        raise DamagedArchiveError(name)
    return content
