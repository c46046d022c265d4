"""Limits the calls of models: how many run at once, and how many start per minute, evenly spread."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from memotree.request.rate import Rate


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
        self.change(per_minute)
        self._next = 0.0
        self._sleep = sleep

    def change(self, per_minute: int) -> None:
        """Set the most calls that start per minute, for those that wait from now on; 0 for no limit."""
        self._rate = Rate(per_minute) if per_minute else None

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Waits until a call may start, and holds its slot during the block."""
        async with self._slots:
            if self._rate is not None:
                now = asyncio.get_running_loop().time()
                begin, self._next = self._rate.book(self._next, now)
                if begin > now:
                    await self._sleep(begin - now)
            yield
