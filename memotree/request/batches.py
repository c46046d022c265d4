"""Batches of changes: an error of one change names that change."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from memotree_storage.errors import InvalidInputError, MemoTreeError


@contextmanager
def naming_change(number: int | None, kind: str) -> Iterator[None]:
    """Add the number of a change to an error of the block, in its message and in the paths of its fields.

    Args:
        number: The index of the change in its batch; ``None`` if it is not part of one.
        kind: The field of the change that is set; ``""`` if none is.
    """
    try:
        yield
    except MemoTreeError as error:
        if number is not None:
            _name(error, number, kind)
        raise


def _name(error: MemoTreeError, number: int, kind: str) -> None:
    error.message = f"changes[{number}]: {error.message}"
    if isinstance(error, InvalidInputError):
        way = f"changes[{number}].{kind}" if kind else f"changes[{number}]"
        error.violations = tuple(
            replace(fault, field=f"{way}.{fault.field}" if fault.field else way) for fault in error.violations
        )
