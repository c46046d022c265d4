"""Connections over HTTP that only wait take no room from others: in a handshake, before a request, after an answer."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from integration.authorities import Authority
from uvicorn.server import ServerState

from memotree.gateways import http_connection
from memotree.gateways.http_connection import Connections

pytestmark = pytest.mark.requirement("SERVE-3")

GET = b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n"
MOST = 8
POST = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n"
Start = Callable[..., Awaitable[int]]


async def app(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts a port where eight connections may wait in one way, and four of one address."""
    async with AsyncExitStack() as stack:

        async def started(context: ssl.SSLContext | None, app: Any = app) -> int:
            listener = socket.create_server(("127.0.0.1", 0), backlog=256)
            stack.callback(listener.close)
            config = uvicorn.Config(app, log_config=None, lifespan="off", ws="none", timeout_keep_alive=600)
            config.load()
            accepting = asyncio.create_task(
                Connections(MOST, context).accept(listener, config=config, server_state=ServerState(), app_state={})
            )

            async def stop() -> None:
                accepting.cancel()
                await asyncio.gather(accepting, return_exceptions=True)

            stack.push_async_callback(stop)
            port: int = listener.getsockname()[1]
            return port

        yield started


async def connect(port: int, sent: bytes = b"", address: str = "127.0.0.1") -> tuple[Any, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    writer.write(sent)
    await writer.drain()
    return reader, writer


async def close(pairs: Sequence[tuple[Any, Any]]) -> None:
    for _, writer in pairs:
        writer.close()
    await asyncio.gather(*(writer.wait_closed() for _, writer in pairs), return_exceptions=True)


async def is_closed(reader: asyncio.StreamReader) -> None:
    try:
        while await asyncio.wait_for(reader.read(1024), 60):
            pass
    except ConnectionError:
        pass


async def answered(pair: tuple[Any, Any]) -> None:
    pair[1].write(GET)
    await asyncio.wait_for(pair[0].readuntil(b"ok"), 60)


@pytest.fixture
def encrypted(tmp_path: Path) -> ssl.SSLContext:
    made = Authority(tmp_path)
    made.renew()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    return context


async def test_handshakes_that_do_not_go_on_shut_nobody_out(start: Start, encrypted: ssl.SSLContext) -> None:
    port = await start(encrypted)
    silent = [await connect(port, b"\x16\x03\x01") for _ in range(5 * MOST)]
    closed = [asyncio.ensure_future(is_closed(reader)) for reader, _ in silent]
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
    await answered((reader, writer))
    await asyncio.wait_for(asyncio.gather(*closed[: 5 * MOST - MOST // 2]), 60)
    assert [each.done() for each in closed[-MOST // 2 + 1 :]] == [False] * (MOST // 2 - 1)
    await close([*silent, (reader, writer)])
    await asyncio.gather(*closed)


async def test_a_handshake_that_takes_too_long_is_ended(
    start: Start, encrypted: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "HANDSHAKE_SECONDS", 0.05)
    reader, writer = await connect(await start(encrypted), b"\x16")
    await is_closed(reader)
    await close([(reader, writer)])


async def test_the_head_of_a_request_has_less_time_than_the_rest(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "HEAD_SECONDS", 0.05)
    port = await start(None)
    slow = await connect(port, b"GET /x HTTP/1.1\r\nHost:")
    body = await connect(port, b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\na")
    await is_closed(slow[0])
    body[1].write(b"bc")
    await asyncio.wait_for(body[0].readuntil(b"ok"), 60)
    await close((slow, body))


async def test_the_rest_of_a_request_has_more_time_the_more_of_it_has_come(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "REQUEST_SECONDS", 0.2)
    port = await start(None)
    monkeypatch.setattr(http_connection, "LEAST_RATE", 1 << 20)
    silent = await connect(port, POST % 3 + b"a")
    await is_closed(silent[0])
    monkeypatch.setattr(http_connection, "LEAST_RATE", 1)  # half a minute and more for the head alone
    coming = await connect(port, POST % 3 + b"a")
    await asyncio.sleep(0.5)
    coming[1].write(b"bc")
    await asyncio.wait_for(coming[0].readuntil(b"ok"), 60)
    await close((silent, coming))


async def test_a_request_that_the_server_does_not_read_on_is_not_late(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "REQUEST_SECONDS", 0.5)
    monkeypatch.setattr(http_connection, "LEAST_RATE", 1 << 30)
    reads = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await reads.wait()
        while (await receive()).get("more_body"):
            pass
        await app(scope, receive, send)

    port = await start(None, slow)
    size = 1 << 20
    pairs = [await connect(port, POST % size + bytes(size // 2)) for _ in range(2)]
    late = await connect(port, POST % 3)
    await is_closed(late[0])
    reads.set()
    pairs[0][1].write(bytes(size // 2))
    await asyncio.wait_for(pairs[0][0].readuntil(b"ok"), 60)
    await is_closed(pairs[1][0])  # since the server reads on, and nothing more comes
    await close([*pairs, late])


async def test_idle_connections_of_one_address_end_its_own_oldest_ones(start: Start) -> None:
    port = await start(None)
    other = await connect(port, address="127.0.0.2")
    await answered(other)
    idle = []
    for _ in range(5 * MOST):
        idle.append(await connect(port))
        await answered(idle[-1])
    for reader, _ in idle[: -MOST // 2]:
        await is_closed(reader)
    for pair in [*idle[-MOST // 2 :], other]:  # the last ones, and that of another address, go on
        await answered(pair)
    await close([*idle, other])


async def test_connections_of_many_addresses_end_those_of_the_address_with_most(start: Start) -> None:
    port = await start(None)
    alone = await connect(port, address="127.0.0.200")
    many = [await connect(port, address=f"127.0.0.{2 + number % 3}") for number in range(10 * MOST)]
    await answered(alone)
    await close([*many, alone])
