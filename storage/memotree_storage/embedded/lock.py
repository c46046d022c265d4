"""One process per data folder: an advisory lock that the kernel releases when its holder ends."""

import contextlib
import fcntl
import os
import socket
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from memotree_storage.embedded.privacy import make_private
from memotree_storage.errors import FailedPreconditionError

LOCK_FILE: Final = "lock"
"""Name of the lock file inside a data folder. The file stays; it means nothing while no process holds the lock."""


_NOTE_BYTES: Final = 400


class DataFolderInUseError(FailedPreconditionError):
    """Another process (or another object of this process) uses the data folder."""

    reason = "DATA_FOLDER_IN_USE"

    def __init__(self, folder: Path, holder: str) -> None:
        by = holder or "another process"
        super().__init__(
            f"The data folder {folder} is in use by {by}; stop that server, or start this one with another data folder."
        )
        self.folder = folder


class DataFolderUnusableError(FailedPreconditionError):
    """The data folder cannot be created or locked (a file in its path, read-only, not ours, or without ``flock``)."""

    reason = "DATA_FOLDER_UNUSABLE"

    def __init__(self, folder: Path, error: OSError) -> None:
        cause = error.strerror or type(error).__name__
        if isinstance(error, (FileExistsError, NotADirectoryError)):
            cause = "a file has that name, or that of a folder above it"
        super().__init__(
            f"The data folder {folder} cannot be used ({cause}); give the server a folder on a local disk that it may "
            "write to."
        )
        self.folder = folder


class DataFolderLock:
    """Exclusive use of a data folder, from ``acquire`` until ``release`` or the end of the process.

    It is an ``flock`` on a file in the folder, so a killed process leaves nothing behind that could block the next
    start. The file names its holder, but only for the error message: only the kernel decides whether the lock is held.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def acquire(self) -> None:
        """Take the lock without waiting; create the folder if it is missing, and close it to other users.

        Raises:
            DataFolderInUseError: Another process or object holds the lock.
            DataFolderUnusableError: The folder cannot be locked.
        """
        if self._descriptor is not None:
            return
        # O_CLOEXEC is Python's default: a child that inherited the descriptor would keep the lock after we die.
        try:
            make_private(self._folder)
            descriptor = os.open(self._folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise DataFolderUnusableError(self._folder, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(os.pread(descriptor, _NOTE_BYTES, 0))
            os.close(descriptor)
            raise DataFolderInUseError(self._folder, holder) from None
        except OSError as error:
            os.close(descriptor)
            raise DataFolderUnusableError(self._folder, error) from error
        self._descriptor = descriptor
        with contextlib.suppress(OSError):  # on a full disk the lock holds, but others do not learn who holds it
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n{socket.gethostname()}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock; safe to repeat."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


def _holder(note: bytes) -> str:
    """Describe the holder of a lock from the content of the file, with the host if it is another one (a container)."""
    pid, host, *_ = (*note.decode("utf-8", "replace").split("\n"), "", "")
    if not pid:
        return ""  # it holds the lock and has not written its pid yet
    return f"process {pid}" if host in ("", socket.gethostname()) else f"process {pid} on {host}"
