"""Reading packs: the offset of an object, and its bytes with deltas applied.

dulwich's pack classes keep two file handles and a cache per pack, and warn if they are dropped without being closed.
With one pack per commit, and a repack that can run at any time, a reader needs the opposite. This module uses dulwich
for the formats (index, object header, delta) and accesses packs through memory maps that vanish with their last
reader: no close, no lock on the read path.
"""

import mmap
import zlib
from collections.abc import Callable, Iterator
from hashlib import sha1
from pathlib import Path
from typing import Final

from dulwich.object_format import SHA1
from dulwich.objects import RawObjectID
from dulwich.pack import OFS_DELTA, REF_DELTA, PackIndex, apply_delta, load_pack_index_file, unpack_object_at

from memotree_storage.cache import BoundedCache

StoredObject = tuple[int, bytes]
"""Kind and bytes of an object."""

LARGEST_OBJECT: Final = (1 << 28) + (1 << 24)
"""The largest object in bytes that is read: a node file with the largest content that any setting admits.

A few kilobytes can stand for gigabytes in a pack, so the size is looked at before anything is unpacked.
"""

_ZLIB_SLICE: Final = 8192
"""Compressed bytes passed to zlib at a time; it copies the unused rest, so small slices suit small objects."""

_DELTA_CACHE_BYTES: Final = 32 << 20
_LOOSE_HEADER: Final = 64
"""Bytes that have the kind and the size of a loose object."""

_OPEN_MAPS: Final = 32
"""Each map costs a file handle, and a server opens many repositories; mapping a pack again takes about 20 us."""


class TooLarge(Exception):  # noqa: N818 - never leaves the object database
    """An object is larger than `LARGEST_OBJECT`; ``size`` and ``limit`` are in bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size, self.limit = size, LARGEST_OBJECT


class PackCaches:
    """What the packs of one repository share: open maps, and the objects that deltas are based on."""

    def __init__(self) -> None:
        self.maps: BoundedCache[str, mmap.mmap] = BoundedCache(_OPEN_MAPS)
        self.bases: BoundedCache[tuple[str, int], StoredObject] = BoundedCache(
            _DELTA_CACHE_BYTES, lambda value: len(value[1]) + 200
        )

    def clear(self) -> None:
        """Drop all maps and objects."""
        self.maps.clear()
        self.bases.clear()


class Pack:
    """One pack file. Reads raise ``FileNotFoundError`` if a repack has removed it and it is not mapped."""

    __slots__ = ("_caches", "_path", "name")

    def __init__(self, folder: Path, name: str, caches: PackCaches) -> None:
        self.name = name
        self._path = folder / f"{name}.pack"
        self._caches = caches

    def load_index(self) -> PackIndex:
        """Map the pack's index; the map is released with the last reference to it."""
        path = self._path.with_suffix(".idx")
        with path.open("rb") as file:
            return load_pack_index_file(path, file, SHA1)

    def read(self, offset: int, read_base: Callable[[bytes], StoredObject]) -> StoredObject:
        """Return the object at ``offset``; ``read_base`` finds a delta's base by id if it is not in this pack."""
        contents = self._map()
        chain: list[tuple[int, bytes]] = []
        while True:
            base = self._caches.bases.get((self.name, offset))
            if base is not None:
                break
            _refuse_large(_size_at(contents, offset))
            unpacked, _ = unpack_object_at(contents, offset, sha1, zlib_bufsize=_ZLIB_SLICE)
            data = b"".join(unpacked.decomp_chunks)
            if unpacked.pack_type_num == OFS_DELTA and isinstance(unpacked.delta_base, int):
                chain.append((offset, data))
                offset -= unpacked.delta_base
            elif unpacked.pack_type_num == REF_DELTA and isinstance(unpacked.delta_base, bytes):
                chain.append((offset, data))
                base = read_base(unpacked.delta_base)
                break
            else:
                base = (unpacked.pack_type_num, data)
                if chain:
                    self._caches.bases.put((self.name, offset), base)
                break
        kind, data = base
        for place, delta in reversed(chain):
            _refuse_large(_number(delta, _number(delta, 0)[1])[0])
            data = b"".join(apply_delta(data, delta))
            self._caches.bases.put((self.name, place), (kind, data))
        return kind, data

    def _map(self) -> mmap.mmap:
        contents = self._caches.maps.get(self.name)
        if contents is None:
            with self._path.open("rb") as file:
                contents = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._caches.maps.put(self.name, contents)
        return contents


def check_loose_size(data: bytes) -> None:
    """Refuse a loose object, compressed as on disk, if it is too large.

    Raises:
        TooLarge: It is.
    """
    header = zlib.decompressobj().decompress(data, _LOOSE_HEADER).partition(b"\0")[0]
    _refuse_large(int(header.rpartition(b" ")[2]))


def _refuse_large(size: int) -> None:
    if size > LARGEST_OBJECT:
        raise TooLarge(size)


def _size_at(contents: mmap.mmap, offset: int) -> int:
    """The unpacked size of an object, or of its delta: four bits in the first byte, then seven in each."""
    first = contents[offset]
    if not first & 0x80:
        return first & 0x0F
    rest, _ = _number(contents, offset + 1)
    return first & 0x0F | rest << 4


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
