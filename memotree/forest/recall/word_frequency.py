"""How frequent words are in a whole workspace; one document alone is too small a sample."""

from collections.abc import Sequence

from memotree_storage.index import frequencies
from memotree_storage.postgres.database import Connection

from memotree.forest.recall.scoring.query_words import Related, concepts, terms_of
from memotree.forest.recall.scoring.scores import Frequency


async def workspace_frequency(
    conn: Connection, workspace_id: str, question: str, related: Related | None = None
) -> Frequency:
    """Returns how many indexed versions of a workspace have each word of a question."""
    having, versions = await frequencies.read(conn, workspace_id, terms_of(concepts(question, related)))

    def frequency(ids: Sequence[int]) -> tuple[int, int]:
        return sum(having.get(term, 0) for term in ids), versions

    return frequency
