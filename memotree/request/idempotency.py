"""Calls that may be sent again: calls with the same request id get the same answer and take effect once.

A request id belongs to the principal that used it: the answer of one principal is never given to another.
"""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from google.protobuf.message import Message
from memotree_storage.errors import InvalidInputError
from memotree_storage.model.trailers import LONGEST_REQUEST_ID, Request, is_request_id, owned_request_id
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.requests import begin_request, end_request, result_of_request

from memotree.request.principal import principal
from memotree.v1 import types_pb2

Response = TypeVar("Response", bound=Message)

_DIGEST_DIGITS: Final = 32
"""Hexadecimal digits of a digest: 128 bits."""


async def run_once(
    conn: Connection,
    workspace_id: str,
    request: Message,
    response_type: type[Response],
    make: Callable[[], Awaitable[Response]],
) -> Response:
    """Return the stored result of an earlier call with this request id, or run ``make`` and store its result.

    The result is stored in the transaction that also holds the effects of the call.

    Raises:
        RequestIdReusedError: An earlier call used the request id with other arguments.
    """
    request_id = _request_id(request)
    earlier = await begin_request(conn, workspace_id, request_id, _call(request))
    if earlier is not None:
        return response_type.FromString(earlier)
    response = await make()
    await end_request(conn, workspace_id, request_id, response.SerializeToString())
    return response


async def earlier_result(
    conn: Connection, workspace_id: str, request: Message, response_type: type[Response]
) -> Response | None:
    """Return the stored result of an earlier call with this request id; ``None`` if none has ended.

    For calls that look something up before they claim their request id: what they would find may have changed by the
    first call itself.

    Raises:
        RequestIdReusedError: An earlier call used the request id with other arguments.
    """
    found = await result_of_request(conn, workspace_id, _request_id(request), _call(request))
    return None if found is None else response_type.FromString(found)


def kept_request_id(request_id: str) -> str:
    """The form in which a request id of whoever calls now is kept: each principal has ids of its own.

    Raises:
        InvalidInputError: It is too long or has unprintable characters.
    """
    check_request_id(request_id)
    return owned_request_id(principal().owner, request_id)


def request_mark(request: Message) -> Request:
    """Return what a commit records of the call that made it: request id, digest of the arguments, and co-author."""
    return Request(
        _request_id(request), hashlib.sha256(_call(request)).hexdigest()[:_DIGEST_DIGITS], _co_author(request)
    )


def _co_author(request: Message) -> str:
    """Whom a call names as the author, if its principal is known and is somebody else."""
    who = principal()
    named = getattr(request, "author", None)
    if not who.is_known or not isinstance(named, types_pb2.CommitAuthor) or named.name in {"", who.name}:
        return ""
    return f"{named.name} <{named.email}>"


def _request_id(request: Message) -> str:
    return kept_request_id(getattr(request, "request_id", ""))


def _call(request: Message) -> bytes:
    owner = principal().owner.encode()
    made_by = b"\n" + owner if owner else b""
    return request.DESCRIPTOR.full_name.encode() + made_by + b"\n" + request.SerializeToString(deterministic=True)


def check_request_id(request_id: str) -> None:
    """Check the form of a request id; an empty one means that the call has no request id.

    Raises:
        InvalidInputError: It is too long or has unprintable characters.
    """
    if not is_request_id(request_id):
        fault = f"is too long or unprintable: give at most {LONGEST_REQUEST_ID} characters."
        raise InvalidInputError.at("request_id", fault)
