"""One HTTP connection, which never waits for its client for ever, and takes no room from others while it waits.

The handshake of TLS, the head of a request, the rest of it, the next request and the reading of an answer have limits
of time. The rest of a request may be long: it has the more time, the more of it has come. And so many connections may
be in each of these states, in all and of one address. A further one ends the oldest one of the address that has most:
so who lets the server wait is shut out, and nobody else. uvicorn by itself waits for ever for most of this, and knows
nothing of connections before their handshake is done.

The requests of a connection have the certificate of their client in their scope, where no header can put one.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Any, Final

import h11
import structlog
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from memotree.server.connections import peer_of
from memotree.server.half_open import REQUEST_SECONDS
from memotree.server.unread import ANSWER_SECONDS, PATIENCE_SECONDS
from memotree.server.waiting import WaitingCall, WaitingCalls

CERTIFICATE: Final = "memotree.certificate"
"""The name under which the scope of a request has the certificate of its client: DER, verified by TLS, or empty."""

HANDSHAKE_SECONDS: Final = 10.0
"""How long the handshake of TLS may take."""

HEAD_SECONDS: Final = 20.0
"""How long the first line and the headers of a request may take to arrive."""

LEAST_RATE: Final = 8 << 10
"""Bytes of the rest of a request that give it a second more to arrive: a push may be large, and its line slow."""

IDLE_SECONDS: Final = 5
"""How long a connection may be idle after an answer."""

CLOSING_SECONDS: Final = 5.0
"""How long a connection that the server closes may take for that."""

_EXHAUSTED: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_PAUSE_SECONDS: Final = 0.1

log = structlog.get_logger("memotree.server")


class Connections:
    """Accepts the connections of an HTTP port, and counts those that wait for their clients, from their first moment.

    Args:
        most: How many may wait in one way, in all; those of one address at most half of it.
        context: The context of TLS; ``None`` without TLS.
    """

    def __init__(self, most: int, context: ssl.SSLContext | None) -> None:
        self._context = context
        self._half_open = WaitingCalls(most, REQUEST_SECONDS, most_of_one=max(1, most // 2))
        self._idle = WaitingCalls(most, most_of_one=max(1, most // 2))
        self._unread = WaitingCalls(most, ANSWER_SECONDS, PATIENCE_SECONDS)
        self._arriving: set[asyncio.Task[None]] = set()

    async def accept(self, listener: socket.socket, **uvicorn: Any) -> None:
        """Accept connections until this is cancelled, which ends those whose handshake runs.

        Args:
            listener: The listening socket.
            uvicorn: What uvicorn gives to each connection.
        """
        loop = asyncio.get_running_loop()
        listener.setblocking(False)  # noqa: FBT003 - it takes no name
        make = partial(HttpConnection, self._half_open, self._unread, self._idle, **uvicorn)
        try:
            while True:
                try:
                    accepted, address = await loop.sock_accept(listener)
                except OSError as error:  # the client is gone already, or no further file may be opened
                    if error.errno in _EXHAUSTED:
                        log.warning("no connection can be accepted now", why=error.strerror)
                        await asyncio.sleep(_PAUSE_SECONDS)
                    continue
                arriving = loop.create_task(self._arrive(accepted, peer_of(address), make))
                self._arriving.add(arriving)
                arriving.add_done_callback(self._arriving.discard)
        finally:
            for each in self._arriving:
                each.cancel()

    async def _arrive(self, accepted: socket.socket, peer: str, make: "Callable[..., HttpConnection]") -> None:
        """Take a connection to where it speaks HTTP; it is half-open already during its handshake."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - `accept` made it
        tls = {} if self._context is None else {"ssl_shutdown_timeout": CLOSING_SECONDS}
        waiting = self._half_open.begin(peer, partial(_cancel, task), seconds=HANDSHAKE_SECONDS)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                partial(make, arrived=waiting.end), accepted, ssl=self._context, **tls
            )
        except OSError:  # a fault of TLS, or the client is gone
            pass
        finally:
            waiting.end()


class _Wait(Enum):
    """What a connection waits for."""

    HEAD = auto()
    BODY = auto()
    NEXT = auto()
    CLOSE = auto()


class HttpConnection(H11Protocol):
    """A connection that is closed if it waits for its client for too long.

    It is half-open from its first byte, or since it was made, until its request has arrived, except while the server
    itself takes no more of it. It is idle after an answer, until the next request begins or it is closed. Its answer is
    unread while there is no room for more of it.

    Args:
        half_open: Counts the connections whose request has not arrived.
        unread: Counts the connections whose client does not read.
        idle: Counts those that are idle.
        arrived: Called when the connection speaks HTTP, before it is counted.
    """

    def __init__(
        self,
        half_open: WaitingCalls,
        unread: WaitingCalls,
        idle: WaitingCalls | None = None,
        *,
        arrived: Callable[[], None] = lambda: None,
        **uvicorn: Any,
    ) -> None:
        super().__init__(**uvicorn)
        self._half_open = half_open
        self._unread = unread
        self._idle = idle or WaitingCalls()
        self._arrived = arrived
        self._waits_for: _Wait | None = None
        self._waiting: WaitingCall | None = None
        self._answered: WaitingCall | None = None

    def connection_made(self, transport: Any) -> None:
        """Expect a request."""
        super().connection_made(transport)
        self.flow = _Flow(transport, self._look)
        encrypted = transport.get_extra_info("ssl_object")
        certificate = None if encrypted is None else encrypted.getpeercert(binary_form=True)
        self.app = _with_certificate(self.app, certificate or b"")
        self._arrived()
        self._wait(_Wait.HEAD)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request, or all of it."""
        super().data_received(data)
        self._look()
        if self._waits_for is _Wait.BODY and self._waiting is not None:
            self._waiting.prolong(len(data) / LEAST_RATE)

    def on_response_complete(self) -> None:
        """Expect the next request, or the end of the connection."""
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        """Expect that the client reads."""
        super().pause_writing()
        if self._answered is None:
            self._answered = self._unread.begin(peer_of(self.client), self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        if self._answered is not None:
            self._answered.end()
            self._answered = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing any more."""
        self._wait(None)
        self.resume_writing()
        super().connection_lost(exc)

    def _look(self) -> None:
        """Find out for what the connection waits now."""
        state = self.conn.their_state
        if self.transport.is_closing():
            self._wait(_Wait.CLOSE)
        elif state is h11.SEND_BODY:
            self._wait(None if self.flow.read_paused else _Wait.BODY)
        elif state is not h11.IDLE:
            self._wait(None)
        elif self.cycle is None or self.conn.trailing_data[0]:
            self._wait(_Wait.HEAD)
        else:
            self._wait(_Wait.NEXT)

    def _wait(self, what: _Wait | None) -> None:
        if what is self._waits_for:
            return
        if self._waiting is not None:
            self._waiting.end()
            self._waiting = None
        self._waits_for = what
        if what is not None:
            calls = self._half_open if what in {_Wait.HEAD, _Wait.BODY} else self._idle
            seconds = {_Wait.HEAD: HEAD_SECONDS, _Wait.CLOSE: CLOSING_SECONDS}.get(what)
            self._waiting = calls.begin(peer_of(self.client), self.transport.abort, seconds=seconds)


class _Flow(FlowControl):
    """Tells when the server reads on."""

    def __init__(self, transport: Any, goes_on: Callable[[], None]) -> None:
        super().__init__(transport)
        self._goes_on = goes_on

    def resume_reading(self) -> None:
        """Read on."""
        was_paused = self.read_paused
        super().resume_reading()
        if was_paused:
            self._goes_on()


def _with_certificate(app: Any, certificate: bytes) -> ASGIApp:
    """An application whose requests have the certificate of a connection."""

    async def with_certificate(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, CERTIFICATE: certificate}, receive, send)

    return with_certificate


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
