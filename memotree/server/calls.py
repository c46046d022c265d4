"""Counts the running calls, so that a stop can wait for them, and refuses those that the server cannot take."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from memotree_storage.errors import TooLargeError, UnavailableError

_MORE_BEGUN: Final = 64


def most_waiting(limit: int) -> int:
    """How many calls may wait for their clients in one way, beside ``limit`` that run.

    They wait for a request that has not arrived, or (over HTTP) until the client reads the answer.
    """
    return limit + _MORE_BEGUN


def most_begun(limit: int) -> int:
    """How many calls may have begun over HTTP when uvicorn refuses further ones itself, without details.

    That is well above those that run and those that wait for their clients, so that refusals of our own have room: a
    call holds no place while its refusal is sent. gRPC refuses none: it would count those whose clients do not read.
    """
    return limit + 2 * most_waiting(limit) + _MORE_BEGUN


class ServerStoppingError(UnavailableError):
    """The call arrived while the server was stopping."""

    reason = "SERVER_STOPPING"

    def __init__(self) -> None:
        super().__init__(
            "The server is stopping and did not begin this call; send it again when the server runs again."
        )


class TooManyCallsError(TooLargeError):
    """The server runs as many calls as it may; this one was not begun."""

    reason = "TOO_MANY_CALLS"
    passes = True

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"The server runs {limit} calls at once, the most that it may (its setting max_concurrent_calls), and did "
            "not begin this one; send it again in a moment."
        )


class RunningCalls:
    """Counts the calls of one server; belongs to one event loop.

    Args:
        limit: How many calls may run at once; ``None`` for any number.
        make_room: Ends a call that only waits for its client, if there is one, and tells whether there was.
    """

    def __init__(self, limit: int | None = None, make_room: Callable[[], bool] = lambda: False) -> None:
        self._limit = limit
        self._make_room = make_room
        self._count = 0
        self._admitted = 0
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def count(self) -> int:
        """The number of calls whose answer is not known yet."""
        return self._count

    @property
    def closed(self) -> bool:
        """Whether new calls are refused."""
        return self._closed

    @contextmanager
    def running(self) -> Iterator[None]:
        """Context manager that counts one call until its answer is known; a stop waits for it."""
        self._count += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._count -= 1
            if self._count == 0:
                self._idle.set()

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Context manager that holds one of the places for calls while the operation of a call runs.

        Errors: ``ServerStoppingError`` after ``close``, ``TooManyCallsError`` if no place is free.
        """
        if self._closed:
            raise ServerStoppingError
        if self._limit is not None and self._admitted >= self._limit and not self._make_room():
            raise TooManyCallsError(self._limit)
        self._admitted += 1
        try:
            yield
        finally:
            self._admitted -= 1

    def close(self) -> None:
        """Refuse calls from now on; running ones continue."""
        self._closed = True

    async def wait_idle(self) -> None:
        """Wait until no call is running."""
        await self._idle.wait()
