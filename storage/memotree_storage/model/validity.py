"""Valid time: from when to when what a node says holds in the world, beside the time of the commits that recorded it.

Two attributes say so, both optional: `VALID_FROM` (inclusive) and `VALID_TO` (exclusive), as times that `read_time`
parses. A node that another one SUPERSEDES ends when the other begins; that is read from the relation and not stored a
second time, so it is right on every branch and ends with the relation.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from math import inf
from typing import Final

from memotree_storage.errors import FieldViolation
from memotree_storage.model.attribute_names import VALID_FROM, VALID_TO
from memotree_storage.model.times import read_time

SUPERSEDES: Final = "SUPERSEDES"
"""The relation of a node to the one that it replaces."""


LAST: Final = 253_402_300_799.0
"""The last second of the calendar (9999-12-31), in seconds since 1970; a later fraction of it could not be written."""


def period(attributes: Mapping[str, str]) -> tuple[float, float]:
    """Return from when to when a node holds, in seconds since 1970: infinite where it does not say, or not readably.

    A node that ends before it begins, as a push can write it, counts as one that says nothing: it would never be found.
    """
    begin, end = seconds(attributes.get(VALID_FROM), -inf), seconds(attributes.get(VALID_TO), inf)
    return (begin, end) if begin < end else (-inf, inf)


def seconds(text: str | None, missing: float) -> float:
    """Return a time in seconds since 1970, at most `LAST`; ``missing`` if there is none or it cannot be parsed."""
    when = read_time(text) if text else None
    return missing if when is None else min(when.timestamp(), LAST)


def validity_faults(attributes: Mapping[str, str]) -> Iterator[FieldViolation]:
    """Yield what is wrong with the valid time of a node."""
    times: dict[str, datetime] = {}
    for name in (VALID_FROM, VALID_TO):
        text = attributes.get(name)
        when = read_time(text) if text is not None else None
        if when is not None:
            times[name] = when
        elif text:  # an empty one says nothing, and so takes an earlier one away
            yield FieldViolation(
                f"attributes[{name!r}]",
                f"{text[:60]!r} is not a time; write 2023-05-08 or 2023-05-08T13:56:00Z",
            )
    if len(times) > 1 and times[VALID_FROM] >= times[VALID_TO]:
        yield FieldViolation(f"attributes[{VALID_TO!r}]", f"must be after {VALID_FROM}; nothing holds for no time")
