"""How rare a word is: inverse document frequencies, of a workspace alone and smoothed by those of ordinary language."""

from math import log1p
from typing import Final

ASSUMED_DOCUMENTS: Final = 1000
"""How many documents of ordinary language are counted beside those of a workspace."""

COMMON_SHARE: Final = 0.5
"""The share of the assumed documents that have a common word."""


def idf(document_count: int, document_frequency: int) -> float:
    """Return BM25's inverse document frequency of a term, which is always above 0."""
    found = min(max(document_frequency, 0), max(document_count, 0))
    return log1p((max(document_count, 0) - found + 0.5) / (found + 0.5))


def smoothed_idf(document_count: int, document_frequency: int, *, common: bool = False) -> float:
    """Return the inverse document frequency of a term as if `ASSUMED_DOCUMENTS` more documents were there.

    Half of them have a common word, and none has any other. A word of no document counts as one of one document. So in
    a workspace of one note, the words that it has weigh as much as those that it lacks, and "the" weighs little.
    """
    having = max(document_frequency + (COMMON_SHARE * ASSUMED_DOCUMENTS if common else 0), 1)
    count = max(document_count, document_frequency, 0) + ASSUMED_DOCUMENTS
    return log1p((count - having + 0.5) / (having + 0.5))
