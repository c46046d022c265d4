"""How fast models are called: so many calls at once, so many a minute, evenly spread."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

_MINUTE: Final = 60.0


class RateLimiter:
    """The places that all calls of models share; for one event loop.

    Args:
        concurrency: Calls at once.
        per_minute: Calls that begin in a minute, evenly spread, so that no window of a minute has more; 0 is no limit.
        sleep: Waits for so many seconds.
    """

    def __init__(
        self, concurrency: int, per_minute: int = 0, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    ) -> None:
        self._places = asyncio.Semaphore(concurrency)
        self._interval = _MINUTE / per_minute if per_minute else 0.0
        self._next = 0.0
        self._sleep = sleep

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """A place for one call; returns when its turn has come."""
        async with self._places:
            if self._interval:
                now = asyncio.get_running_loop().time()
                begin = max(now, self._next)
                self._next = begin + self._interval
                if begin > now:
                    await self._sleep(begin - now)
            yield
