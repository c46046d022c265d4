"""Who uses a private server, so that it ends with its last user, however that one ends.

Each user holds a shared lock on one file of the data folder, and the server waits for the exclusive lock. The kernel
releases the locks of a process that ends or is killed. While a server that nobody uses stops, it keeps the exclusive
lock; the next user waits for that, and then starts a server anew.
"""

import fcntl
import os
import time
from pathlib import Path
from typing import Final, Self

from memotree.local.errors import ServerStartError

USERS_FILE: Final = "users.lock"
"""Name of the file. It stays; it means nothing while no process holds a lock."""

_PAUSE: Final = 0.02


class Use:
    """The use of a folder's private server, from ``begin`` until ``end`` or the end of this process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def begin(cls, folder: Path, patience: float) -> Self:
        """Begins to use the server; waits at most ``patience`` seconds for one that is just stopping.

        Raises:
            ServerStartError: A server is still stopping.
        """
        descriptor = _opened(folder)
        deadline = time.monotonic() + patience
        while not _locked(descriptor, fcntl.LOCK_SH):
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise ServerStartError(f"The server on {folder} has been stopping for {patience:.0f} s; open it later.")
            time.sleep(_PAUSE)
        return cls(descriptor)

    def end(self) -> bool:
        """Ends the use; returns whether the server now stops because nobody else uses it."""
        # Asking for the exclusive lock gives up the shared one, so that the server may get it first: both mean that
        # there is no other user. Only a third one keeps this process from a shared lock and leaves the server alone.
        try:
            return _locked(self._descriptor, fcntl.LOCK_EX) or not _locked(self._descriptor, fcntl.LOCK_SH)
        finally:
            os.close(self._descriptor)


def wait_until_unused(folder: Path) -> None:
    """Waits until nobody uses the server of ``folder``; nobody can begin to before this process has ended."""
    fcntl.flock(_opened(folder), fcntl.LOCK_EX)  # the descriptor stays open until this process ends


def _opened(folder: Path) -> int:
    # Python's descriptors are not inherited by other programs, which would keep the lock.
    return os.open(folder / USERS_FILE, os.O_RDWR | os.O_CREAT, 0o600)


def _locked(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
