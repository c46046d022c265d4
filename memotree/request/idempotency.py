"""Calls that may be sent again: the same request id gives the same answer, and one effect."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from google.protobuf.message import Message
from memotree_storage.errors import InvalidInputError
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.requests import begin_request, end_request

_LONGEST_ID = 128

Response = TypeVar("Response", bound=Message)


async def run_once(
    conn: Connection,
    workspace_id: str,
    request: Message,
    response_type: type[Response],
    make: Callable[[], Awaitable[Response]],
) -> Response:
    """Answer a request from its first result, or make the result and keep it; in the transaction of its effects.

    Raises:
        RequestIdReusedError: The request id came with other arguments before.
    """
    request_id: str = getattr(request, "request_id", "")
    check_request_id(request_id)
    call = request.DESCRIPTOR.full_name.encode() + b"\n" + request.SerializeToString(deterministic=True)
    earlier = await begin_request(conn, workspace_id, request_id, call)
    if earlier is not None:
        return response_type.FromString(earlier)
    response = await make()
    await end_request(conn, workspace_id, request_id, response.SerializeToString())
    return response


def check_request_id(request_id: str) -> None:
    """Refuse what is no request id; an empty one means that there is none.

    Raises:
        InvalidInputError: It is too long or cannot be printed.
    """
    if len(request_id) > _LONGEST_ID or not request_id.isprintable():
        raise InvalidInputError.at("request_id", f"is too long or unprintable: give at most {_LONGEST_ID} characters.")
