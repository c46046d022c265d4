"""Counts the running calls, so that a stop can wait for them and refuse new ones."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from memotree_storage.errors import UnavailableError


class ServerStoppingError(UnavailableError):
    """The call arrived while the server was stopping."""

    reason = "SERVER_STOPPING"

    def __init__(self) -> None:
        super().__init__(
            "The server is stopping and did not begin this call; send it again when the server runs again."
        )


class RunningCalls:
    """Counts the calls of one server; belongs to one event loop."""

    def __init__(self) -> None:
        self._count = 0
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def count(self) -> int:
        """The number of running calls."""
        return self._count

    @property
    def closed(self) -> bool:
        """Whether new calls are refused."""
        return self._closed

    @contextmanager
    def running(self) -> Iterator[None]:
        """Context manager that counts one call while it runs."""
        self._count += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._count -= 1
            if self._count == 0:
                self._idle.set()

    def admit(self) -> None:
        """Check that a new call may begin.

        Errors: ``ServerStoppingError`` after ``close``.
        """
        if self._closed:
            raise ServerStoppingError

    def close(self) -> None:
        """Refuse calls from now on; running ones continue."""
        self._closed = True

    async def wait_idle(self) -> None:
        """Wait until no call is running."""
        await self._idle.wait()
