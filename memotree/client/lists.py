"""Arguments that take several values: one text, whose letters would be the values, is refused."""

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def several(argument: str, values: Iterable[T]) -> list[T]:
    """The values of an argument as a list.

    Raises:
        TypeError: They are one text.
    """
    if isinstance(values, str):
        raise TypeError(f"{argument} takes several values, but is the text {values!r}; give [{values!r}].")
    return list(values)
