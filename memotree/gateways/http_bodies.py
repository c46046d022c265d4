"""Reads the body of an HTTP request that is JSON."""

from typing import Final

from memotree_storage.errors import FieldViolation
from starlette.requests import Request
from starlette.responses import Response

from memotree.gateways.catalogue import InvalidArgumentsError
from memotree.gateways.http_answers import refused
from memotree.gateways.results import Failure
from memotree.server.request_reading import MessageTooLargeError

JSON: Final = "application/json"
"""The kind of the body. A browser asks a server before a page of another site may send this, but not for plain text."""


def is_json(request: Request) -> bool:
    """Whether the body was sent as JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == JSON


def not_json() -> Response:
    """The response to a body that was not sent as JSON."""
    message = f"The arguments must be sent with the header Content-Type: {JSON}."
    return refused(Failure("NOT_SENT_AS_JSON", "INVALID_ARGUMENT", message), 415)


async def body_of(request: Request, most_bytes: int, tool: str) -> str:
    """The body of a request.

    Args:
        request: The request.
        most_bytes: The most bytes that it may have.
        tool: The tool whose arguments it has.

    Raises:
        MessageTooLargeError: It is too large; the rest of it was not read.
        InvalidArgumentsError: It is not UTF-8.
        ClientDisconnect: The client is gone.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most_bytes:
            raise MessageTooLargeError(None, most_bytes)
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        fault = FieldViolation("arguments", f"must be UTF-8, and is not at byte {error.start}.")
        raise InvalidArgumentsError(tool, [fault]) from None
