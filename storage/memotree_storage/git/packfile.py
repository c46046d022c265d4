"""Reading packs: where an object is, what is said before its bytes, and the bytes.

dulwich's pack classes keep two file handles and a cache per pack, and warn if they are dropped without being closed.
With one pack per commit, and a repack that can run at any time, a reader needs the opposite. This module uses dulwich
for the formats of indexes and deltas, and accesses packs through memory maps that vanish with their last
reader: no close, no lock on the read path.
"""

import mmap
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from dulwich.object_format import SHA1
from dulwich.objects import RawObjectID
from dulwich.pack import OFS_DELTA, REF_DELTA, PackIndex, load_pack_index_file

from memotree_storage.cache import BoundedCache

StoredObject = tuple[int, bytes]
"""Kind and bytes of an object."""

LARGEST_OBJECT: Final = (1 << 28) + (1 << 24)
"""The largest object in bytes that is read: a node file with the largest content that any setting admits.

A few kilobytes can stand for gigabytes in a pack, so the size is looked at before anything is unpacked.
"""

_ZLIB_SLICE: Final = 8192
"""Compressed bytes passed to zlib at a time; it copies the unused rest, so small slices suit small objects."""

_HEADER_SLICE: Final = 512
"""The same for the beginning of a delta."""

_DELTA_HEADER: Final = 20
"""Bytes that have the sizes of a delta's base and of its result."""

_LOOSE_HEADER: Final = 64
"""Bytes that have the kind and the size of a loose object."""

_OPEN_MAPS: Final = 32
"""Each map costs a file handle, and a server opens many repositories; mapping a pack again takes about 20 us."""


class TooLarge(Exception):  # noqa: N818 - never leaves the object database
    """An object is larger than what is read, or so is all that it is packed with; ``problem`` follows its name."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


class Header(NamedTuple):
    """What a pack says about an object before its bytes.

    Attributes:
        kind: Its kind, or that of a delta.
        size: The bytes of the object, or of the delta.
        base: The base of a delta: its offset, or its id if it may be in another pack; ``None`` for no delta.
        start: Where the compressed bytes begin.
    """

    kind: int
    size: int
    base: int | bytes | None
    start: int


class OpenMaps(BoundedCache[str, mmap.mmap]):
    """The packs of one repository that are mapped, by their path."""

    def __init__(self) -> None:
        super().__init__(_OPEN_MAPS)


class Pack:
    """One pack file. Reads raise ``FileNotFoundError`` if a repack has removed it and it is not mapped."""

    __slots__ = ("_file", "_maps", "path")

    def __init__(self, folder: Path, name: str, maps: OpenMaps) -> None:
        self._file = folder / f"{name}.pack"
        self._maps = maps
        self.path = str(self._file)

    def load_index(self) -> PackIndex:
        """Map the pack's index; the map is released with the last reference to it."""
        path = self._file.with_suffix(".idx")
        with path.open("rb") as file:
            return load_pack_index_file(path, file, SHA1)

    def header(self, offset: int) -> Header:
        """Return what is said about an object before its bytes."""
        contents = self._map()
        first = contents[offset]
        kind, size, start = first >> 4 & 7, first & 0x0F, offset + 1
        if first & 0x80:
            rest, start = _number(contents, start)
            size |= rest << 4
        if kind == OFS_DELTA:
            distance, start = _distance(contents, start)
            if not 0 < distance < offset:
                raise ValueError(distance)
            return Header(kind, size, offset - distance, start)
        if kind == REF_DELTA:
            return Header(kind, size, contents[start : start + 20], start + 20)
        return Header(kind, size, None, start)

    def size_of_result(self, delta: Header) -> int:
        """Return the size of what a delta makes; only its beginning is unpacked."""
        beginning = _beginning(self._map(), delta.start)
        return _number(beginning, _number(beginning, 0)[1])[0]

    def unpack(self, header: Header) -> bytes:
        """Return the bytes of an object, or of its delta; ``ValueError`` if they are not as many as its header says."""
        contents, place = self._map(), header.start
        stream = zlib.decompressobj()
        pieces: list[bytes] = []
        missing = header.size
        while not stream.eof and missing >= 0:
            compressed = contents[place : place + _ZLIB_SLICE]
            if not compressed:
                break
            place += len(compressed)
            pieces.append(stream.decompress(compressed))
            missing -= len(pieces[-1])
        if missing or not stream.eof:
            raise ValueError(missing)
        return b"".join(pieces)

    def _map(self) -> mmap.mmap:
        contents = self._maps.get(self.path)
        if contents is None:
            with self._file.open("rb") as file:
                contents = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._maps.put(self.path, contents)
        return contents


def check_loose_size(data: bytes) -> None:
    """Refuse a loose object, compressed as on disk, if it is too large.

    Raises:
        TooLarge: It is.
    """
    header = zlib.decompressobj().decompress(data, _LOOSE_HEADER).partition(b"\0")[0]
    refuse_large(int(header.rpartition(b" ")[2]))


def refuse_large(size: int) -> None:
    """Refuse an object of a size in bytes.

    Raises:
        TooLarge: It is larger than `LARGEST_OBJECT`.
    """
    if size > LARGEST_OBJECT:
        raise TooLarge(f"has {size:,} bytes, and MemoTree reads at most {LARGEST_OBJECT:,}")


def _beginning(contents: mmap.mmap, start: int) -> bytes:
    """The first bytes of a delta, or all if they are fewer."""
    stream = zlib.decompressobj()
    found = b""
    while len(found) < _DELTA_HEADER and not stream.eof:
        piece = contents[start : start + _HEADER_SLICE]
        if not piece:
            raise ValueError(start)
        found += stream.decompress(piece, _DELTA_HEADER - len(found))
        start += len(piece)
    return found


def _distance(contents: mmap.mmap, place: int) -> tuple[int, int]:
    """How far before a delta its base is, and the place after that: seven bits a byte, the highest first."""
    byte = contents[place]
    number = byte & 0x7F
    while byte & 0x80:
        place += 1
        byte = contents[place]
        number = number + 1 << 7 | byte & 0x7F
    return number, place + 1


def _number(data: bytes | mmap.mmap, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and the place after it."""
    number = shift = 0
    while True:
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return number, place


def index_entries(index: PackIndex) -> Iterator[tuple[bytes, int]]:
    """Return every object id of an index with its offset."""
    return ((bytes(name), offset) for name, offset, _ in index.iterentries())


def find_offset(index: PackIndex, name: bytes) -> int | None:
    """Return the offset of an object in an index; ``None`` if it is not there."""
    try:
        return index.object_offset(RawObjectID(name))
    except KeyError:
        return None
