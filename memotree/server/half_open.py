"""Calls that have begun and whose request has not arrived: they do not last, and take no place from other clients.

A client that begins calls and never sends their requests would otherwise use up what the server may hold at once.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from memotree_storage.errors import TooLargeError

REQUEST_SECONDS: Final = 60.0
"""How long a request may take to arrive after its call began."""


class RequestNotReceivedError(TooLargeError):
    """The request of a call did not arrive in time, or its place was needed for the call of another client."""

    reason = "REQUEST_NOT_RECEIVED"
    passes = True

    def __init__(self) -> None:
        super().__init__(
            f"The server waits at most {REQUEST_SECONDS:g} seconds for the request of a call, less when one connection "
            "has begun many calls, and did not begin this one; send it again, with its request right behind it."
        )


class HalfOpenCalls:
    """The half-open calls of one listening port; belongs to one event loop.

    When there are as many as there may be, a further one ends the oldest one of the peer that has most. So a client
    whose request follows its call at once is never locked out.

    Args:
        most: How many calls may be half-open at once.
        seconds: How long a call may be half-open.
    """

    def __init__(self, most: int, seconds: float = REQUEST_SECONDS) -> None:
        self._most = most
        self._seconds = seconds
        self._by_peer: dict[str, dict[HalfOpenCall, None]] = {}
        self._count = 0

    def begin(self, peer: str, give_up: Callable[[], None]) -> "HalfOpenCall":
        """Count a call as half-open until its ``end``.

        Args:
            peer: What the calls of one client have in common.
            give_up: Called once if the call is half-open for too long, or must make room; not after ``end``.
        """
        if self._count >= self._most:
            peer = max(self._by_peer, key=lambda peer: len(self._by_peer[peer]))
            next(iter(self._by_peer[peer])).give_up()
        return HalfOpenCall(self, peer, give_up, self._seconds)

    def add(self, call: "HalfOpenCall") -> None:
        """Count a call; for ``HalfOpenCall``."""
        self._by_peer.setdefault(call.peer, {})[call] = None
        self._count += 1

    def remove(self, call: "HalfOpenCall") -> None:
        """Count a call no longer; for ``HalfOpenCall``."""
        calls = self._by_peer[call.peer]
        del calls[call]
        self._count -= 1
        if not calls:
            del self._by_peer[call.peer]


class HalfOpenCall:
    """One half-open call; ``HalfOpenCalls.begin`` makes it."""

    __slots__ = ("_calls", "_give_up", "_open", "_timer", "peer")

    def __init__(self, calls: HalfOpenCalls, peer: str, give_up: Callable[[], None], seconds: float) -> None:
        self.peer = peer
        self._calls = calls
        self._give_up = give_up
        self._open = True
        self._timer = asyncio.get_running_loop().call_later(seconds, self.give_up)
        calls.add(self)

    def end(self) -> None:
        """The request has arrived, or the call has ended; has no effect the second time."""
        if self._open:
            self._open = False
            self._timer.cancel()
            self._calls.remove(self)

    def give_up(self) -> None:
        """End the call because it was half-open for too long, or must make room."""
        if self._open:
            self.end()
            self._give_up()
