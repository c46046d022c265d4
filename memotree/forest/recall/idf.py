"""Inverse document frequencies over a whole workspace; one document alone is too small a sample."""

from collections.abc import Sequence

from memotree_storage.index import frequencies, terms
from memotree_storage.postgres.database import Connection

from memotree.forest.recall.scoring.query_words import Related, concepts, terms_of
from memotree.forest.recall.scoring.scores import Idf


async def workspace_idf(conn: Connection, workspace_id: str, question: str, related: Related | None = None) -> Idf:
    """Returns the inverse document frequencies of a question's words among the indexed versions of a workspace."""
    having, versions = await frequencies.read(conn, workspace_id, terms_of(concepts(question, related)))

    def idf(ids: Sequence[int]) -> float:
        return terms.idf(versions, sum(having.get(term, 0) for term in ids))

    return idf
