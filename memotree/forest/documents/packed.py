"""Unpacks gzip, in which systems keep their man pages, and ZIP, of which office documents and books consist.

Nothing is unpacked beyond a limit, whatever the file says about its sizes.
"""

import zlib
from io import BytesIO
from typing import Final
from zipfile import BadZipFile, ZipFile

from memotree.forest.documents.document import UnreadableDocumentError, quoted

GZIP_MAGIC: Final = b"\x1f\x8b\x08"
ZIP_MAGIC: Final = b"PK\x03\x04"
MOST_UNPACKED: Final = 64 << 20
"""The most bytes of a document after unpacking."""

MOST_ENTRIES: Final = 10_000
"""The most files in a packed document."""

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


class Archive:
    """The files in a ZIP document; all that are read together have at most `MOST_UNPACKED` bytes.

    Args:
        data: The document.
        name: Its name, for messages.

    Raises:
        DamagedArchiveError: If it is no ZIP, or a damaged one.
        UnpackedTooLargeError: If it has over `MOST_ENTRIES` files.
    """

    def __init__(self, data: bytes, *, name: str = "") -> None:
        self._name = name
        self._left = MOST_UNPACKED
        try:
            self._zip = ZipFile(BytesIO(data))
        except (BadZipFile, ValueError, NotImplementedError, OSError) as error:
            raise DamagedArchiveError(name) from error
        self.names = self._zip.namelist()
        if len(self.names) > MOST_ENTRIES:
            raise UnpackedTooLargeError(name, f"consists of over {MOST_ENTRIES} files")
        self._known = set(self.names)

    def __contains__(self, entry: str) -> bool:
        return entry in self._known

    def read(self, entry: str) -> bytes:
        """Returns the content of a file.

        Raises:
            DamagedArchiveError: If it is missing, damaged, encrypted or packed in an unknown way.
            UnpackedTooLargeError: If the limit is reached.
        """
        try:
            with self._zip.open(entry) as file:
                content = file.read(self._left + 1)
        except (BadZipFile, zlib.error, EOFError, KeyError, OSError, RuntimeError, ValueError) as error:
            raise DamagedArchiveError(self._name) from error
        self._left -= len(content)
        if self._left < 0:
            raise UnpackedTooLargeError(self._name, f"has over {MOST_UNPACKED >> 20} MiB when it is unpacked")
        return content
