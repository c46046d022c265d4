"""Reads requests: what is missing, too large or no message of its type is refused like any other fault of a request.

gRPC would answer these without details or not at all, so every handler is one for a stream of requests, which gRPC
begins before a request has arrived, and reads its only request here. On the wire that is the same. gRPC accepts a
little more than a message may have (``GRPC_LIMIT_FACTOR``). Above that it answers itself: RESOURCE_EXHAUSTED without
details.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from grpc import aio
from memotree_storage.errors import InvalidInputError, TooLargeError

from memotree.server.call_record import Context, refuse
from memotree.server.half_open import RequestNotReceivedError
from memotree.server.unread import AnswerNotReadError, UnreadAnswers
from memotree.server.waiting import WaitingCalls

GRPC_LIMIT_FACTOR: Final = 1.25
"""gRPC's own limit for a message, as a multiple of ours; what lies between is refused with details."""


class MalformedRequestError(InvalidInputError):
    """The request cannot be decoded as a message of its type."""

    reason = "MALFORMED_REQUEST"

    def __init__(self, method: str) -> None:
        super().__init__(
            f"The request is not a message that {method} accepts: a field has the wrong type or a text is not UTF-8. "
            "Build it from the contract in proto/."
        )


class RequestMissingError(InvalidInputError):
    """The client ended its side of the call without a request."""

    reason = "REQUEST_MISSING"

    def __init__(self, method: str) -> None:
        super().__init__(f"The call of {method} has no request; send one message, which may be empty.")


class MessageTooLargeError(TooLargeError):
    """The message of a request is larger than the server accepts; ``size`` is ``None`` if it is not known."""

    reason = "MESSAGE_TOO_LARGE"

    def __init__(self, size: int | None, most: int) -> None:
        has = "more bytes than it may" if size is None else f"{size} bytes"
        super().__init__(
            f"The request has {has}, but the server accepts at most {most} (its setting max_message_bytes); "
            "send less at once, or start the server with a higher limit."
        )


_FAULTS: Final = (RequestMissingError, RequestNotReceivedError, MessageTooLargeError, MalformedRequestError)
"""What reading a request may refuse."""


class RequestReader:
    """Reads the requests of one server.

    Args:
        most: The most bytes of a message.
        half_open: Counts the calls whose request has not arrived.
        unread: Sends the answers of the streams of the standard services, which hold no place for calls.
    """

    def __init__(self, most: int, half_open: WaitingCalls, unread: UnreadAnswers) -> None:
        self._most = most
        self._half_open = half_open
        self._unread = unread

    async def receive(self, context: Context) -> bytes | None:
        """The next message of a call, as it was sent; ``None`` if there is none.

        Errors: ``RequestNotReceivedError``.
        """
        try:
            raw = await self._half_open.wait(context.peer(), context.read())
        except TimeoutError:
            raise RequestNotReceivedError from None
        return None if raw is aio.EOF else raw

    async def receive_only(self, method: str, context: Context) -> bytes:
        """The only message of a call, as it was sent.

        Errors: ``RequestNotReceivedError``, ``RequestMissingError``.
        """
        raw = await self.receive(context)
        if raw is None:
            raise RequestMissingError(method)
        return raw

    def read(self, method: str, deserializer: Callable[[bytes], Any], raw: bytes) -> Any:
        """The message of a request.

        Errors: ``MessageTooLargeError``, ``MalformedRequestError``.
        """
        if len(raw) > self._most:
            raise MessageTooLargeError(len(raw), self._most)
        try:
            return deserializer(raw)
        except DecodeError:
            raise MalformedRequestError(method) from None

    def reading(self, method: str, handler: Any) -> Any:
        """The handler of a standard service (health, reflection), with requests that are read here."""

        async def single(_requests: object, context: Context) -> Any:
            return await handler.unary_unary(await self._only(method, handler, context), context)

        async def watch(_requests: object, context: Context) -> None:
            request = await self._only(method, handler, context)
            await self._send_all(method, handler, handler.unary_stream(request, context), context)

        async def exchange(_requests: object, context: Context) -> None:
            requests = self._all(method, handler, context)
            await self._send_all(method, handler, handler.stream_stream(requests, context), context, requests)

        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(exchange)
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(watch)
        return grpc.stream_unary_rpc_method_handler(single, response_serializer=handler.response_serializer)

    async def _send_all(
        self, method: str, handler: Any, answers: AsyncGenerator[Any], context: Context, *others: AsyncGenerator[Any]
    ) -> None:
        """Send the answers of a stream of a standard service; the call is ended if its client does not read them.

        The answers, and then the other generators that they need, are closed before that.
        """
        try:
            async with AsyncExitStack() as closing:
                for each in (*others, answers):
                    await closing.enter_async_context(aclosing(each))
                await self._unread.begin(context)
                async for answer in answers:
                    await self._unread.write(context, handler.response_serializer(answer))
        except AnswerNotReadError as error:
            await error.wait_for_status()
            await refuse(method, error, context)

    async def _only(self, method: str, handler: Any, context: Context) -> Any:
        """The only request of a call of a standard service; the call is refused if it is at fault."""
        try:
            return self.read(method, handler.request_deserializer, await self.receive_only(method, context))
        except _FAULTS as error:
            await refuse(method, error, context)

    async def _all(self, method: str, handler: Any, context: Context) -> AsyncGenerator[Any]:
        """The requests of a stream of a standard service; the call is refused if one is at fault."""
        try:
            while (raw := await self.receive(context)) is not None:
                yield self.read(method, handler.request_deserializer, raw)
        except _FAULTS as error:
            await refuse(method, error, context)
