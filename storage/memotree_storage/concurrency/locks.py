"""Locks by key, taken before a connection of the pool.

PostgreSQL's locks would work as well, but each waiting caller would hold a connection. A few writers that wait for one
workspace would then block every other call of the server.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Literal
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


class WatchedLocks(KeyedLocks):
    """Locks that also tell whether what one protects may have changed since a moment.

    So what was read without the lock can be used again without another look, as long as nobody has held the lock since.
    """

    def __init__(self) -> None:
        super().__init__()
        self._changed: dict[str, int] = {}
        self._moment = 0

    @property
    def moment(self) -> int:
        """A number for now: how often any lock was taken or released so far."""
        return self._moment

    def of(self, key: str) -> asyncio.Lock:
        """The lock of a key, as `KeyedLocks.of` gives it."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = _WatchedLock(lambda: self._note(key))
        return lock

    def is_unchanged(self, key: str, since: int) -> bool:
        """Whether nobody holds the lock of a key now, nor has held it at the moment ``since`` or later."""
        lock = self._locks.get(key)
        return self._changed.get(key, 0) <= since and (lock is None or not lock.locked())

    def _note(self, key: str) -> None:
        self._moment += 1
        self._changed[key] = self._moment


class _WatchedLock(asyncio.Lock):
    """A lock that reports when it is taken and when it is released."""

    def __init__(self, report: Callable[[], None]) -> None:
        super().__init__()
        self._report = report

    async def acquire(self) -> Literal[True]:
        """Take the lock."""
        await super().acquire()
        self._report()
        return True

    def release(self) -> None:
        """Release the lock."""
        super().release()
        self._report()


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
        workspaces: Of a workspace. While rows of ``mirror`` that belong to it change, this is held; so what is known of
            its branches and tags stays right while nobody takes it (`memotree_storage.postgres.known_revisions`).
        sessions: Of a session.
        verifications: Of the store, before all others.
    """

    joins: KeyedLocks = field(default_factory=KeyedLocks)
    workspaces: WatchedLocks = field(default_factory=WatchedLocks)
    sessions: KeyedLocks = field(default_factory=KeyedLocks)
    verifications: Verifications = field(default_factory=Verifications)
