"""Turns: who may change a workspace, decided before a connection of the pool is taken.

PostgreSQL would make the callers wait as well, but each with a connection in its hand; a few of them would keep every
other call of the server waiting.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final
from weakref import WeakValueDictionary

_GRACE: Final = 5.0


class KeyedLocks:
    """One lock per workspace or session, and the background work that is left when a turn has ended.

    A workspace's turn comes before that of a session in it, and both before a transaction.
    """

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._background: set[asyncio.Task[None]] = set()

    def of(self, key: str) -> asyncio.Lock:
        """The lock of a workspace's or session's id; served in the order of asking, gone when nobody has it."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something in the background."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def finish(self, grace: float = _GRACE) -> None:
        """Wait for the background work, so many seconds at most: the next start makes up for the rest."""
        if not self._background:
            return
        _, late = await asyncio.wait(self._background, timeout=grace)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
