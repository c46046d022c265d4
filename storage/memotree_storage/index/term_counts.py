"""In how many versions each term occurs, as bytes that a worker process returns."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

import numpy as np

_INTEGER: Final = np.dtype("<i8")


def term_counts(versions: Iterable[Iterable[int]]) -> tuple[bytes, bytes]:
    """Count the terms of versions, each of which has a term once.

    Returns:
        The terms, and in how many versions each of them occurs, as 64-bit integers in the same order.
    """
    counts: Counter[int] = Counter()
    for terms in versions:
        counts.update(terms)
    size = len(counts)
    return (
        np.fromiter(counts.keys(), dtype=_INTEGER, count=size).tobytes(),
        np.fromiter(counts.values(), dtype=_INTEGER, count=size).tobytes(),
    )


def add_counts(counts: Counter[int], terms: bytes, documents: bytes) -> None:
    """Add counts that `term_counts` has returned."""
    keys, values = (np.frombuffer(part, dtype=_INTEGER).tolist() for part in (terms, documents))
    counts.update(dict(zip(keys, values, strict=True)))
