"""A connection whose client lets the streams have all they want, and reads nothing until the test says so.

The clients of gRPC always read; this one writes the frames of HTTP/2 itself (RFC 9113).
"""

import asyncio
import socket
import struct
from typing import Final, Self

ROOM: Final = 1 << 30
DATA, HEADERS, SETTINGS, WINDOW_UPDATE = 0, 1, 4, 8
END_STREAM, END_HEADERS = 1, 4
INITIAL_WINDOW_SIZE: Final = 4


class FullConnection:
    """A connection of a client that does not read."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.settimeout(0)

    @classmethod
    async def to(cls, address: str) -> Self:
        made = cls()
        host, port = address.rsplit(":", 1)
        await asyncio.get_running_loop().sock_connect(made._socket, (host, int(port)))
        room = struct.pack(">HI", INITIAL_WINDOW_SIZE, ROOM)
        frames = made._frame(SETTINGS, 0, 0, room) + made._frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", ROOM))
        await made._send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frames)
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    async def begin(self, stream: int, path: str) -> None:
        """Begin a call with an empty request."""
        pseudo = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "x"}
        fields = {**pseudo, "te": "trailers", "content-type": "application/grpc"}
        block = b"".join(
            b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
            for name, value in fields.items()
        )
        headers = self._frame(HEADERS, END_HEADERS, stream, block)
        await self._send(headers + self._frame(DATA, END_STREAM, stream, bytes(5)))

    async def read_until_ended(self, stream: int) -> None:
        """Read until a call has its status."""
        kind = flags = of = -1
        while (kind, flags & END_STREAM, of) != (HEADERS, END_STREAM, stream):
            header = await self._receive(9)
            kind, flags, of = struct.unpack(">BBI", header[3:])
            await self._receive(int.from_bytes(header[:3]))

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return len(payload).to_bytes(3) + struct.pack(">BBI", kind, flags, stream) + payload

    async def _send(self, frames: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._socket, frames)

    async def _receive(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            part = await asyncio.get_running_loop().sock_recv(self._socket, size - len(received))
            assert part, "the connection was closed"
            received += part
        return received
