"""One HTTP connection; its request must arrive and its answer must be read in time: uvicorn itself waits for ever."""

from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from memotree.server.waiting import WaitingCall, WaitingCalls


class HttpConnection(H11Protocol):
    """A connection that is closed if it waits for its client for too long.

    It is half-open from its first byte, or since it was made, until its request has arrived. Its answer is unread while
    there is no room for more of it. uvicorn closes a connection that is idle after an answer by itself.

    Args:
        half_open: Counts the connections whose request has not arrived.
        unread: Counts the connections whose client does not read.
    """

    def __init__(self, half_open: WaitingCalls, unread: WaitingCalls, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self._half_open = half_open
        self._unread = unread
        self._requested: WaitingCall | None = None
        self._answered: WaitingCall | None = None

    def connection_made(self, transport: Any) -> None:
        """Expect a request."""
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request, or all of it."""
        super().data_received(data)
        if self.conn.their_state in {h11.IDLE, h11.SEND_BODY} and not self.transport.is_closing():
            self._expect()
        else:
            self._end()

    def pause_writing(self) -> None:
        """Expect that the client reads."""
        super().pause_writing()
        if self._answered is None:
            self._answered = self._unread.begin(self._peer(), self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        if self._answered is not None:
            self._answered.end()
            self._answered = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing any more."""
        self._end()
        self.resume_writing()
        super().connection_lost(exc)

    def _expect(self) -> None:
        if self._requested is None:
            self._requested = self._half_open.begin(self._peer(), self.transport.abort)

    def _end(self) -> None:
        if self._requested is not None:
            self._requested.end()
            self._requested = None

    def _peer(self) -> str:
        return self.client[0] if self.client else ""
