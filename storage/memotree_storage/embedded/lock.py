"""One process per data folder: an advisory lock that the kernel drops with its holder."""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from memotree_storage.errors import FailedPreconditionError

LOCK_FILE: Final = "lock"
"""Name of the lock file inside a data folder; it stays there, empty of meaning once nobody holds it."""


class DataFolderInUseError(FailedPreconditionError):
    """Another process (or another object of this one) works on the data folder."""

    reason = "DATA_FOLDER_IN_USE"

    def __init__(self, folder: Path, holder: str) -> None:
        by = f"process {holder}" if holder else "another process"
        super().__init__(
            f"The data folder {folder} is in use by {by}; stop that server, or start this one with a data folder of "
            "its own."
        )
        self.folder = folder


class DataFolderLock:
    """The exclusive right to a data folder, from ``acquire`` until ``release`` or the end of the process.

    It is a ``flock`` on a file in the folder, so a kill leaves nothing behind that could block the next start.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def acquire(self) -> None:
        """Take the lock at once or raise ``DataFolderInUseError``; the folder must exist."""
        if self._descriptor is not None:
            return
        # O_CLOEXEC is Python's default: a child that inherited the descriptor would keep the lock after our death.
        descriptor = os.open(self._folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise DataFolderInUseError(self._folder, holder) from None
        except BaseException:
            os.close(descriptor)
            raise
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

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
