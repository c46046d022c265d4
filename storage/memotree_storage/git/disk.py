"""Disk failures as domain errors, and the syncs that make a change survive a power cut."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from memotree_storage.errors import UnavailableError

_ADVICE: Final = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up; free some space or raise the quota",
    errno.EROFS: "the file system is read-only; mount it for writing",
    errno.EACCES: "permission was denied; give the server's user write access to the folder",
    errno.EPERM: "the operation was not permitted; check the folder's owner, mode and mount",
    errno.EIO: "the disk reported an input/output error; check the disk",
    errno.EMFILE: "this process has too many open files; raise its limit",
    errno.ENFILE: "the machine has too many open files; raise its limit",
    errno.ENOENT: "a file or folder of the repository is gone; put the repository back in its place",
    errno.ENOTSUP: "the file system lacks an operation that Git needs; keep repositories on a local disk",
}


class RepositoryUnavailableError(UnavailableError):
    """The disk refused (full, read-only, failing); nothing was acknowledged, so the same call may be sent again."""

    reason = "REPOSITORY_UNAVAILABLE"


@contextmanager
def disk_errors(action: str) -> Iterator[None]:
    """Convert an ``OSError`` of the block into `RepositoryUnavailableError`; ``action`` completes "could not ..."."""
    try:
        yield
    except OSError as error:
        cause = _ADVICE.get(error.errno or 0, f"the system says: {error.strerror or type(error).__name__}")
        message = f"The repository could not {action}: {cause}, then send the same call again."
        raise RepositoryUnavailableError(message) from error


def sync_both(one: int, other: int) -> None:
    """Make two open files durable at the same time.

    Two parallel syncs share one commit of the file system's journal. Two consecutive syncs wait for two commits, which
    takes up to three times as long on a busy disk.
    """
    failures: list[OSError] = []

    def sync_other() -> None:
        try:
            os.fsync(other)
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=sync_other)
    thread.start()
    try:
        os.fsync(one)
    finally:
        thread.join()
    if failures:
        raise failures[0]


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable: a rename or new file is only on disk once its folder is synced."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folders_above(folder: Path) -> None:
    """Make the name of ``folder`` durable, and those of the folders above it, up to the top of its file system.

    For a folder that anybody may just have made. A folder that may not be read is passed over.
    """
    device = folder.stat().st_dev
    for above in folder.absolute().parents:
        with suppress(PermissionError):
            if above.stat().st_dev != device:
                return
            sync_folder(above)


def sync_tree(folder: Path) -> None:
    """Make every file and folder below ``folder`` durable, then ``folder`` itself."""
    for entry in folder.iterdir():
        if entry.is_dir():
            sync_tree(entry)
        else:
            with entry.open("rb") as file:
                os.fsync(file.fileno())
    sync_folder(folder)


def make_folders(folder: Path, root: Path) -> None:
    """Create ``folder`` and its missing ancestors below ``root``; each new name is durable in its parent."""
    missing = []
    while folder != root and not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        new.mkdir(exist_ok=True)
        sync_folder(new.parent)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of ``data`` at the descriptor's position, since one ``os.write`` may write only a part."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def discard(path: Path) -> bool:
    """Remove a file that is no longer needed; ``False`` if that failed and recovery has to do it later."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return False
    return True
