"""The context of a call, as gRPC gives it, of a client that does what a test says."""

import asyncio
from typing import Any

from grpc import aio  # type: ignore[import-untyped]  # grpcio ships no types


class ScriptedContext:
    """The context of one call.

    Args:
        stuck: What goes on only when there is ``room``: "metadata", "read", "write" or "abort".
        peer: The address of the client.
        remaining: The seconds until the deadline of the call.
    """

    def __init__(self, *stuck: str, peer: str = "ipv4:127.0.0.1:1", remaining: float = 1.0) -> None:
        self._stuck = stuck
        self._peer = peer
        self._remaining = remaining
        self._done: list[Any] = []
        self.room = asyncio.Event()
        self.waits = asyncio.Event()
        self.aborted: tuple[Any, ...] = ()

    def peer(self) -> str:
        return self._peer

    def time_remaining(self) -> float:
        return self._remaining

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def add_done_callback(self, callback: Any) -> None:
        self._done.append(callback)

    def end(self) -> None:
        """End as gRPC does, when the client has the answer or has gone."""
        for callback in self._done:
            callback(self)

    async def send_initial_metadata(self, _metadata: object) -> None:
        await self._go_on("metadata")

    async def read(self) -> bytes:
        await self._go_on("read")
        return b""

    async def write(self, _answer: bytes) -> None:
        await self._go_on("write")

    async def abort(self, *status: object) -> None:
        self.aborted = status
        await self._go_on("abort")
        raise aio.AbortError

    async def _go_on(self, what: str) -> None:
        if what in self._stuck:
            self.waits.set()
            await self.room.wait()
