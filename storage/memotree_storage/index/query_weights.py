"""How much the terms of a query weigh, and what a score says about a document (BM25; see `terms`)."""

from collections.abc import Iterable, Mapping

import numpy as np

from memotree_storage.index.common_words import is_common
from memotree_storage.index.rarity import smoothed_idf
from memotree_storage.index.terms import K1, QueryTerm
from memotree_storage.ports import TermVector


def term_weights(terms: Iterable[QueryTerm], frequencies: Mapping[int, int], document_count: int) -> TermVector:
    """Return the query as a vector in which each term is weighted by its inverse document frequency, smoothed.

    Its dot product with `terms.document_terms` is the BM25 score.

    Args:
        terms: The query's terms.
        frequencies: In how many documents each term id occurs; a missing one occurs in none.
        document_count: How many documents there are.
    """
    weights = _smoothed(terms, frequencies, document_count)
    ids = sorted(weights)
    return TermVector(tuple(ids), tuple(float(np.float32(weights[key])) for key in ids))


def max_score(terms: Iterable[QueryTerm], frequencies: Mapping[int, int], document_count: int) -> float:
    """Return the upper bound of a document's score, without bonus terms: the sum of the weights times ``K1 + 1``."""
    needed = (term for term in terms if not term.bonus)
    return (K1 + 1) * sum(_smoothed(needed, frequencies, document_count).values())


def _smoothed(terms: Iterable[QueryTerm], frequencies: Mapping[int, int], document_count: int) -> dict[int, float]:
    return {
        term.id: smoothed_idf(document_count, frequencies.get(term.id, 0), common=is_common(term.term))
        for term in terms
    }


def relative_score(score: float, best: float) -> float:
    """Return a score as a share of `max_score`, from 0 to 1."""
    return min(1.0, max(0.0, score / best)) if best > 0 else 0.0
