"""Reads requests: what is too large or is no message of its type is refused like any other fault of a request.

gRPC would answer both without details, so it hands over the bytes, and accepts a little more than a message may have
(``GRPC_LIMIT_FACTOR``). Above that it answers itself: RESOURCE_EXHAUSTED without details.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from memotree_storage.errors import InvalidInputError, TooLargeError

from memotree.server.call_record import Context, refuse

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


class MessageTooLargeError(TooLargeError):
    """The message of a request is larger than the server accepts; ``size`` is ``None`` if it is not known."""

    reason = "MESSAGE_TOO_LARGE"

    def __init__(self, size: int | None, most: int) -> None:
        has = "more bytes than it may" if size is None else f"{size} bytes"
        super().__init__(
            f"The request has {has}, but the server accepts at most {most} (its setting max_message_bytes); "
            "send less at once, or start the server with a higher limit."
        )


class RequestReader:
    """Reads the requests of one server.

    Args:
        most: The most bytes of a message.
    """

    def __init__(self, most: int) -> None:
        self._most = most

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

        async def read(raw: bytes, context: Context) -> Any:
            try:
                return self.read(method, handler.request_deserializer, raw)
            except (MessageTooLargeError, MalformedRequestError) as error:
                await refuse(method, error, context)

        async def single(raw: bytes, context: Context) -> Any:
            return await handler.unary_unary(await read(raw, context), context)

        async def watch(raw: bytes, context: Context) -> None:
            await handler.unary_stream(await read(raw, context), context)

        async def exchange(raws: AsyncIterator[bytes], context: Context) -> AsyncIterator[Any]:
            requests = (await read(raw, context) async for raw in raws)
            async for answer in handler.stream_stream(requests, context):
                yield answer

        coding = {"response_serializer": handler.response_serializer}
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(exchange, **coding)
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(watch, **coding)
        return grpc.unary_unary_rpc_method_handler(single, **coding)
