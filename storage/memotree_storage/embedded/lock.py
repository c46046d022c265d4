"""One process per data folder: an advisory lock that the kernel drops with its holder."""

import contextlib
import fcntl
import os
import socket
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from memotree_storage.errors import FailedPreconditionError

LOCK_FILE: Final = "lock"
"""Name of the lock file inside a data folder; it stays there, empty of meaning once nobody holds it."""


_NOTE_BYTES: Final = 400


class DataFolderInUseError(FailedPreconditionError):
    """Another process (or another object of this one) works on the data folder."""

    reason = "DATA_FOLDER_IN_USE"

    def __init__(self, folder: Path, holder: str) -> None:
        by = holder or "another process"
        super().__init__(
            f"The data folder {folder} is in use by {by}; stop that server, or start this one with a data folder of "
            "its own."
        )
        self.folder = folder


class DataFolderUnusableError(FailedPreconditionError):
    """The data folder cannot be made or locked: it is a file or below one, read-only, not ours or without ``flock``."""

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
    """The exclusive right to a data folder, from ``acquire`` until ``release`` or the end of the process.

    It is a ``flock`` on a file in the folder, so a kill leaves nothing behind that could block the next start. The
    file names its holder, for the message to others only: whether the folder is taken, the kernel alone decides.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def acquire(self) -> None:
        """Take the lock at once; a folder that is missing is made.

        Raises:
            DataFolderInUseError: Somebody else has it.
            DataFolderUnusableError: The folder allows no lock.
        """
        if self._descriptor is not None:
            return
        # O_CLOEXEC is Python's default: a child that inherited the descriptor would keep the lock after our death.
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
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
        with contextlib.suppress(OSError):  # a full disk: the lock holds, and others do not learn whose it is
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n{socket.gethostname()}\n".encode(), 0)

    def release(self) -> None:
        """Give the lock back; safe to repeat."""
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
    """Who holds a lock, by what it wrote into the file: with the host when that is another one (a container, say)."""
    pid, host, *_ = (*note.decode("utf-8", "replace").split("\n"), "", "")
    if not pid:
        return ""  # it has the lock and has not written yet
    return f"process {pid}" if host in ("", socket.gethostname()) else f"process {pid} on {host}"
