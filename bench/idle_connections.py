"""Thousands of connections and streams that do nothing: what they cost the server, and whether others are answered.

Run with ``python -m bench.idle_connections``. A server with API keys runs in a process of its own. A stranger opens
connections from addresses of its own and leaves them; then a principal opens event streams. Meanwhile somebody else
calls from another address, and its calls are timed beside those of a server at rest.
"""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Final

from bench.processes import memory_mb
from memotree.client import AsyncClient
from memotree.server.announcement import Announcement, read_announcement

STRANGER: Final = "127.0.0.2"
OTHER: Final = "127.0.0.3"
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""How a connection of HTTP/2 begins, with settings that change nothing."""

CALLS: Final = 200
_AT_ONCE: Final = 64
_SESSIONS: Final = 400
"""Each session of MCP has one stream of events; further ones of it are refused whatever their number."""

Row = tuple[str, int, int, float, float, float]
_PATIENCE: Final = 10.0
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def opened(port: int, count: int, sent: bytes, address: str = STRANGER) -> list[Pair]:
    """Connections on which something was sent; fewer than ``count`` if some were refused."""
    found: list[Pair] = []
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one() -> None:
        async with gate:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    pair = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
                pair[1].write(sent)
                found.append(pair)

    await asyncio.gather(*(one() for _ in range(count)))
    return found


async def closed(pairs: Sequence[Pair]) -> None:
    """Close connections."""
    for _, writer in pairs:
        writer.transport.abort()
    await asyncio.sleep(1)


async def alive(pairs: Sequence[Pair]) -> int:
    """How many of these connections the server has not closed."""
    found = 0
    for reader, writer in pairs:
        with suppress(OSError, TimeoutError):
            while await asyncio.wait_for(reader.read(65_536), 0.0001):
                pass
            continue
        found += not (reader.exception() or writer.is_closing())
    return found


async def milliseconds(call: Callable[[], Awaitable[object]]) -> float:
    """The median time of a call."""
    times = []
    for _ in range(CALLS):
        began = time.perf_counter()
        await call()
        times.append(time.perf_counter() - began)
    return 1000 * median(times)


async def over_http(port: int, key: str) -> None:
    """One request on a connection of its own, from an address that is not the stranger's."""
    request = f"GET /api/tools/remember HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n\r\n"
    ((reader, writer),) = await opened(port, 1, request.encode(), OTHER)
    answer = await asyncio.wait_for(reader.read(), _PATIENCE)
    writer.close()
    if b" 200 " not in answer[:20]:
        raise RuntimeError(answer[:200])


async def session(port: int, key: str) -> str:
    """Open a session of MCP, and return its id."""
    body = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "bench", "version": "1"},
            },
        }
    )
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
        f"Accept: application/json, text/event-stream\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    ((reader, writer),) = await opened(port, 1, (head + body).encode())
    answer = (await asyncio.wait_for(reader.read(), _PATIENCE)).decode()
    writer.close()
    lines = [line.partition(": ") for line in answer.split("\r\n")]
    return next(value for name, _, value in lines if name.lower() == "mcp-session-id")


async def streams(port: int, key: str, count: int) -> tuple[list[Pair], int, int]:
    """Streams of events, how many of them run, and how many were refused."""
    named = [await session(port, key) for _ in range(min(count, _SESSIONS))]
    pairs, running, refused = [], 0, 0
    for start in range(0, count, _AT_ONCE):
        asked = []
        for number in range(start, min(count, start + _AT_ONCE)):
            head = (
                f"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\nAccept: text/event-stream\r\n"
                f"Mcp-Session-Id: {named[number % len(named)]}\r\n\r\n"
            )
            asked += await opened(port, 1, head.encode())
        for reader, _ in asked:
            with suppress(OSError, TimeoutError):
                line = await asyncio.wait_for(reader.readline(), _PATIENCE)
                running += b" 200 " in line
                refused += b" 429 " in line
        pairs += asked
    return pairs, running, refused


async def measure(announced: Announcement, pid: int, key: str, count: int) -> list[Row]:
    """The rows: what was opened, how much of it stays, megabytes, and the two times beside those at rest."""
    http = int(announced.url.rpartition(":")[2])
    grpc = int(announced.address.rpartition(":")[2])
    rows: list[Row] = []
    async with AsyncClient(announced.address, key=key) as client:

        async def row(name: str, pairs: Sequence[Pair], stays: int) -> None:
            one, two = await milliseconds(lambda: over_http(http, key)), await milliseconds(client.principal)
            rows.append((name, len(pairs), stays, memory_mb(pid)["service"], one, two))
            sys.stdout.write(f"{rows[-1]}\n")
            await closed(pairs)

        await row("nothing", [], 0)
        for name, port, sent in (
            ("HTTP, nothing sent", http, b""),
            ("HTTP, half a request", http, b"GET /livez HTTP/1.1\r\nHo"),
            ("HTTP, idle after an answer", http, b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
            ("gRPC, no call", grpc, PREFACE),
        ):
            pairs = await opened(port, count, sent)
            await asyncio.sleep(1)
            await row(name, pairs, await alive(pairs))
        pairs, running, refused = await streams(http, key, count)
        sys.stdout.write(f"streams of events: {running} run, {refused} were refused\n")
        await row("streams of events of one principal", pairs, running)
        await row("nothing", [], 0)
    return rows


def main() -> None:
    """Start a server, measure, and print the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="how many connections, and streams")
    count = parser.parse_args().count
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            "MEMOTREE_DATA": folder,
            "MEMOTREE_AUTHENTICATION": "keys",
            "MEMOTREE_PORT": "0",
            "MEMOTREE_HTTP_PORT": "0",
            "MEMOTREE_LOG_LEVEL": "error",
        }
        command = [sys.executable, "-m", "memotree.cli", "serve"]
        with subprocess.Popen(command, env=os.environ | environment) as server:
            try:
                while (announced := read_announcement(Path(folder))) is None:
                    time.sleep(0.2)
                key = (Path(folder) / "admin.key").read_text(encoding="ascii").strip()
                rows = asyncio.run(measure(announced, server.pid, key, count))
            finally:
                server.terminate()
    rest = rows[0]
    sys.stdout.write("opened | stays | service MB | HTTP call | gRPC call\n")
    for name, made, stays, megabytes, one, two in rows:
        ratios = f"{one / rest[4]:.2f} | {two / rest[5]:.2f}"
        sys.stdout.write(f"{name}: {made} | {stays} | {megabytes:.0f} | {ratios}\n")


if __name__ == "__main__":
    main()
