"""Locks by key, taken before a connection of the pool.

PostgreSQL's locks would work as well, but each waiting caller would hold a connection. A few writers that wait for one
workspace would then block every other call of the server.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

from memotree_storage.errors import UnavailableError

_VERIFICATIONS: Final = 2
_WAITING_VERIFICATIONS: Final = 16


class TooManyVerificationsError(UnavailableError):
    """As many verifications run and wait as may."""

    reason = "TOO_MANY_VERIFICATIONS"

    def __init__(self) -> None:
        super().__init__(
            f"{_VERIFICATIONS} verifications run and {_WAITING_VERIFICATIONS} wait, which is the most; send the call "
            "again when some have ended."
        )


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


class Verifications:
    """The verifications of a store: a few at once, and a few more that wait in order; further ones are refused.

    Each holds a connection for as long as its caller takes to read what it finds, and a waiting one holds the place of
    a call.
    """

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(_VERIFICATIONS)
        self._begun = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn and keep it.

        Raises:
            TooManyVerificationsError: Too many wait already.
        """
        if self._begun >= _VERIFICATIONS + _WAITING_VERIFICATIONS:
            raise TooManyVerificationsError
        self._begun += 1
        try:
            async with self._turns:
                yield
        finally:
            self._begun -= 1


@dataclass(frozen=True, slots=True)
class StoreLocks:
    """The locks of a store, by id. Each kind has keys of its own, since a caller may send any id as any other.

    Order: ``joins`` before ``workspaces`` before ``sessions``, and all before a transaction. A task holds at most one
    lock of each kind, so tasks never wait for each other in a circle. Only a task that holds a workspace may take
    several of its sessions, one after the other: nobody else who holds one of them waits for another.

    Attributes:
        joins: Of a workspace, while archives are joined in it.
        workspaces: Of a workspace.
        sessions: Of a session.
        verifications: Of the store, before all others.
    """

    joins: KeyedLocks = field(default_factory=KeyedLocks)
    workspaces: KeyedLocks = field(default_factory=KeyedLocks)
    sessions: KeyedLocks = field(default_factory=KeyedLocks)
    verifications: Verifications = field(default_factory=Verifications)
