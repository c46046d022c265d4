"""The table of error statuses: family of domain errors, gRPC status, class of the client, HTTP status.

Server, client and HTTP use it. It has only the names of the classes and imports none of them, so that a client needs no
store.
"""

from dataclasses import dataclass
from typing import Final

import grpc


@dataclass(frozen=True, slots=True)
class ErrorStatus:
    """One status with which a call may fail.

    Attributes:
        code: The gRPC status.
        client: The class of ``memotree.client.errors`` that the client raises for it.
        http: The HTTP status, as google.rpc.Code maps it.
        family: The base class of the domain errors with this status; ``""`` if only gRPC or a proxy answers with
            it.
    """

    code: grpc.StatusCode
    client: str
    http: int
    family: str = ""


_Code = grpc.StatusCode

ERROR_STATUSES: Final = (
    ErrorStatus(_Code.INVALID_ARGUMENT, "InvalidArgumentError", 400, "InvalidInputError"),
    ErrorStatus(_Code.NOT_FOUND, "NotFoundError", 404, "NotFoundError"),
    ErrorStatus(_Code.ALREADY_EXISTS, "AlreadyExistsError", 409, "AlreadyExistsError"),
    ErrorStatus(_Code.ABORTED, "AbortedError", 409, "AbortedError"),
    ErrorStatus(_Code.FAILED_PRECONDITION, "FailedPreconditionError", 400, "FailedPreconditionError"),
    ErrorStatus(_Code.RESOURCE_EXHAUSTED, "ResourceExhaustedError", 429, "TooLargeError"),
    ErrorStatus(_Code.UNAVAILABLE, "UnavailableError", 503, "UnavailableError"),
    ErrorStatus(_Code.DATA_LOSS, "DataLossError", 500, "CorruptError"),
    ErrorStatus(_Code.UNIMPLEMENTED, "UnimplementedError", 501, "UnimplementedError"),
    ErrorStatus(_Code.INTERNAL, "InternalError", 500, "MemoTreeError"),
    ErrorStatus(_Code.DEADLINE_EXCEEDED, "DeadlineExceededError", 504, "DeadlineExceededError"),
    ErrorStatus(_Code.CANCELLED, "CancelledError", 499),
    ErrorStatus(_Code.PERMISSION_DENIED, "PermissionDeniedError", 403, "ForbiddenError"),
    ErrorStatus(_Code.UNAUTHENTICATED, "UnauthenticatedError", 401, "UnauthenticatedError"),
)
"""Every status that has its own class in the client; for any other, the client raises the base class."""

FAMILY_CODES: Final = {each.family: each.code for each in ERROR_STATUSES if each.family}
"""The gRPC status of each family, by the name of its class."""

CLIENT_CODES: Final = {each.client: each.code.name for each in ERROR_STATUSES}
"""The name of the gRPC status of each class of the client, by the name of the class."""

HTTP_STATUSES: Final = {each.code.name: each.http for each in ERROR_STATUSES}
"""The HTTP status of each gRPC status, by its name; all others are 500."""
