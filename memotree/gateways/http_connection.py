"""One HTTP connection, whose request must arrive in time: uvicorn itself waits for ever."""

from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from memotree.server.half_open import HalfOpenCall, HalfOpenCalls


class HttpConnection(H11Protocol):
    """A connection that is closed if it is half-open for too long: from its first byte, or since it was made.

    uvicorn closes a connection that is idle after an answer by itself.

    Args:
        half_open: Counts the connections whose request has not arrived.
    """

    def __init__(self, half_open: HalfOpenCalls, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self._half_open = half_open
        self._call: HalfOpenCall | None = None

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

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing any more."""
        self._end()
        super().connection_lost(exc)

    def _expect(self) -> None:
        if self._call is None:
            self._call = self._half_open.begin(self.client[0] if self.client else "", self.transport.abort)

    def _end(self) -> None:
        if self._call is not None:
            self._call.end()
            self._call = None
