"""How frequent words are in a whole workspace; one document alone is too small a sample."""

import asyncio
from collections.abc import Sequence

from memotree_storage.index import frequencies
from memotree_storage.index.frequencies import Frequencies
from memotree_storage.index.terms import query_terms
from memotree_storage.postgres.database import Connection

from memotree.forest.recall.scoring.query_words import Related, concepts, terms_of
from memotree.forest.recall.scoring.scores import Frequency


async def read_term_counts(
    conn: Connection, workspace_id: str, question: str, related: Related | None = None, *, for_search: bool
) -> Frequencies:
    """Returns how many indexed versions of a workspace have each term of a question.

    Args:
        conn: A connection.
        workspace_id: The workspace.
        question: The question.
        related: Returns words of a similar meaning.
        for_search: Whether the index is searched, too, which has other terms than the scores of leaves.
    """

    def asked_for() -> set[int]:
        terms = set(terms_of(concepts(question, related)))
        if for_search:
            terms.update(term.id for term in query_terms(question))
        return terms

    return await frequencies.read(conn, workspace_id, await asyncio.to_thread(asked_for))


def frequency_in_workspace(counts: Frequencies) -> Frequency:
    """Returns how many indexed versions have a word, from the counts of its terms."""

    def frequency(ids: Sequence[int]) -> tuple[int, int]:
        return sum(counts.having.get(term, 0) for term in ids), counts.versions

    return frequency
