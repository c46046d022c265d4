"""Questions with tools over HTTP: one answer, or server-sent events until the answer."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from memotree.gateways.catalogue import Catalogue, InvalidArgumentsError, Stream, arguments_of, failure_of
from memotree.gateways.http_answers import gone, refused
from memotree.gateways.http_bodies import body_of, is_json, not_json
from memotree.gateways.http_events import (
    EVENTS,
    HEADERS,
    KEEP_ALIVE_SECONDS,
    STILL_AT_WORK,
    event_text,
    while_connected,
)
from memotree.gateways.json_messages import to_json
from memotree.gateways.tool import Tool
from memotree.request.observed_calls import HTTP, calling_through
from memotree.server.request_reading import MessageTooLargeError

QUERY: Final = "query"

STREAM: Final = Tool(
    QUERY,
    "Ask with tools",
    "QueryService.StreamQuery",
    required=("query",),
    flattened=("filter", "options"),
    last="answer",
)
"""How the arguments of a question become the request of the streaming RPC."""


class QueryPaths:
    """Answers the paths ``/api/query/with-tools`` and its ``/stream``.

    Args:
        catalogue: Has the tool that asks a question, and calls RPCs.
        most_bytes: The most bytes of a body.
    """

    def __init__(self, catalogue: Catalogue, most_bytes: int) -> None:
        self._catalogue = catalogue
        self._most_bytes = most_bytes

    async def answer(self, request: Request) -> Response:
        """Answer the question in the body; a client that goes away ends the work."""
        try:
            arguments = await self._arguments(request)
            with calling_through(HTTP, request.headers.items):
                result = await while_connected(request.receive, self._catalogue.call(QUERY, arguments))
        except ClientDisconnect:
            return gone()
        except _NotAskedError as error:
            return error.response
        if result.failure is not None:
            return refused(result.failure)
        return JSONResponse({**(result.data or {}), "warnings": list(result.warnings)})

    async def stream(self, request: Request) -> Response:
        """Answer the question in the body with events."""
        try:
            arguments = await self._arguments(request)
        except ClientDisconnect:
            return gone()
        except _NotAskedError as error:
            return error.response
        return QueryStream(self._catalogue, arguments, request)

    async def _arguments(self, request: Request) -> dict[str, Any]:
        if not is_json(request):
            raise _NotAskedError(not_json())
        try:
            return arguments_of(QUERY, await body_of(request, self._most_bytes, QUERY))
        except (InvalidArgumentsError, MessageTooLargeError) as error:
            status = 413 if isinstance(error, MessageTooLargeError) else None
            raise _NotAskedError(refused(failure_of(error), status)) from None


class _NotAskedError(Exception):
    """A request that asks no question, and its response."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response


class QueryStream(Response):
    """Answers with the events of a question: ``text``, ``call``, ``result``, and at the end ``answer`` or ``error``.

    It is a call of the tool `QUERY`. One that fails before its first event, within some seconds, is answered as one
    without events.

    Args:
        catalogue: Calls the tool.
        arguments: Its arguments.
        request: The request of the client.
    """

    media_type = EVENTS

    def __init__(self, catalogue: Catalogue, arguments: Mapping[str, Any], request: Request) -> None:
        super().__init__()
        self._catalogue = catalogue
        self._arguments = arguments
        self._request = request
        self._events: asyncio.Queue[bytes] = asyncio.Queue()
        self._last = b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; a client that goes away ends the work."""
        with suppress(ClientDisconnect), calling_through(HTTP, self._request.headers.items):
            await while_connected(receive, self._answer(scope, receive, send))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events, the answer when the call has succeeded; the status of the response is that of the first one."""
        begin = {"type": "http.response.start", "status": 200, "headers": HEADERS}
        calling = asyncio.create_task(
            self._catalogue.call(QUERY, self._arguments, stream=Stream(STREAM, self._note)),
        )
        calling.add_done_callback(lambda _: self._events.put_nowait(b""))
        has_begun = False
        try:
            while event := await self._next():
                if not has_begun:
                    await send(begin)
                    has_begun = True
                await send({"type": "http.response.body", "body": event, "more_body": True})
        finally:
            if not calling.done():
                calling.cancel()
                await asyncio.wait({calling})
        failure = calling.result().failure
        if failure is not None and not has_begun:
            await refused(failure)(scope, receive, send)
            return
        if not has_begun:
            await send(begin)
        last = self._last if failure is None else event_text("error", {"error": asdict(failure)})
        await send({"type": "http.response.body", "body": last})

    async def _note(self, message: Any) -> None:
        event = event_text(*_told(message))
        if message.HasField(STREAM.last):
            self._last = event
        else:
            self._events.put_nowait(event)

    async def _next(self) -> bytes:
        """The next event, or a comment when none has come for long; empty after the last one."""
        try:
            async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                return await self._events.get()
        except TimeoutError:
            return STILL_AT_WORK


def _told(message: Any) -> tuple[str, Mapping[str, Any]]:
    """The name and the data of an event."""
    name = str(message.WhichOneof("event"))
    if name == "text":
        return name, {"text": message.text}
    return name, to_json(getattr(message, name), with_empty_lists=True)
