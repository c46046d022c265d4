"""Counts the running calls, so that a stop can wait for them, and refuses those that the server cannot take."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from memotree_storage.errors import TooLargeError, UnavailableError

_MORE_BEGUN: Final = 64

_STREAMS: Final = 2
"""Streams may take one of so many places for calls; the others are for calls that have one answer."""

_REQUESTS: Final = 2
"""There may be so many times as many requests over HTTP as places for calls, so that one alone can use all of these."""


def most_waiting(limit: int) -> int:
    """How many calls may wait for their clients in one way, beside ``limit`` that run.

    They wait for a request that has not arrived, or (over HTTP) for the next request or until the client reads the
    answer.
    """
    return limit + _MORE_BEGUN


def most_begun(limit: int) -> int:
    """How many calls may have begun over HTTP when uvicorn refuses further ones itself, without details.

    That is well above those that run and those that wait for their clients, so that refusals of our own have room: a
    call holds no place while its refusal is sent. gRPC refuses none: it would count those whose clients do not read.
    """
    return limit + 3 * most_waiting(limit) + _MORE_BEGUN


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


class TooManyAtOnceError(TooLargeError):
    """Who calls has as many streams or requests at once as are left for others; this one was not begun."""

    reason = "TOO_MANY_AT_ONCE"
    passes = True

    def __init__(self, who: str) -> None:
        super().__init__(
            f"{who} has as many streams or requests at once as are left for others, so this one was not begun. End one "
            "of them, or send the call again later."
        )


class Shares:
    """Divides places among those who use them, so that there is always room for a further one.

    Who has as many places as are free gets none. So one alone gets half of them, each of two a third, each of three a
    quarter (the dynamic thresholds of Choudhury and Hahne, 1998).

    Args:
        places: How many there are; ``None`` for any number.
        make_room: Ends something that only waits for its client, if there is such, and tells whether there was.
    """

    def __init__(self, places: int | None, make_room: Callable[[], bool] = lambda: False) -> None:
        self._places = places
        self._make_room = make_room
        self._held: Counter[str] = Counter()

    @contextmanager
    def holding(self, who: str) -> Iterator[None]:
        """Context manager that holds a place for somebody; any number for whoever is not known ("").

        Errors: ``TooManyAtOnceError`` if there is no further place for it. The first place is never refused.
        """
        if (
            self._places is not None
            and who
            and 0 < self._held[who] >= self._places - self._held.total()
            and not self._make_room()
        ):
            raise TooManyAtOnceError(who)
        self._held[who] += 1
        try:
            yield
        finally:
            self._held[who] -= 1
            if not self._held[who]:
                del self._held[who]


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
        self._streams = Shares(None if limit is None else limit // _STREAMS, make_room)
        self._requests = Shares(None if limit is None else limit * _REQUESTS + _MORE_BEGUN)
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

    def streaming(self, who: str) -> AbstractContextManager[None]:
        """Context manager that counts a stream of somebody: it may last as long as its client likes.

        Errors: ``TooManyAtOnceError`` if who calls has as many as are left for others.
        """
        return self._streams.holding(who)

    def requesting(self, who: str) -> AbstractContextManager[None]:
        """Context manager that counts a request over HTTP of somebody, whatever it asks for.

        Errors: ``TooManyAtOnceError`` if who calls has as many as are left for others.
        """
        return self._requests.holding(who)

    def close(self) -> None:
        """Refuse calls from now on; running ones continue."""
        self._closed = True

    async def wait_idle(self) -> None:
        """Wait until no call is running."""
        await self._idle.wait()
