"""The port's promises on the client's in-process mode, which is the reference for Qdrant's API."""

from collections.abc import AsyncIterator

import pytest
from memotree_storage.conformance.vector_index import DIMENSIONS, VectorIndexSuite, workspace
from memotree_storage.qdrant.index import QdrantIndex
from qdrant_client import AsyncQdrantClient

__all__ = ["workspace"]


@pytest.fixture
async def index() -> AsyncIterator[QdrantIndex]:
    client = AsyncQdrantClient(":memory:")
    index = QdrantIndex(client, model="test", dimensions=DIMENSIONS)
    await index.prepare()
    yield index
    await client.close()


@pytest.mark.requirement("STORE-5")
class TestIndexInMemory(VectorIndexSuite):
    """Without the long histories, which are tried on the engine: this mode keeps all points in lists."""

    test_searches_equal_brute_force_on_random_histories = None  # type: ignore[assignment]
    test_a_state_stays_the_same_while_later_commits_arrive = None  # type: ignore[assignment]
