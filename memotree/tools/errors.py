"""Errors of functions on their way out of a worker process: raised there, and raised again in the server."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from memotree_storage.errors import (
    AbortedError,
    AlreadyExistsError,
    FailedPreconditionError,
    FieldViolation,
    InvalidInputError,
    MemoTreeError,
    NotFoundError,
    TooLargeError,
    UnavailableError,
)

_FAMILIES: Final[Mapping[str, type[MemoTreeError]]] = {
    kind.__name__: kind
    for kind in (
        AbortedError,
        AlreadyExistsError,
        FailedPreconditionError,
        InvalidInputError,
        NotFoundError,
        TooLargeError,
        UnavailableError,
    )
}


def to_head(error: MemoTreeError) -> dict[str, Any]:
    """An error as the head of an answer."""
    violations = [[each.field, each.description] for each in getattr(error, "violations", ())]
    family = next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _FAMILIES), "")
    return {"reason": error.reason, "family": family, "message": error.message, "violations": violations}


def told_by_worker(head: Mapping[str, Any]) -> MemoTreeError:
    """The error of such a head: of the same family, with its reason and message."""
    family = _FAMILIES.get(head["family"], MemoTreeError)
    known = next((kind for kind in _below(family) if kind.reason == head["reason"]), None)
    kind: Any = known or type("ToolError", (family,), {"reason": str(head["reason"]), "__module__": ""})
    error: MemoTreeError = kind.__new__(kind)
    MemoTreeError.__init__(error, str(head["message"]))
    violations = tuple(FieldViolation(str(field), str(told)) for field, told in head["violations"])
    for name, value in (("violations", violations), ("conflicts", ()), ("resource_type", ""), ("resource_name", "")):
        setattr(error, name, value)
    return error


def _below(kind: type[MemoTreeError]) -> Iterator[type[MemoTreeError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _below(child)
