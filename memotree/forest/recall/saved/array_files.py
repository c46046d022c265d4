"""Arrays in a folder: a `.npy` file each, which is mapped into memory, and a file of facts with all checksums.

Nothing of a folder is trusted that does not have its checksum, so it may be torn, cut short, or be of somebody else.
Every byte is read once for that, which also finds what the disk cannot read, as an error here. A mapped page that is
lost later ends the process; so the check comes first at the next start, too, and the folder is not used again. For
200 MB it costs some 50 ms, and a use of the arrays reads them anyway.
"""

import json
import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import numpy as np
from memotree_storage import faults
from numpy.typing import NDArray

FACTS: Final = "facts.json"

_BLOCK: Final = 1 << 20

Array: TypeAlias = NDArray[Any]


class UnusableFilesError(Exception):
    """The files of a folder are incomplete, damaged, or those of something else."""


@dataclass(frozen=True, slots=True)
class Parts:
    """An array that is written part by part, along its first axis."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    parts: Iterable[Array]


@dataclass(frozen=True, slots=True)
class Facts:
    """What a folder says about itself: facts of its writer, and for each array the size and checksum of its file."""

    facts: Mapping[str, Any]
    files: Mapping[str, tuple[int, int]]

    @property
    def size(self) -> int:
        """The bytes of all arrays."""
        return sum(size for size, _ in self.files.values())


def write(folder: Path, arrays: Mapping[str, Array | Parts], facts: Mapping[str, Any]) -> None:
    """Write arrays into a new folder, and what is to be known about them.

    Args:
        folder: The folder, which must not be there yet.
        arrays: The arrays by name.
        facts: Whatever JSON can say.

    Raises:
        OSError: If that is not possible.
    """
    folder.mkdir(mode=0o700)
    files = {}
    for name, array in arrays.items():
        with _new(folder / f"{name}.npy") as file:
            writer = _Writer(file)
            _write_array(writer, array)
        files[name] = (writer.size, writer.checksum)
        faults.point("recall.array_saved")
    text = json.dumps({"facts": facts, "files": files}).encode()
    with _new(folder / FACTS) as file:
        file.write(b"%08x\n" % zlib.crc32(text) + text)


def read_facts(folder: Path) -> Facts:
    """Read what a folder says about itself.

    Raises:
        UnusableFilesError: If there is nothing that can be used.
    """
    try:
        checksum, text = (folder / FACTS).read_bytes().split(b"\n", 1)
        if checksum != b"%08x" % zlib.crc32(text):
            raise UnusableFilesError(f"{FACTS} has another checksum.")
        told = json.loads(text)
        return Facts(told["facts"], {name: (int(size), int(crc)) for name, (size, crc) in told["files"].items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnusableFilesError(f"{FACTS} cannot be read: {error}") from error


def read(folder: Path, facts: Facts) -> dict[str, Array]:
    """Map the arrays of a folder into memory, read-only. They stay there if the folder is deleted.

    Raises:
        UnusableFilesError: If an array is missing or is not the one that was written.
    """
    try:
        return {name: _read_array(folder / f"{name}.npy", noted) for name, noted in facts.files.items()}
    except (OSError, ValueError) as error:
        raise UnusableFilesError(f"An array cannot be read: {error}") from error


def _read_array(path: Path, noted: tuple[int, int]) -> Array:
    if _noted(path) != noted:
        raise UnusableFilesError(f"{path.name} has another size or checksum.")
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))


def _noted(path: Path) -> tuple[int, int]:
    size, checksum, block = 0, 0, bytearray(_BLOCK)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(block):
            checksum = zlib.crc32(memoryview(block)[:count], checksum)
            size += count
    return size, checksum


def _new(path: Path) -> BinaryIO:
    """Open a new file that only this user may read."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


class _Writer:
    """A file that knows the checksum of what was written to it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = 0
        self.checksum = 0

    def write(self, data: bytes | memoryview) -> int:
        self.checksum = zlib.crc32(data, self.checksum)
        self.size += len(data)
        return self._file.write(data)


def _write_array(writer: _Writer, array: Array | Parts) -> None:
    whole = array if isinstance(array, Parts) else Parts(array.dtype, array.shape, [array])
    header = {
        "descr": np.lib.format.dtype_to_descr(whole.dtype),
        "fortran_order": False,
        "shape": whole.shape,
    }
    np.lib.format.write_array_header_1_0(writer, header)
    for part in whole.parts:
        writer.write(np.ascontiguousarray(part, dtype=whole.dtype).reshape(-1).view(np.uint8).data)
