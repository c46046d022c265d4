"""The errors of failed calls: one base class, and one class per gRPC status, with the details that the server sent."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # no py.typed in this package

from memotree.client.conflicts import Conflict
from memotree.client.node_values import Node
from memotree.error_statuses import CLIENT_CODES
from memotree.v1 import types_pb2

_DETAILS_KEY = "grpc-status-details-bin"


@dataclass(frozen=True, slots=True)
class Violation:
    """One fault of an argument or of the state: ``field`` is its path, ``description`` says what is wrong."""

    field: str
    description: str


class MemoTreeClientError(Exception):
    """The base class of all errors that the client raises for a call.

    Attributes:
        code: The name of the gRPC status, such as ``"NOT_FOUND"``.
        reason: The server's stable error code in UPPER_SNAKE; empty if the error is not from the server itself.
        message: A sentence that says what is wrong and what to do next.
        violations: All arguments (or parts of the state) that are wrong.
        conflicts: The conflicting edits, after ABORTED.
        nodes: Nodes that an ambiguous id may mean, or that the call must also include, at level TITLE.
        metadata: Further facts by name.
        retry_after: Seconds after which the server advises to send the same call again; ``None`` without such advice.
        cause: The error of gRPC, for debugging; ``None`` if there is none. Tracebacks do not show it.
    """

    code: ClassVar[str] = "UNKNOWN"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.code = CLIENT_CODES.get(cls.__name__, cls.code)

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        violations: tuple[Violation, ...] = (),
        conflicts: tuple[Conflict, ...] = (),
        nodes: tuple[Node, ...] = (),
        metadata: Mapping[str, str] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.violations = violations
        self.conflicts = conflicts
        self.nodes = nodes
        self.metadata = dict(metadata or {})
        self.retry_after = retry_after
        self.cause: Exception | None = None


def without_library_frames(error: MemoTreeClientError) -> MemoTreeClientError:
    """The error, to be raised ``from None``: its traceback then has no frames of gRPC and tenacity."""
    return error.with_traceback(None)


class InvalidArgumentError(MemoTreeClientError):
    """An argument is invalid whatever the state; ``violations`` lists every fault."""


class NotFoundError(MemoTreeClientError):
    """Something that the call names does not exist, or not at that revision."""


class AlreadyExistsError(MemoTreeClientError):
    """Something of that name exists already."""


class AbortedError(MemoTreeClientError):
    """Another writer was first; ``conflicts`` has the conflicting edits. Read again and retry, or resolve them."""


class FailedPreconditionError(MemoTreeClientError):
    """The call is well formed but the state does not allow it."""


class ResourceExhaustedError(MemoTreeClientError):
    """A limit is exceeded; the message names it."""


class UnavailableError(MemoTreeClientError):
    """The server, or a store behind it, does not answer; ``reason`` is empty if the server was not reached."""


class DeadlineExceededError(MemoTreeClientError):
    """The call took longer than its deadline; a change may or may not have happened."""


class CancelledError(MemoTreeClientError):
    """The call was cancelled."""


class PermissionDeniedError(MemoTreeClientError):
    """The caller may not do this."""


class UnauthenticatedError(MemoTreeClientError):
    """The server requires authentication."""


class UnimplementedError(MemoTreeClientError):
    """The server is older than this client, or not a MemoTree server."""


class InternalError(MemoTreeClientError):
    """The server failed; its log says why."""


class DataLossError(MemoTreeClientError):
    """Stored data is damaged; the message names the object and the repair."""


_BY_CODE = {each.code: each for each in MemoTreeClientError.__subclasses__()}


class FailedCall(Protocol):
    """The interface of a failed call in both gRPC stacks."""

    def code(self) -> grpc.StatusCode:
        """The status code."""

    def details(self) -> str | None:
        """The status message."""

    def trailing_metadata(self) -> Iterable[Any] | None:
        """The trailing metadata as pairs of key and value, or ``None``."""


def _details(call: FailedCall) -> Iterator[any_pb2.Any]:
    """The details of the status in the trailing metadata; none if it is missing or was truncated by a proxy."""
    trailing = call.trailing_metadata()
    for key, value in trailing or ():
        if key == _DETAILS_KEY and isinstance(value, bytes):
            try:
                yield from status_pb2.Status.FromString(value).details
            except DecodeError:
                return


_MessageT = TypeVar("_MessageT", bound=Message)


def _unpacked(details: Sequence[any_pb2.Any], kind: type[_MessageT]) -> Iterator[_MessageT]:
    """The details of one kind; a damaged one is skipped, since the plain status is still valid."""
    for detail in details:
        message = kind()
        with suppress(DecodeError):
            if detail.Unpack(message):
                yield message


_TOO_LARGE = re.compile(r"^(?:SERVER: )?Received message larger than max \((\d+) vs\. (\d+)\)$")
"""gRPC's message for a request that is too large to reach an operation: its size and the greatest size allowed."""


def _told_too_large(found: re.Match[str]) -> str:
    size, most = (f"{int(number):,}" for number in found.groups())
    return (
        f"The request has {size} bytes, but the server accepts at most {most} (its setting max_message_bytes); send "
        "less at once, or start the server with a higher limit."
    )


def decode_error(call: FailedCall, address: str) -> MemoTreeClientError:
    """The error for a failed call, with everything from the details of its status, and the failed call as its cause."""
    error = _decoded(call, address)
    error.cause = call if isinstance(call, Exception) else None
    return error


def _decoded(call: FailedCall, address: str) -> MemoTreeClientError:
    """The error for a failed call.

    Details are those of google.rpc (ErrorInfo, BadRequest, PreconditionFailure, ResourceInfo, RetryInfo) and the
    contract's own ConflictList and NodeList; others are ignored.
    """
    code = call.code().name
    details = list(_details(call))
    metadata: dict[str, str] = {}
    violations: list[Violation] = []
    reason = ""
    for info in _unpacked(details, error_details_pb2.ErrorInfo):
        reason = info.reason
        metadata.update(info.metadata)
    for resource in _unpacked(details, error_details_pb2.ResourceInfo):
        metadata |= {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
    for bad in _unpacked(details, error_details_pb2.BadRequest):
        violations += [Violation(each.field, each.description) for each in bad.field_violations]
    for failure in _unpacked(details, error_details_pb2.PreconditionFailure):
        violations += [Violation(each.subject, each.description) for each in failure.violations]
    waits = [info.retry_delay.ToTimedelta() for info in _unpacked(details, error_details_pb2.RetryInfo)]
    message = call.details() or f"The call failed with the status {code}."
    if code == UnavailableError.code and not reason:
        message = f"No MemoTree server answers at {address} ({message})."
    if code == ResourceExhaustedError.code and not reason:
        message = _TOO_LARGE.sub(_told_too_large, message)
    return _BY_CODE.get(code, MemoTreeClientError)(
        message,
        reason=reason,
        violations=tuple(violations),
        conflicts=tuple(
            Conflict.from_wire(each) for found in _unpacked(details, types_pb2.ConflictList) for each in found.conflicts
        ),
        nodes=tuple(Node.from_wire(each) for found in _unpacked(details, types_pb2.NodeList) for each in found.nodes),
        metadata=metadata,
        retry_after=waits[0].total_seconds() if waits else None,
    )
