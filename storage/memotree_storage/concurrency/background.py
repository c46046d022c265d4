"""Work that goes on after the call that caused it has ended."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

_GRACE: Final = 5.0


class BackgroundTasks:
    """Runs coroutines after a call has ended, and waits for them when the store closes."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background; its exceptions are dropped, so it must log its own errors."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self, grace: float = _GRACE) -> None:
        """Wait for the background work at most ``grace`` seconds, then cancel it: the next start repairs the rest."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=grace)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
