"""Answers that their clients do not read: no call waits long for its reader, and their memory is bounded.

gRPC takes an answer only as far as its client has room for it, and cannot take it back. So a call whose client does not
read is ended, and its last answer and its status stay in gRPC until the client reads them, cancels the call or closes
the connection. If too much stays so, the connection that has most of it is closed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import structlog
from memotree_storage.errors import TooLargeError

from memotree.server.call_record import Context
from memotree.server.waiting import WaitingCall, WaitingCalls

ANSWER_SECONDS: Final = 60.0
"""How long a client may take to have room for the next answer of a stream."""

PATIENCE_SECONDS: Final = 1.0
"""How long it may take also while other calls need the place; one that reads takes less."""

LEFT_BYTES: Final = 2**28
"""The most bytes that may stay in gRPC for clients that do not read."""

LEFT_SECONDS: Final = 10.0
"""How long an answer may stay there also while there are more; a client that reads takes less for a large one."""

CALL_BYTES: Final = 2**15
"""About what gRPC holds for a call besides its answer."""

log = structlog.get_logger("memotree.server")


class AnswerNotReadError(TooLargeError):
    """The client of a stream did not read its answers in time, or the place of the stream was needed for another call.

    Args:
        before_status: What gRPC still sends before it can send the status of the call.
    """

    reason = "ANSWER_NOT_READ"

    def __init__(self, before_status: Awaitable[None] | None = None) -> None:
        super().__init__(
            "The client did not read the answers of this call, so the server ended it: it waits at most "
            f"{ANSWER_SECONDS:g} seconds for room for the next one, less while there are too many calls. Send the call "
            "again, and read its answers as they come."
        )
        self._before_status = before_status

    async def wait_for_status(self) -> None:
        """Wait until gRPC can send the status of the call; it may be as long as the client does not read."""
        if self._before_status is not None:
            await self._before_status


class LeftAnswers:
    """The answers of one server that stay in gRPC until their clients read them; belongs to one event loop.

    Args:
        close: Closes the connection of a peer. It may take long: it runs in a thread, for one peer at a time.
        most: The most bytes that may stay for clients that do not read.
        patience: Seconds that an answer may stay in any case.
    """

    def __init__(self, close: Callable[[str], None], *, most: int = LEFT_BYTES, patience: float = LEFT_SECONDS) -> None:
        self._close = close
        self._calls = WaitingCalls(most, patience=patience)
        self._closing: dict[str, asyncio.Task[None]] = {}
        self._searches = asyncio.Lock()

    def leave(self, context: Context, size: int) -> None:
        """Leave an answer of some bytes to gRPC; the call ends when its client has it."""
        peer: str = context.peer()
        left = self._calls.begin(peer, partial(self._close_soon, peer), CALL_BYTES + size)
        context.add_done_callback(lambda _: self._end(left))

    def _end(self, left: WaitingCall) -> None:
        left.end()
        if left.peer not in self._calls:
            self._closing.pop(left.peer, None)

    def _close_soon(self, peer: str) -> None:
        """Close the connection of a peer once, although its calls count until gRPC notices that it is closed."""
        if peer not in self._closing:
            self._closing[peer] = asyncio.create_task(self._close_in_thread(peer))

    async def _close_in_thread(self, peer: str) -> None:
        try:
            async with self._searches:
                await asyncio.to_thread(self._close, peer)
        except OSError as error:
            log.warning("a connection could not be closed", peer=peer, cause=f"{type(error).__name__}: {error}")
            self._closing.pop(peer, None)  # the next answer that is left tries again


class UnreadAnswers:
    """The answers of streams that are on their way to their clients; belongs to one event loop.

    Either all of the streams hold a place for calls, or none does.

    Args:
        left: Takes the answers of streams that were ended.
        seconds: How long the client of a stream may take to have room for the next answer.
        patience: How long it may take also while other calls need the place.
    """

    def __init__(
        self, left: LeftAnswers, *, seconds: float = ANSWER_SECONDS, patience: float = PATIENCE_SECONDS
    ) -> None:
        self._left = left
        self._written = WaitingCalls(seconds=seconds, patience=patience)

    def make_room(self) -> bool:
        """End a stream whose client does not read, for a call that needs its place; tell whether there was one."""
        return self._written.make_room()

    async def begin(self, context: Context) -> None:
        """Send the initial metadata of a stream, before its first answer: no status could follow both at once.

        On a connection whose client reads nothing it takes as long as an answer.

        Errors: ``AnswerNotReadError``.
        """
        sending = asyncio.ensure_future(context.send_initial_metadata(()))
        sending.add_done_callback(lambda sent: sent.cancelled() or sent.exception())  # nobody may wait for it any more
        try:
            await self._written.wait(context.peer(), asyncio.shield(sending))  # gRPC cannot take the metadata back
        except TimeoutError:
            self._left.leave(context, 0)
            raise AnswerNotReadError(sending) from None

    async def write(self, context: Context, answer: bytes) -> None:
        """Send an answer of a stream that has begun.

        Errors: ``AnswerNotReadError``; only the status of the call may be sent after it.
        """
        try:
            await self._written.wait(context.peer(), context.write(answer))
        except TimeoutError:
            self._left.leave(context, len(answer))
            raise AnswerNotReadError from None
