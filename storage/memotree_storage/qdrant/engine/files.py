"""Files that survive a power cut: replaced whole, and synced with their folders."""

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

_BLOCK: Final = 512
"""The unit of ``st_blocks``, whatever the file system's is."""

_PIECE: Final = 1 << 20

_BEING_MADE: Final = "tmp-*"
"""What a shard names the next part of its log while a thread of it makes the file, which it does at any time.

The file is renamed once it can be used, and a shard that finds one when it is opened removes it.
"""


def write_synced(path: Path, data: bytes) -> None:
    """Replace a file so that a power cut leaves the old or the new content."""
    fresh = path.with_name(path.name + ".new")
    with fresh.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Return when a file's content, or the names in a folder, are on stable storage."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(folder: Path) -> None:
    """Return when everything in a folder is on stable storage."""
    for here, _, names in os.walk(folder):
        for name in names:
            sync(Path(here, name))
        sync(Path(here))


def copy_shard(source: Path, target: Path, go_on: Callable[[], None]) -> None:
    """Copy the folder of a shard, with the holes of its files, of which it has many.

    Args:
        source: A folder in which nothing is written meanwhile; only the shard may make the next part of its log.
        target: A folder that does not exist.
        go_on: Called often; it raises to end the copying.
    """

    def copy(name: str, copied: str) -> str:
        with open(name, "rb", buffering=0) as old, open(copied, "xb", buffering=0) as new:  # noqa: PTH123 - by descriptors
            _copy_content(old.fileno(), new.fileno(), go_on)
        return copied

    shutil.copytree(source, target, copy_function=copy, ignore=shutil.ignore_patterns(_BEING_MADE))


def _copy_content(old: int, new: int, go_on: Callable[[], None]) -> None:
    size = os.fstat(old).st_size
    os.ftruncate(new, size)
    position = 0
    while position < size:
        go_on()
        try:
            position = os.lseek(old, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return  # a hole up to the end
        end = min(os.lseek(old, position, os.SEEK_HOLE), position + _PIECE)
        position += os.pwrite(new, os.pread(old, end - position, position), position)


def read_ahead(folder: Path, most: int, *, only: str = "*") -> None:
    """Let the system read up to ``most`` bytes of a folder's files, the smallest first, before a program maps them.

    A process that holds the GIL while it maps them would otherwise wait for the disk with all its threads.

    Args:
        folder: The folder.
        most: How many bytes to read in all.
        only: The names of the files to read.
    """
    files = sorted((path for path in folder.rglob(only) if path.is_file()), key=lambda path: path.stat().st_size)
    for path in files:
        with path.open("rb", buffering=0) as file:
            while most > 0 and (piece := file.read(_PIECE)):
                most -= len(piece)


def disk_use(folder: Path) -> int:
    """The bytes that the files in a folder take on the disk, which is less than their sizes where they have holes."""
    used = 0
    for here, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # removed since
                used += Path(here, name).stat().st_blocks * _BLOCK
    return used
