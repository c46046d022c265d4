"""Connections over HTTP that wait take no room from others: in a handshake, before a request, after or in an answer."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from integration.authorities import Authority
from uvicorn.server import ServerState

from memotree.gateways import http_connection
from memotree.gateways.catalogue import OnProgress
from memotree.gateways.http_connection import Connections, HttpConnection
from memotree.gateways.http_events import EventStream
from memotree.gateways.results import Result
from memotree.server.waiting import WaitingCalls

pytestmark = pytest.mark.requirement("SERVE-3", "STORE-8")

GET = b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n"
POST = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n"
MOST = 8
"""The connections that may wait in one way at a port with limits, and twice those of one address."""

BODY = 1 << 24
"""The bytes of an answer that is larger than what the buffers of a connection hold."""


async def short(_scope: Any, receive: Any, send: Any, body: bytes = b"ok") -> None:
    """Read the request, and answer it."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


large = partial(short, body=bytes(BODY))


def noting(begun: asyncio.Event) -> Any:
    """An application that notes that a request has begun."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        begun.set()
        await short(scope, receive, send)

    return app


class NotedConnection(HttpConnection):
    """A connection that is noted when the server has closed or lost it."""

    def __init__(self, lost: asyncio.Semaphore, *calls: WaitingCalls, **uvicorn: Any) -> None:
        super().__init__(*calls, **uvicorn)
        self._lost = lost

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._lost.release()


class Ports:
    """Starts ports over HTTP, and connects to them until the test ends."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.lost = asyncio.Semaphore(0)
        self._stack = stack

    async def counting(
        self, half_open: WaitingCalls | None = None, unread: WaitingCalls | None = None, app: Any = short
    ) -> int:
        """A port whose connections count as given."""
        counts = (half_open or WaitingCalls(), unread or WaitingCalls())
        make = partial(NotedConnection, self.lost, *counts, **_given(app))
        server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
        await self._stack.enter_async_context(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def limited(self, context: ssl.SSLContext | None = None, app: Any = short) -> int:
        """A port where eight connections may wait in one way, and four of one address."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._stack.callback(listener.close)
        accepting = asyncio.create_task(Connections(MOST, context).accept(listener, **_given(app)))
        self._stack.push_async_callback(asyncio.wait, [accepting])
        self._stack.callback(accepting.cancel)
        port: int = listener.getsockname()[1]
        return port

    async def connect(self, port: int, *parts: bytes, **options: Any) -> tuple[Any, Any]:
        """A connection of a client that has sent these parts of a request."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port, **options)
        self._stack.push_async_callback(_close, writer)
        for part in parts:
            writer.write(part)
            await writer.drain()
        return reader, writer


def _given(app: Any) -> dict[str, Any]:
    """What uvicorn gives to each connection."""
    config = uvicorn.Config(app, interface="asgi3", log_config=None, lifespan="off", ws="none", timeout_keep_alive=600)
    config.load()
    return {"config": config, "server_state": ServerState(), "app_state": {}}


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


@pytest.fixture
async def ports() -> AsyncIterator[Ports]:
    async with AsyncExitStack() as stack:
        yield Ports(stack)


async def received(reader: asyncio.StreamReader) -> bytes:
    """What arrives until the connection ends, or a large answer has."""
    found = bytearray()
    with suppress(ConnectionError):
        while len(found) < BODY and (part := await asyncio.wait_for(reader.read(1 << 20), 60)):
            found += part
    return bytes(found)


async def answered(pair: tuple[Any, Any], sent: bytes = GET) -> None:
    pair[1].write(sent)
    await asyncio.wait_for(pair[0].readuntil(b"ok"), 60)


# --- Requests that do not arrive -------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b"GET /x HT", POST % 3, POST % 3 + b"ab", GET + b"GET /x HT"])
async def test_a_connection_whose_request_does_not_arrive_in_time_is_closed(ports: Ports, sent: bytes) -> None:
    reader, _ = await ports.connect(await ports.counting(WaitingCalls(8, seconds=0.3)), sent)
    assert (await received(reader)).endswith(b"ok" if sent.startswith(GET) else b"")


async def test_the_oldest_connections_without_a_request_make_room(ports: Ports) -> None:
    port = await ports.counting(WaitingCalls(4))
    silent = [await ports.connect(port, sent) for sent in (b"", b"GET", POST % 3, b"", b"P", POST % 3 + b"a")]
    await answered(await ports.connect(port), POST % 3 + b"abc")
    ends = [asyncio.ensure_future(received(reader)) for reader, _ in silent]
    await asyncio.wait_for(asyncio.gather(*ends[:3]), 60)
    assert [each.done() for each in ends] == [True] * 3 + [False] * 3


async def test_a_request_in_pieces_is_answered_and_counts_no_longer(ports: Ports) -> None:
    port = await ports.counting(WaitingCalls(1))
    first = await ports.connect(port, (POST % 3)[:9], (POST % 3)[9:], b"ab")
    await answered(first, b"c")
    await ports.connect(port)  # the first one is idle now, and not half-open
    await answered(first)


async def test_the_head_of_a_request_has_less_time_than_the_rest(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = asyncio.Event()
    port = await ports.limited(app=noting(begun))
    body = await ports.connect(port, POST % 3 + b"a")
    await asyncio.wait_for(begun.wait(), 60)
    monkeypatch.setattr(http_connection, "HEAD_SECONDS", 0.05)
    slow, _ = await ports.connect(port, b"GET /x HTTP/1.1\r\nHost:")
    assert await received(slow) == b""
    await answered(body, b"bc")


async def test_the_rest_of_a_request_has_more_time_the_more_of_it_has_come(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "REQUEST_SECONDS", 0.5)
    begun = asyncio.Event()
    port = await ports.limited(app=noting(begun))
    monkeypatch.setattr(http_connection, "LEAST_RATE", 1)  # half a minute and more for the head alone
    coming = await ports.connect(port, POST % 3 + b"a")
    await asyncio.wait_for(begun.wait(), 60)
    monkeypatch.setattr(http_connection, "LEAST_RATE", 1 << 20)
    silent, _ = await ports.connect(port, POST % 3 + b"a")
    assert await received(silent) == b"", "it began later, and ends sooner"
    await answered(coming, b"bc")


async def test_a_request_that_the_server_does_not_read_on_is_not_late(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "REQUEST_SECONDS", 1.0)
    monkeypatch.setattr(http_connection, "LEAST_RATE", 1 << 30)
    reads = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await reads.wait()
        await short(scope, receive, send)

    port = await ports.limited(app=slow)
    size = 1 << 20
    first, second = [await ports.connect(port, POST % size + bytes(size // 2)) for _ in range(2)]
    late = await ports.connect(port, POST % 3)
    assert await received(late[0]) == b""
    reads.set()
    await answered(first, bytes(size // 2))
    assert await received(second[0]) == b"", "the server reads on, and nothing more comes"


# --- Connections that do nothing --------------------------------------------------------------------------------------


@pytest.fixture
def encrypted(tmp_path: Path) -> ssl.SSLContext:
    made = Authority(tmp_path)
    made.renew()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    return context


async def test_handshakes_that_do_not_go_on_shut_nobody_out(ports: Ports, encrypted: ssl.SSLContext) -> None:
    port = await ports.limited(encrypted)
    silent = [await ports.connect(port, b"\x16\x03\x01") for _ in range(5 * MOST)]
    ends = [asyncio.ensure_future(received(reader)) for reader, _ in silent]
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    await answered(await ports.connect(port, ssl=trusting))
    await asyncio.wait_for(asyncio.gather(*ends[: -MOST // 2]), 60)
    assert [each.done() for each in ends[-MOST // 2 + 1 :]] == [False] * (MOST // 2 - 1)


async def test_a_handshake_that_takes_too_long_is_ended(
    ports: Ports, encrypted: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "HANDSHAKE_SECONDS", 0.05)
    reader, _ = await ports.connect(await ports.limited(encrypted), b"\x16")
    assert await received(reader) == b""


async def test_idle_connections_of_one_address_end_its_own_oldest_ones(ports: Ports) -> None:
    port = await ports.limited()
    other = await ports.connect(port, local_addr=("127.0.0.2", 0))
    await answered(other)
    idle = []
    for _ in range(5 * MOST):
        idle.append(await ports.connect(port))
        await answered(idle[-1])
    for reader, _ in idle[: -MOST // 2]:
        assert await received(reader) == b""
    for pair in [*idle[-MOST // 2 :], other]:  # the last ones, and that of another address, go on
        await answered(pair)


async def test_connections_of_many_addresses_end_those_of_the_address_with_most(ports: Ports) -> None:
    port = await ports.limited()
    alone = await ports.connect(port, local_addr=("127.0.0.200", 0))
    for number in range(10 * MOST):
        await ports.connect(port, local_addr=(f"127.0.0.{2 + number % 3}", 0))
    await answered(alone)


# --- Answers that are not read ----------------------------------------------------------------------------------------


async def test_a_connection_whose_answer_is_not_read_in_time_is_closed(ports: Ports) -> None:
    port = await ports.counting(unread=WaitingCalls(seconds=0.05), app=large)
    reader, _ = await ports.connect(port, GET, limit=1024)
    await asyncio.wait_for(ports.lost.acquire(), 60)
    assert len(await received(reader)) < BODY


async def test_the_oldest_connections_that_nobody_reads_make_room(ports: Ports) -> None:
    port = await ports.counting(unread=WaitingCalls(2), app=large)
    unread = []
    for _ in range(3):
        reader, _ = await ports.connect(port, GET, limit=1024)
        await asyncio.wait_for(reader.readexactly(1), 60)
        unread.append(reader)
    another, _ = await ports.connect(port, GET, limit=1024)
    assert len(await received(another)) >= BODY
    assert len(await received(unread[0])) < BODY
    assert len(await received(unread[2])) >= BODY - 1


async def test_a_connection_that_has_read_its_answer_counts_no_longer(ports: Ports) -> None:
    port = await ports.counting(unread=WaitingCalls(1), app=large)
    reader, writer = await ports.connect(port, GET, limit=1024)
    assert len(await received(reader)) >= BODY
    unread, _ = await ports.connect(port, GET, limit=1024)
    await asyncio.wait_for(unread.readexactly(1), 60)
    writer.write(GET)
    assert len(await received(reader)) >= BODY


@pytest.mark.requirement("TOOL-10")
async def test_a_client_that_does_not_read_its_events_loses_the_connection_and_its_call_ends(ports: Ports) -> None:
    ended = asyncio.Event()

    async def call(tell: OnProgress) -> Result:
        try:
            while True:
                await tell(0.0, "x" * 100_000)
                await asyncio.sleep(0)
        finally:
            ended.set()

    port = await ports.counting(unread=WaitingCalls(seconds=0.05), app=EventStream(call))
    await ports.connect(port, GET, limit=1024)
    await asyncio.wait_for(ports.lost.acquire(), 60)
    await asyncio.wait_for(ended.wait(), 60)
