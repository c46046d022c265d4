"""A backup file: a tar with a Git bundle and the rows of each workspace, and at its end a list of them with its hash.

The list comes last, so a file that was cut off has none and is refused. A person needs only tar and git to read one.
"""

import hashlib
import shutil
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from memotree_storage.git.backup_list import BackupDamagedError, BackupList, SavedWorkspace, encode_list, parse_list

CHUNK_BYTES: Final = 1 << 18
LIST_NAME: Final = "backup.json"
HASH_NAME: Final = "backup.json.sha256"

_END: Final = 2 * tarfile.BLOCKSIZE
_HASH_BLOCK: Final = _END + tarfile.BLOCKSIZE
"""The content of the last file of a backup begins so many bytes before its end: its block, and two empty ones."""


@dataclass(frozen=True, slots=True, eq=False)
class Backup:
    """A backup file and its list."""

    file: Path
    listed: BackupList


def digest_of(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def member(name: str, path: Path) -> Iterator[bytes]:
    """Yield a file of a backup, in chunks."""
    size = path.stat().st_size
    yield _header(name, size)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
    yield _padding(size)


def ending(listed: BackupList) -> bytes:
    """The end of a backup: its list, the hash of that, and what ends a tar."""
    text = encode_list(listed)
    digest = f"{hashlib.sha256(text).hexdigest()}  {LIST_NAME}\n".encode()
    parts = ((LIST_NAME, text), (HASH_NAME, digest))
    return b"".join(_header(name, len(data)) + data + _padding(len(data)) for name, data in parts) + bytes(_END)


def open_backup(file: Path) -> Backup:
    """Read the list of a backup.

    Raises:
        BackupDamagedError: The file was cut off or changed, or is no backup.
    """
    with _opened(file) as archive:
        return Backup(file, parse_list(_list_of(archive)))


def read_list(file: Path) -> bytes:
    """The file of the list in a backup, which names it to the server that makes the next one.

    Raises:
        BackupDamagedError: The file was cut off or changed, or is no backup.
    """
    with _opened(file) as archive:
        return _list_of(archive)


def check_files(backup: Backup, workspaces: Iterable[SavedWorkspace]) -> None:
    """Compare every bundle and every table of some workspaces with its hash in the list.

    Raises:
        BackupDamagedError: One differs, or is missing.
    """
    with _opened(backup.file) as archive:
        for each in workspaces:
            named = [(each.bundle, each.sha256)] if each.bundle else []
            for name, digest in (*named, *((table.file, table.sha256) for table in each.tables or ())):
                source = archive.extractfile(name)
                if source is None:
                    raise BackupDamagedError(f"it has no file {name}")
                with source:
                    if hashlib.file_digest(source, "sha256").hexdigest() != digest:  # type: ignore[arg-type] # it reads bytes
                        raise BackupDamagedError(f"the workspace {each.name} has another hash than its list says")


def extract(backup: Backup, name: str, target: Path) -> None:
    """Copy a file out of a backup.

    Raises:
        BackupDamagedError: There is no such file in it.
    """
    with _opened(backup.file) as archive:
        source = archive.extractfile(name)
        if source is None:
            raise BackupDamagedError(f"it has no file {name}")
        with source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy, CHUNK_BYTES)


def list_hash(file: Path) -> str:
    """The hash of the list of a backup, read from its last blocks; "" if the file is no whole backup.

    Takes one read, so that a folder with many other files can be looked through.
    """
    with file.open("rb") as source:
        if source.seek(0, 2) < _HASH_BLOCK:
            return ""
        source.seek(-_HASH_BLOCK, 2)
        digest, _, name = source.read(tarfile.BLOCKSIZE).rstrip(b"\0").partition(b"  ")
    return digest.decode("ascii", "replace") if name == f"{LIST_NAME}\n".encode() else ""


@contextmanager
def _opened(file: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(file, "r:") as archive:
            yield archive
    except (tarfile.TarError, EOFError, KeyError, UnicodeError) as error:
        raise BackupDamagedError(str(error).strip("'\"") or type(error).__name__) from error


def _list_of(archive: tarfile.TarFile) -> bytes:
    text, digest = _content(archive, LIST_NAME), _content(archive, HASH_NAME)
    if digest.split() != [hashlib.sha256(text).hexdigest().encode(), LIST_NAME.encode()]:
        raise BackupDamagedError("its list of workspaces has another hash")
    return text


def _content(archive: tarfile.TarFile, name: str) -> bytes:
    source = archive.extractfile(name)
    return b"" if source is None else source.read()


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o600
    return info.tobuf(tarfile.PAX_FORMAT)


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)
