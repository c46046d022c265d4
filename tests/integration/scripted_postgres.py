"""A stand-in for PostgreSQL at its socket: it answers connections as a test says, or passes them on to a real one."""

import asyncio
import struct
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from psycopg.conninfo import conninfo_to_dict, make_conninfo

SSL_REQUEST = 80_877_103


@dataclass
class ScriptedPostgres:
    """Answers the first connections with these refusals, and passes the later ones on.

    Attributes:
        conninfo: Where tests connect.
        refusals: The message for each of the next connections; ``down`` refuses all while it is set.
        connections: The number of connections so far.
    """

    conninfo: str = ""
    refusals: list[tuple[str, str]] = field(default_factory=list)
    down: tuple[str, str] | None = None
    connections: int = 0
    open: set[asyncio.StreamWriter] = field(default_factory=set)

    def drop(self) -> None:
        """Close all connections, as a server does that stops."""
        for writer in list(self.open):
            writer.close()


@asynccontextmanager
async def in_front_of(conninfo: str, refusals: Iterable[tuple[str, str]] = ()) -> AsyncIterator[ScriptedPostgres]:
    """A scripted server on loopback in front of the real one at a Unix socket; a refusal is (SQLSTATE, message)."""
    scripted = ScriptedPostgres(refusals=list(refusals))
    parts = conninfo_to_dict(conninfo)
    path = f"{parts['host']}/.s.PGSQL.{parts['port']}"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        scripted.connections += 1
        scripted.open.add(writer)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await _converse(scripted, path, reader, writer)
        finally:
            scripted.open.discard(writer)
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    scripted.conninfo = make_conninfo(conninfo, host=host, port=str(port))
    try:
        yield scripted
    finally:
        server.close()
        scripted.drop()


async def _converse(
    scripted: ScriptedPostgres, path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    length, code = struct.unpack("!ii", await reader.readexactly(8))
    while code == SSL_REQUEST or length == 8:  # the client asks for TLS or GSS first
        writer.write(b"N")
        length, code = struct.unpack("!ii", await reader.readexactly(8))
    start = struct.pack("!ii", length, code) + await reader.readexactly(length - 8)
    refusal = scripted.refusals.pop(0) if scripted.refusals else scripted.down
    if refusal is not None:
        state, message = refusal
        fields = f"SFATAL\0VFATAL\0C{state}\0M{message}\0\0".encode()
        writer.write(b"E" + struct.pack("!i", len(fields) + 4) + fields)
        await writer.drain()
        return
    behind, before = await asyncio.open_unix_connection(path)
    before.write(start)
    await asyncio.wait(
        {asyncio.ensure_future(_pass_on(reader, before)), asyncio.ensure_future(_pass_on(behind, writer))},
        return_when=asyncio.FIRST_COMPLETED,
    )
    before.close()


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await source.read(65_536):
            target.write(data)
            await target.drain()
    target.close()
