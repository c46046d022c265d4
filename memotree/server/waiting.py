"""Calls that wait for their clients: they do not last, and take no room from other clients."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class WaitingCalls:
    """Calls that wait for their clients in one way; belongs to one event loop.

    Each has a size: 1 if the calls are counted, or the bytes that are held for it. When they have together as much as
    they may have, a further one ends the oldest one of the peer that has most. So a client that does not let the server
    wait is never locked out.

    Args:
        most: The most that the sizes of all of them may add up to, in calls or in bytes; ``None`` for any.
        seconds: How long a call may wait; ``None`` for ever.
        patience: Seconds that a call may wait in any case.
        most_of_one: The most that those of one peer may add up to; a further one ends its oldest one.
    """

    def __init__(
        self,
        most: int | None = None,
        seconds: float | None = None,
        patience: float = 0.0,
        most_of_one: int | None = None,
    ) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._seconds = seconds
        self._patience = patience
        self._by_peer: dict[str, dict[WaitingCall, None]] = {}
        self._sizes: dict[str, int] = {}
        self._size = 0

    def begin(
        self, peer: str, give_up: Callable[[], None], size: int = 1, seconds: float | None = None
    ) -> "WaitingCall":
        """Count a call as waiting until its ``end``.

        Args:
            peer: What the calls of one client have in common.
            give_up: Called once if the call waits for too long, or must make room; not after ``end``.
            size: 1, or its bytes.
            seconds: How long it may wait, if that is less than the others.
        """
        if self._most_of_one is not None and self._sizes.get(peer, 0) >= self._most_of_one:
            next(iter(self._by_peer[peer])).give_up()
        if self._most is not None and self._size >= self._most:
            self.make_room()
        limits = [each for each in (self._seconds, seconds) if each is not None]
        return WaitingCall(self, peer, give_up, size, min(limits, default=None))

    async def wait(self, peer: str, client: Awaitable[T]) -> T:
        """Await what a client must do, and count the call as waiting meanwhile.

        Errors: ``TimeoutError`` if it waits for too long, or must make room.
        """
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(None) as limit:
            call = self.begin(peer, lambda: limit.reschedule(loop.time()))
            try:
                return await client
            finally:
                call.end()

    def __contains__(self, peer: str) -> bool:
        """Whether a peer has a call that waits."""
        return peer in self._by_peer

    def make_room(self) -> bool:
        """End the oldest call of the peer that has most, among the peers whose oldest call has waited enough.

        Returns:
            Whether there was one.
        """
        since = asyncio.get_running_loop().time() - self._patience
        peers = (peer for peer, calls in self._by_peer.items() if next(iter(calls)).since <= since)
        peer = max(peers, key=self._sizes.__getitem__, default=None)
        if peer is None:
            return False
        next(iter(self._by_peer[peer])).give_up()
        return True

    def add(self, call: "WaitingCall") -> None:
        """Count a call; for ``WaitingCall``."""
        self._by_peer.setdefault(call.peer, {})[call] = None
        self._sizes[call.peer] = self._sizes.get(call.peer, 0) + call.size
        self._size += call.size

    def remove(self, call: "WaitingCall") -> None:
        """Count a call no longer; for ``WaitingCall``."""
        calls = self._by_peer[call.peer]
        del calls[call]
        self._size -= call.size
        self._sizes[call.peer] -= call.size
        if not calls:
            del self._by_peer[call.peer], self._sizes[call.peer]


class WaitingCall:
    """One call that waits; ``WaitingCalls.begin`` makes it."""

    __slots__ = ("_calls", "_give_up", "_more", "_timer", "_waits", "peer", "since", "size")

    def __init__(
        self, calls: WaitingCalls, peer: str, give_up: Callable[[], None], size: int, seconds: float | None
    ) -> None:
        loop = asyncio.get_running_loop()
        self.peer = peer
        self.size = size
        self.since = loop.time()
        self._calls = calls
        self._give_up = give_up
        self._waits = True
        self._more = 0.0
        self._timer = None if seconds is None else loop.call_later(seconds, self._time_is_over)
        calls.add(self)

    def prolong(self, seconds: float) -> None:
        """Let the call wait for some seconds more."""
        self._more += seconds

    def end(self) -> None:
        """The call waits no longer, or has ended; has no effect the second time."""
        if self._waits:
            self._waits = False
            if self._timer is not None:
                self._timer.cancel()
            self._calls.remove(self)

    def give_up(self) -> None:
        """End the call because it has waited for too long, or must make room."""
        if self._waits:
            self.end()
            self._give_up()

    def _time_is_over(self) -> None:
        if self._more:
            self._timer = asyncio.get_running_loop().call_later(self._more, self._time_is_over)
            self._more = 0.0
        else:
            self.give_up()
