"""Maps every error to the gRPC status code (see `memotree.error_statuses`), reason and message that a client sees.

The stable error code is the error's ``reason``. Errors of libraries that reach the edge of the service are mapped here
too. Any other error is a fault of MemoTree: the client gets only an id, which finds the error in the log.
"""

import asyncio
import errno
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeAlias

import grpc
from memotree_storage.errors import (
    AbortedError,
    AlreadyExistsError,
    CorruptError,
    FailedPreconditionError,
    InvalidInputError,
    MemoTreeError,
    NotFoundError,
    TooLargeError,
    UnavailableError,
)

from memotree.error_statuses import FAMILY_CODES

DOMAIN: Final = "memotree"
"""The ``domain`` of every ``google.rpc.ErrorInfo``: a reason is unique within it."""


class DeadlineExceededError(MemoTreeError):
    """The call took longer than the server lets it; what it did was ended."""

    reason = "DEADLINE_EXCEEDED"


class UnimplementedError(MemoTreeError):
    """The call is in the contract, but this server does not implement it."""

    reason = "UNIMPLEMENTED"


class UnauthenticatedError(MemoTreeError):
    """It is not proved who makes the call."""

    reason = "UNAUTHENTICATED"


class ForbiddenError(MemoTreeError):
    """Whoever makes the call may not make it."""

    reason = "PERMISSION_DENIED"


Code: TypeAlias = grpc.StatusCode

FAMILIES: Final[dict[type[MemoTreeError], Code]] = {
    family: FAMILY_CODES[family.__name__]
    for family in (
        InvalidInputError,
        NotFoundError,
        AlreadyExistsError,
        AbortedError,
        FailedPreconditionError,
        TooLargeError,
        UnavailableError,
        CorruptError,
        UnimplementedError,
        UnauthenticatedError,
        ForbiddenError,
        DeadlineExceededError,
        MemoTreeError,
    )
}
"""The status code of each family, from the table of `memotree.error_statuses`."""

INTERNAL_REASON: Final = MemoTreeError.reason


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """An error as a client may see it.

    Attributes:
        code: The gRPC status code.
        reason: The stable error code, UPPER_SNAKE.
        message: A sentence that says what to do next.
        error: The domain error whose details the client gets too; ``None`` if it gets the message alone.
    """

    code: Code
    reason: str
    message: str
    error: MemoTreeError | None = None


@cache
def foreign() -> tuple[tuple[type[BaseException], ErrorAnswer], ...]:
    """Errors of libraries that a client can act on; the first match wins, so subclasses come before their bases.

    The errors of the connection pool are subclasses of psycopg's OperationalError.
    """
    import psycopg  # noqa: PLC0415 - a program that only calls a server needs no PostgreSQL, and its import takes long
    import psycopg.errors  # noqa: PLC0415 - likewise

    return (
        (
            psycopg.errors.QueryCanceled,
            ErrorAnswer(
                Code.DEADLINE_EXCEEDED,
                "STATEMENT_TIMEOUT",
                "A PostgreSQL statement reached its time limit; ask for less, or send the call again when it is less "
                "busy.",
            ),
        ),
        (
            psycopg.DataError,
            ErrorAnswer(
                Code.INVALID_ARGUMENT,
                "INVALID_TEXT",
                "A text of the request has a NUL character, which can be neither stored nor looked up; leave it out.",
            ),
        ),
        *(
            (
                kind,
                ErrorAnswer(
                    Code.UNAVAILABLE,
                    "DATABASE_UNAVAILABLE",
                    "PostgreSQL does not answer at the moment; send the same call again soon.",
                ),
            )
            for kind in (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.ReadOnlySqlTransaction)
        ),
        (
            TimeoutError,
            ErrorAnswer(
                Code.DEADLINE_EXCEEDED,
                "DEADLINE_EXCEEDED",
                "The call took longer than allowed; send it again with a longer deadline, or ask for less.",
            ),
        ),
        (
            MemoryError,
            ErrorAnswer(
                Code.RESOURCE_EXHAUSTED,
                "OUT_OF_MEMORY",
                "The server has not enough memory for this call; ask for less, or send it again later.",
            ),
        ),
        (
            ConnectionError,
            ErrorAnswer(
                Code.UNAVAILABLE,
                "STORE_UNAVAILABLE",
                "A store behind MemoTree does not answer at the moment; send the same call again soon.",
            ),
        ),
    )


DISK: Final = ErrorAnswer(
    Code.UNAVAILABLE,
    "DISK_UNAVAILABLE",
    "The server cannot use its disk (full, read-only or out of file handles); fix that, then send the same call again.",
)
"""The answer to an operating system error of ``DISK_ERRNOS``."""

DISK_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE})

INTERRUPTED: Final = ErrorAnswer(
    Code.UNAVAILABLE,
    "INTERRUPTED",
    "The server cancelled a part of this call, as it does when it stops; send the same call again.",
)
"""The answer to a cancellation from inside the server; a client that cancels a call itself gets no answer."""

HIDDEN: Final = ErrorAnswer(
    Code.INTERNAL,
    INTERNAL_REASON,
    "MemoTree has an internal error; find the details in the server's log by the id of this call.",
)
"""The answer to every unexpected error: the client gets no detail of it."""


def status_code(kind: type[MemoTreeError]) -> Code:
    """The status code of an error class: that of its nearest base class in ``FAMILIES``."""
    return next(FAMILIES[base] for base in kind.__mro__ if base in FAMILIES)


def classify(error: BaseException) -> ErrorAnswer:
    """The answer that a client may see for ``error``.

    A group of errors (of a ``TaskGroup``) counts as its first member, unless any member is an internal error; then the
    whole group is one.
    """
    if isinstance(error, MemoTreeError):
        code = status_code(type(error))
        return HIDDEN if code is Code.INTERNAL else ErrorAnswer(code, error.reason, error.message, error)
    if isinstance(error, BaseExceptionGroup):
        answers = [classify(member) for member in error.exceptions]
        return next((answer for answer in answers if answer is HIDDEN), answers[0])
    if isinstance(error, asyncio.CancelledError):
        return INTERRUPTED
    if isinstance(error, OSError) and error.errno in DISK_ERRNOS:
        return DISK
    if isinstance(error, grpc.RpcError):
        return _classify_peer(error)
    return next((answer for kind, answer in foreign() if isinstance(error, kind)), HIDDEN)


def _classify_peer(error: grpc.RpcError) -> ErrorAnswer:
    """The answer to an error of a gRPC call that MemoTree itself made (to Qdrant)."""
    code = error.code() if hasattr(error, "code") else None
    silent = code in {Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.RESOURCE_EXHAUSTED}
    return next(answer for kind, answer in foreign() if kind is ConnectionError) if silent else HIDDEN
