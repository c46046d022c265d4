"""Limits the calls of models: how many run at once, and how many start per minute, evenly spread."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

_MINUTE: Final = 60.0


class RateLimiter:
    """The rate and concurrency limit shared by all calls of models; for one event loop.

    Args:
        concurrency: The most calls at once.
        per_minute: The most calls that start per minute. They are evenly spread, so that no window of a minute has
            more; 0 for no limit.
        sleep: Waits for a number of seconds.
    """

    def __init__(
        self, concurrency: int, per_minute: int = 0, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    ) -> None:
        self._slots = asyncio.Semaphore(concurrency)
        self._interval = _MINUTE / per_minute if per_minute else 0.0
        self._next = 0.0
        self._sleep = sleep

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Waits until a call may start, and holds its slot during the block."""
        async with self._slots:
            if self._interval:
                now = asyncio.get_running_loop().time()
                begin = max(now, self._next)
                self._next = begin + self._interval
                if begin > now:
                    await self._sleep(begin - now)
            yield
