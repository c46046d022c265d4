"""The object database: one lookup over all packs and loose objects, safe while other programs write and repack.

Small packs (one per commit) share one dictionary from id to location, so that a read costs the same with two thousand
packs as with one; only large packs keep their index mapped. A read notices that a repack removed a pack, and a failed
lookup that another process wrote an object: both rescan the pack folder and try again.
"""

import os
import struct
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import Lock
from typing import Final

from dulwich.errors import ApplyDeltaError
from dulwich.pack import PackIndex

from memotree_storage.git.delta_chains import DeltaChains, Place
from memotree_storage.git.disk import disk_errors
from memotree_storage.git.objects import (
    COMMIT,
    KIND_NUMBERS,
    TAG,
    ObjectDamagedError,
    ObjectMissingError,
    ObjectTooLargeError,
    object_id,
    tag_target,
)
from memotree_storage.git.packfile import (
    OpenMaps,
    Pack,
    StoredObject,
    TooLarge,
    check_loose_size,
    find_offset,
    index_entries,
)

MOST_TAGS: Final = 10
"""Tags of tags that are followed, since a push can bring a chain of any length."""

_SMALL: Final = 4096
"""Up to this many objects, a pack's index goes into the shared dictionary."""

_ATTEMPTS: Final = 4
"""Scans of the pack folder before an object counts as missing; each concurrent repack can use one up."""

_BROKEN: Final = (AssertionError, ValueError, LookupError, struct.error, zlib.error, ApplyDeltaError)
"""Exceptions that dulwich and zlib raise on malformed objects and indexes."""


class ObjectDatabase:
    """The objects of one repository; any number of threads may read."""

    def __init__(self, objects: Path) -> None:
        self.pack_folder = objects / "pack"
        self._loose_folder = objects
        self._maps = OpenMaps()
        self._chains = DeltaChains()
        self._scanning = Lock()
        self._packs: dict[str, Pack] = {}
        self._places: dict[bytes, Place] = {}
        self._large: tuple[tuple[Pack, PackIndex], ...] = ()
        self._damaged: set[str] = set()
        self._held: dict[bytes, StoredObject] = {}
        self.rescan()

    def close(self) -> None:
        """Release all maps and caches."""
        with self._scanning:
            self._packs, self._places, self._large = {}, {}, ()
            self._maps.clear()
            self._chains.clear()

    def read(self, name: bytes) -> StoredObject:
        """Return kind and bytes of an object, verified against its id.

        Raises:
            ObjectMissingError: The repository has no such object.
            ObjectDamagedError: The object is there, but its bytes do not match its id.
            ObjectTooLargeError: It is larger than `LARGEST_OBJECT`; nothing of it was unpacked.
        """
        held = self._held.get(name)
        if held is not None:
            return held
        with disk_errors("read an object"):
            for attempt in range(_ATTEMPTS):
                try:
                    found = self._read_once(name)
                except FileNotFoundError:
                    found = None
                except TooLarge as error:
                    raise ObjectTooLargeError(name.hex(), error.problem) from None
                except _BROKEN as error:
                    raise ObjectDamagedError(name.hex()) from error
                if found is not None:
                    if object_id(*found) != name:
                        raise ObjectDamagedError(name.hex())
                    return found
                if not self.rescan() and attempt:
                    break
        if self._damaged:
            raise ObjectDamagedError(name.hex(), f"it may lie in a pack with a broken index: {min(self._damaged)}")
        raise ObjectMissingError(name.hex())

    def read_kind(self, name: bytes, kind: int, called: str) -> bytes:
        """Return the bytes of an object of ``kind``; an object of another kind counts as missing."""
        found, data = self.read(name)
        if found != kind:
            raise ObjectMissingError(name.hex(), called)
        return data

    def peel(self, name: bytes) -> tuple[bytes, int, bytes]:
        """Follow annotated tags, up to `MOST_TAGS`, to the object they point to; return its id, kind and bytes."""
        kind, data = self.read(name)
        for _ in range(MOST_TAGS):
            if kind != TAG:
                break
            name = tag_target(name.hex(), data)
            kind, data = self.read(name)
        return name, kind, data

    def commit(self, name: bytes) -> tuple[str, bytes]:
        """Return hex id and text of the commit that an id names, directly or through a tag."""
        peeled, kind, data = self.peel(name)
        if kind != COMMIT:
            raise ObjectMissingError(name.hex(), "commit")
        return peeled.hex(), data

    def contains(self, name: bytes) -> bool:
        """Whether the object exists; does not read it."""
        with disk_errors("look for an object"):
            if self._known(name):
                return True
            self.rescan()
            return self._known(name)

    def hold(self, name: bytes, kind: int, data: bytes) -> None:
        """Let an object be read that no pack has yet; `release` ends that. Its id must be the hash of its bytes."""
        self._held[name] = (kind, data)

    def release(self, names: Iterable[bytes]) -> None:
        """Forget objects that were held: a pack has them now, or they are given up."""
        for name in names:
            self._held.pop(name, None)

    def register(self, pack_name: str, offsets: Mapping[bytes, int]) -> None:
        """Add a pack that this process has just written, without scanning the folder."""
        with self._scanning:
            if pack_name in self._packs:
                return
            pack = Pack(self.pack_folder, pack_name, self._maps)
            if len(offsets) > _SMALL:
                self._large = (*self._large, (pack, pack.load_index()))
            else:
                self._places.update((name, (pack, offset)) for name, offset in offsets.items())
            self._packs[pack_name] = pack

    def rescan(self) -> bool:
        """Update the set of packs from the folder; return whether it changed."""
        with self._scanning, disk_errors("list its packs"):
            with os.scandir(self.pack_folder) as entries:
                files = {entry.name for entry in entries}
            names = {name[:-4] for name in files if name.endswith(".idx") and f"{name[:-4]}.pack" in files}
            gone = self._packs.keys() - names
            new = names - self._packs.keys()
            if gone:
                # The objects of a removed pack may be in any other pack: read all indexes again, then swap.
                self._load(names)
            elif new:
                self._load(new, self._places, self._packs, self._large)
            return bool(gone or new)

    def _load(
        self,
        names: Iterable[str],
        places: dict[bytes, Place] | None = None,
        packs: dict[str, Pack] | None = None,
        large: tuple[tuple[Pack, PackIndex], ...] = (),
    ) -> None:
        """Open the packs with these names, add them to the given ones, and publish the result."""
        places = {} if places is None else places
        packs = {} if packs is None else packs
        damaged = set()
        for name in sorted(names):
            pack = Pack(self.pack_folder, name, self._maps)
            try:
                index = pack.load_index()
            except FileNotFoundError:
                continue  # a repack removed it; its new pack is in the folder now or will be at the next scan
            except _BROKEN:
                damaged.add(name)
                continue
            if len(index) > _SMALL:
                large = (*large, (pack, index))
            else:
                places.update((key, (pack, offset)) for key, offset in index_entries(index))
            packs[name] = pack
        self._places, self._packs, self._large, self._damaged = places, packs, large, damaged

    def _read_once(self, name: bytes) -> StoredObject | None:
        place = self._locate(name)
        return self._read_loose(name) if place is None else self._chains.read(place, self._locate, self.read)

    def _locate(self, name: bytes) -> Place | None:
        """The pack that has an object, and where; ``None`` if none has it."""
        place = self._places.get(name)
        if place is not None:
            return place
        for pack, index in self._large:
            offset = find_offset(index, name)
            if offset is not None:
                return pack, offset
        return None

    def _read_loose(self, name: bytes) -> StoredObject | None:
        path = self._loose_path(name)
        if not path.is_file():
            return None
        stored = path.read_bytes()
        check_loose_size(stored)
        header, _, data = zlib.decompress(stored).partition(b"\0")
        kind, _, _ = header.partition(b" ")
        return KIND_NUMBERS[kind], data

    def _known(self, name: bytes) -> bool:
        return name in self._held or self._locate(name) is not None or self._loose_path(name).is_file()

    def _loose_path(self, name: bytes) -> Path:
        digits = name.hex()
        return self._loose_folder / digits[:2] / digits[2:]
