"""Locks by key, taken before a connection of the pool.

PostgreSQL would make callers wait as well, but each of them would hold a connection while it waits; a few waiting
writers of one workspace would then keep every other call of the server waiting.
"""

import asyncio
from weakref import WeakValueDictionary


class KeyedLocks:
    """One lock per workspace and one per session. Not thread-safe: for one event loop.

    Order: the lock of a workspace before the lock of a session in it, and both before a transaction.
    """

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, key: str) -> asyncio.Lock:
        """The lock of an id. Waiters are served in order; the lock is forgotten when nobody holds or awaits it."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock
