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
    pass
