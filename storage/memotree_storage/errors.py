"""The families of errors that the store raises.

Each concrete error is defined next to the code that raises it and inherits from one family. The family decides which
status a client gets; ``reason`` is the stable error code. A message is a sentence that says what to do next.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from memotree_storage.conflicts import Conflict


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One fault of one argument: ``field`` is its path, ``description`` says what is wrong and what is allowed."""

    field: str
    description: str


class MemoTreeError(Exception):
    """The base of every error that MemoTree raises on purpose."""

    reason: ClassVar[str] = "INTERNAL"
    stops_job: ClassVar[bool] = False
    """Whether a job that meets this error stops and is resumed later instead of failing; outages always do so."""
    passes: ClassVar[bool] = False
    """Whether the cause passes by itself, so that a client should send the same call again after a moment."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidInputError(MemoTreeError):
    """An argument that can never be valid; every fault is listed."""

    reason = "INVALID_ARGUMENT"

    def __init__(self, message: str, violations: Sequence[FieldViolation] = ()) -> None:
        super().__init__(message)
        self.violations = tuple(violations)

    @classmethod
    def at(cls, field: str, description: str) -> "InvalidInputError":
        """Create the error for one fault of one field."""
        return cls(f"{field}: {description}", [FieldViolation(field, description)])


class NotFoundError(MemoTreeError):
    """Something that the caller named does not exist (or not at that revision)."""

    reason = "NOT_FOUND"

    def __init__(self, message: str, resource_type: str = "", resource_name: str = "") -> None:
        super().__init__(message)
        self.resource_type = resource_type
        self.resource_name = resource_name


class AlreadyExistsError(MemoTreeError):
    """Something with that name exists already."""

    reason = "ALREADY_EXISTS"

    def __init__(self, message: str, resource_type: str = "", resource_name: str = "") -> None:
        super().__init__(message)
        self.resource_type = resource_type
        self.resource_name = resource_name


class AbortedError(MemoTreeError):
    """Another writer was faster; read again and retry, or resolve the conflicts."""

    reason = "ABORTED"

    def __init__(self, message: str, conflicts: Sequence[Conflict] = ()) -> None:
        super().__init__(message)
        self.conflicts = tuple(conflicts)


class FailedPreconditionError(MemoTreeError):
    """The call is well formed, but the current state does not allow it."""

    reason = "FAILED_PRECONDITION"

    def __init__(self, message: str, violations: Sequence[FieldViolation] = ()) -> None:
        super().__init__(message)
        self.violations = tuple(violations)


class TooLargeError(MemoTreeError):
    """A limit is exceeded; the message names the limit."""

    reason = "RESOURCE_EXHAUSTED"


class UnavailableError(MemoTreeError):
    """A store that MemoTree depends on does not answer now; the same call may be sent again."""

    reason = "UNAVAILABLE"
    passes = True


class CorruptError(MemoTreeError):
    """Stored data is damaged; the message names the object and how to repair it."""

    reason = "DATA_LOSS"
