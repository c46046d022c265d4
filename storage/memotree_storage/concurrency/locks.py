"""Locks by key, taken before a connection of the pool.

PostgreSQL's locks would work as well, but each waiting caller would hold a connection. A few writers that wait for one
workspace would then block every other call of the server.
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
        """The lock of an id. Waiters get it in order; it is removed when no task holds it or waits for it."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock
