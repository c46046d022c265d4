"""HTTP servers on this machine, for tests of what reaches other hosts."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Answer = Callable[[str, dict[str, str], bytes], bytes | Awaitable[bytes]]


class Site:
    """An HTTP server on this machine."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.port = 0
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.talks: list[asyncio.Task[None]] = []

    def begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.talks.append(asyncio.create_task(self._talk(reader, writer)))

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.seen.append((head[0], headers, body))
            found = self._answer(head[0], headers, body)
            writer.write(found if isinstance(found, bytes) else await found)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


@asynccontextmanager
async def site(answer: Answer) -> AsyncIterator[Site]:
    made = Site(answer)
    server = await asyncio.start_server(made.begin, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for talk in made.talks:
            talk.cancel()
        await asyncio.gather(*made.talks, return_exceptions=True)
        await server.wait_closed()


def said(status: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body
