"""Answers over HTTP that their clients do not read lock nobody out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from memotree.gateways.catalogue import OnProgress
from memotree.gateways.http_connection import HttpConnection
from memotree.gateways.http_events import EventStream
from memotree.gateways.results import Result
from memotree.server.waiting import WaitingCalls

pytestmark = pytest.mark.requirement("STORE-8")

GET = b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n"
BODY = 1 << 24
"""The bytes of an answer over HTTP that is larger than what the buffers of a connection hold."""


async def answer(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": bytes(BODY)})


class HttpPort:
    """Starts a port whose answers over HTTP are large, and whose unread ones count as given."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.lost = asyncio.Semaphore(0)
        self._stack = stack

    async def __call__(self, unread: WaitingCalls, app: Any = answer) -> int:
        config = uvicorn.Config(app, log_config=None, lifespan="off", ws="none")
        state = {"config": config, "server_state": ServerState(), "app_state": {}}
        make = partial(NotedConnection, self.lost, WaitingCalls(8), unread, **state)
        server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
        await self._stack.enter_async_context(server)
        port: int = server.sockets[0].getsockname()[1]
        return port


class NotedConnection(HttpConnection):
    """A connection that is noted when the server has closed or lost it."""

    def __init__(self, lost: asyncio.Semaphore, *calls: WaitingCalls, **uvicorn: Any) -> None:
        super().__init__(*calls, **uvicorn)
        self._lost = lost

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._lost.release()


@pytest.fixture
async def http_port() -> AsyncIterator[HttpPort]:
    async with AsyncExitStack() as stack:
        yield HttpPort(stack)


async def ask(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    writer.write(GET)
    await writer.drain()
    return reader, writer


async def received(reader: asyncio.StreamReader) -> int:
    """How many bytes arrive until the connection ends, or the answer has."""
    count = 0
    try:
        while count < BODY and (part := await asyncio.wait_for(reader.read(1 << 20), 60)):
            count += len(part)
    except ConnectionError:
        pass
    return count


async def test_a_connection_over_http_whose_answer_is_not_read_in_time_is_closed(http_port: HttpPort) -> None:
    reader, writer = await ask(await http_port(WaitingCalls(seconds=0.05)))
    await asyncio.wait_for(http_port.lost.acquire(), 60)
    assert await received(reader) < BODY
    writer.close()


async def test_connections_over_http_that_nobody_reads_make_room(http_port: HttpPort) -> None:
    port = await http_port(WaitingCalls(2))
    pairs = []
    for _ in range(3):
        pairs.append(await ask(port))
        await asyncio.wait_for(pairs[-1][0].readexactly(1), 60)
    reader, writer = await ask(port)
    assert await received(reader) >= BODY
    assert await received(pairs[0][0]) < BODY
    assert await received(pairs[2][0]) >= BODY - 1
    for _, each in [*pairs, (reader, writer)]:
        each.close()


async def test_a_connection_over_http_that_has_read_its_answer_counts_no_longer(http_port: HttpPort) -> None:
    port = await http_port(WaitingCalls(1))
    reader, writer = await ask(port)
    assert await received(reader) >= BODY
    unread = await ask(port)
    await asyncio.wait_for(unread[0].readexactly(1), 60)
    writer.write(GET)
    assert await received(reader) > 0
    for each in (writer, unread[1]):
        each.close()


@pytest.mark.requirement("TOOL-10")
async def test_a_client_that_does_not_read_its_events_loses_the_connection_and_its_call_ends(
    http_port: HttpPort,
) -> None:
    ended = asyncio.Event()

    async def call(tell: OnProgress) -> Result:
        try:
            while True:
                await tell(0.0, "x" * 100_000)
                await asyncio.sleep(0)
        finally:
            ended.set()

    _, writer = await ask(await http_port(WaitingCalls(seconds=0.05), EventStream(call)))
    await asyncio.wait_for(http_port.lost.acquire(), 60)
    await asyncio.wait_for(ended.wait(), 60)
    writer.close()
