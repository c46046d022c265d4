"""Locks by key, taken before a connection of the pool.

PostgreSQL's locks would work as well, but each waiting caller would hold a connection. A few writers that wait for one
workspace would then block every other call of the server.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

_VERIFICATIONS: Final = 2


class KeyedLocks:
    """One lock per key. Not thread-safe: for one event loop."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, key: str) -> asyncio.Lock:
        """The lock of a key. Waiters get it in order; it is removed when no task holds it or waits for it."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock


@dataclass(frozen=True, slots=True)
class StoreLocks:
    """The locks of a store, by id. Each kind has keys of its own, since a caller may send any id as any other.

    Order: ``joins`` before ``workspaces`` before ``sessions``, and all before a transaction. A task holds at most one
    lock of each kind, so tasks never wait for each other in a circle.

    Attributes:
        joins: Of a workspace, while archives are joined in it.
        workspaces: Of a workspace.
        sessions: Of a session.
        verifications: Of the store, before all others: so many workspaces are verified at once. A verification holds a
            connection for as long as its caller takes to read what it finds.
    """

    joins: KeyedLocks = field(default_factory=KeyedLocks)
    workspaces: KeyedLocks = field(default_factory=KeyedLocks)
    sessions: KeyedLocks = field(default_factory=KeyedLocks)
    verifications: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_VERIFICATIONS))
