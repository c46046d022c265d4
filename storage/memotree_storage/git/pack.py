"""Writing packs: all objects of one commit become one pack with its index, durable before anything refers to them.

The order of the steps matters. Pack and index are written under temporary names and synced, then renamed (the pack
first, because readers look for indexes), and then their folder is synced. A crash before the second rename leaves
nothing that Git would read; a crash after it leaves a complete pack. Loose objects would cost a file and two syncs
each.
"""

import fcntl
import os
import secrets
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path
from typing import IO, Final, Self

from dulwich.object_format import SHA1
from dulwich.pack import pack_object_header, write_pack_index_v2

from memotree_storage.faults import point
from memotree_storage.git.disk import discard, sync_both, sync_folder
from memotree_storage.git.objects import object_id

TEMPORARY_PREFIX: Final = "tmp_memotree_"
"""Git's own ``prune`` treats old ``tmp_*`` files in the pack folder as leftovers, which suits us."""

_LEVEL: Final = 1
"""zlib level: level 1 takes a third of the default's time for a tenth more bytes, and maintenance repacks anyway."""

_SPILL: Final = 4 << 20
"""Bytes kept in memory before a large pack is written to its file piece by piece."""

_HEADER_SIZE: Final = 12
_READ_ONLY: Final = 0o444


@dataclass(frozen=True, slots=True)
class WrittenPack:
    """A synced pack: its name without suffix, and the offset of every object in it by id (20 bytes)."""

    name: str
    offsets: Mapping[bytes, int]


class PackWriter:
    """Collects objects and writes them as one pack. A context manager: leaving it before `finish` removes all files.

    Memory is bounded by 4 MiB of compressed objects plus about 200 bytes per object, however large the pack gets.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[bytes, int] = {}
        self._checksums: dict[bytes, int] = {}
        self._pending = bytearray()
        self._spilled = 0
        self._file: IO[bytes] | None = None
        self._leftovers: list[Path] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            # On a full disk the last flush fails again; the error that matters is already being raised.
            with suppress(OSError):
                self._file.close()
        for path in self._leftovers:
            discard(path)

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, kind: int, data: bytes) -> bytes:
        """Add an object to the pack, unless it is in it already, and return its id (20 bytes)."""
        name = object_id(kind, data)
        if name in self._offsets:
            return name
        entry = bytes(pack_object_header(kind, None, len(data), SHA1)) + zlib.compress(data, _LEVEL)
        self._offsets[name] = _HEADER_SIZE + self._spilled + len(self._pending)
        self._checksums[name] = zlib.crc32(entry)
        self._pending += entry
        if len(self._pending) >= _SPILL:
            self._spill()
        return name

    def finish(self) -> WrittenPack:
        """Write, sync and rename the pack; when this returns, it survives a power cut."""
        pack_path, file = self._pack_file()
        checksum = self._complete(file)
        index_path, index = create_temporary(self._folder, ".idx")
        self._leftovers.append(index_path)
        with index:
            self._write_index(index, checksum)
            point("git.pack-written")
            sync_both(file.fileno(), index.fileno())
            # Named by the checksum of all its bytes, so a pack of the same name is this pack, offsets included. Both
            # files stay open, which marks them as alive, until they have their names.
            name = f"pack-{checksum.hex()}"
            pack_path.rename(self._folder / f"{name}.pack")
            self._leftovers = [self._folder / f"{name}.pack", index_path]
            index_path.rename(self._folder / f"{name}.idx")
            self._leftovers = []
        sync_folder(self._folder)
        point("git.pack-synced")
        return WrittenPack(name, self._offsets)

    def _pack_file(self) -> tuple[Path, IO[bytes]]:
        if self._file is None:
            path, self._file = create_temporary(self._folder, ".pack")
            self._leftovers.append(path)
            self._file.write(bytes(_HEADER_SIZE))
        return self._leftovers[0], self._file

    def _spill(self) -> None:
        _, file = self._pack_file()
        file.write(self._pending)
        self._spilled += len(self._pending)
        self._pending = bytearray()

    def _complete(self, file: IO[bytes]) -> bytes:
        """Write the pending bytes, the header with the final count, and the checksum of everything."""
        header = b"PACK" + (2).to_bytes(4) + len(self._offsets).to_bytes(4)
        checksum = sha1(header, usedforsecurity=False)
        self._spill()
        file.seek(0)
        file.write(header)
        while block := file.read(1 << 20):
            checksum.update(block)
        file.write(checksum.digest())
        file.flush()
        return checksum.digest()

    def _write_index(self, file: IO[bytes], checksum: bytes) -> None:
        entries = ((name, self._offsets[name], self._checksums[name]) for name in sorted(self._offsets))
        write_pack_index_v2(file, entries, checksum)
        file.flush()


def create_temporary(folder: Path, suffix: str) -> tuple[Path, IO[bytes]]:
    """Create a temporary file that is marked as alive while its descriptor is open.

    The descriptor holds an ``flock``, which the kernel releases when the process ends. So recovery can tell a leftover
    (lock free) from a file that a process is still writing, without comparing pids or ages.
    """
    while True:
        path = folder / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}{suffix}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _READ_ONLY)
        file = os.fdopen(descriptor, "w+b")
        if _claim(file, path):
            return path, file
        file.close()


def _claim(file: IO[bytes], path: Path) -> bool:
    """Lock the file; ``False`` if recovery took it for a leftover between its creation and the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return path.stat().st_ino == os.fstat(file.fileno()).st_ino
    except (BlockingIOError, FileNotFoundError):
        return False


def remove_abandoned(folder: Path) -> list[str]:
    """Remove temporary packs whose writer is dead; return the names of those that were not empty.

    An empty file may belong to a writer that is about to lock it; that writer notices and takes another name.
    """
    removed = []
    for path in folder.glob(f"{TEMPORARY_PREFIX}*"):
        try:
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
                if os.fstat(file.fileno()).st_size:
                    removed.append(path.name)
        except (BlockingIOError, FileNotFoundError):
            continue
    return removed
