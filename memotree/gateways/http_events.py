"""A call of a tool over HTTP while its client waits: with server-sent events, and ended when the client goes away.

The events are those of the HTML standard: ``progress`` while the tool works, and as the last one ``result``. A client
that reads slowly gets the newest progress and not all of it; one that does not read is watched by its connection.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from memotree.gateways.catalogue import OnProgress
from memotree.gateways.results import Result

EVENTS: Final = "text/event-stream"
"""The media type of the answer."""

KEEP_ALIVE_SECONDS: Final = 15.0
"""After so many seconds without an event a comment is sent: proxies close connections on which nothing happens."""

STILL_AT_WORK: Final = b": still at work\n\n"
"""That comment."""

T = TypeVar("T")

HEADERS: Final = [
    (b"content-type", EVENTS.encode()),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # else nginx holds events back until it has many
]
"""The headers of an answer with events."""


def wants_events(accept: str) -> bool:
    """Whether a client asks for events; one that takes JSON as well gets that."""
    kinds = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    return EVENTS in kinds and "application/json" not in kinds


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of work for a client whose request has arrived; if the client goes away first, the work is cancelled.

    Raises:
        ClientDisconnect: The client is gone, and the work has ended.
    """
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_gone(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
        await asyncio.wait({working, leaving})
    if working.cancelled():
        raise ClientDisconnect
    return working.result()


async def _gone(receive: Receive) -> None:
    """Wait until the client has closed the connection, or nothing more can be read from it."""
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Answers with the progress of a call, and then its result.

    Args:
        call: Calls the tool, and tells its progress.
    """

    media_type = EVENTS

    def __init__(self, call: Callable[[OnProgress], Coroutine[Any, Any, Result]]) -> None:
        super().__init__()
        self._call = call
        self._changed = asyncio.Event()
        self._progress: Mapping[str, Any] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; a client that goes away ends the call."""
        del scope
        with suppress(ClientDisconnect):
            await while_connected(receive, self._answer(send))

    async def _answer(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        calling = asyncio.create_task(self._call(self._note))
        calling.add_done_callback(lambda _: self._changed.set())
        try:
            while not calling.done():
                await send({"type": "http.response.body", "body": await self._next(), "more_body": True})
        finally:
            if not calling.done():
                calling.cancel()
                await asyncio.wait({calling})
        last = self._newest() + event_text("result", calling.result().to_json())
        await send({"type": "http.response.body", "body": last})

    async def _note(self, progress: float, message: str) -> None:
        """Keep the newest progress until it can be sent: the call does not wait for its reader."""
        self._progress = {"progress": progress, "message": message}
        self._changed.set()

    async def _next(self) -> bytes:
        """The next event before the result; empty if there is none."""
        try:
            async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                await self._changed.wait()
        except TimeoutError:
            return STILL_AT_WORK
        self._changed.clear()
        return self._newest()

    def _newest(self) -> bytes:
        progress, self._progress = self._progress, None
        return b"" if progress is None else event_text("progress", progress)


def event_text(name: str, data: Mapping[str, Any]) -> bytes:
    """An event as it is sent."""
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()
