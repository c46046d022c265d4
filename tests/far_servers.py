"""A server as seen from far away: what it sends arrives late, so even a connection takes its time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

FAR = 0.4
"""Seconds; more than any network between two machines needs, and than a busy machine keeps a connection waiting."""


@asynccontextmanager
async def far_away(port: int, seconds: float = FAR) -> AsyncIterator[int]:
    """The port of a relay on loopback in front of that port; all that comes back arrives that much later."""

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, late: float) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                await asyncio.sleep(late)
                writer.write(data)
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        ends.extend((back, writer))
        relays.append(asyncio.gather(pass_on(reader, back, 0), pass_on(there, writer, seconds)))

    relays: list[asyncio.Future[list[None]]] = []
    ends: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    async with server:
        yield int(server.sockets[0].getsockname()[1])
    for writer in ends:
        writer.close()
    await asyncio.gather(*relays)
