"""The port's promises on the embedded engine, and further promises of the engine."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from memotree_storage.conformance.vector_index import DIMENSIONS, VectorIndexSuite, workspace
from memotree_storage.embedded.qdrant import EmbeddedQdrant
from memotree_storage.qdrant.client import connect
from memotree_storage.qdrant.index import QdrantIndex

__all__ = ["workspace"]


@pytest.fixture(scope="module")
async def index(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[QdrantIndex]:
    engine = EmbeddedQdrant(tmp_path_factory.mktemp("qdrant"))
    async with AsyncExitStack() as cleanup:
        endpoint = await engine.start()
        cleanup.push_async_callback(engine.stop)
        client = connect(endpoint.url, endpoint.api_key)
        cleanup.push_async_callback(client.close)
        index = QdrantIndex(client, model="test", dimensions=DIMENSIONS, flush=engine.flush)
        await index.prepare()
        yield index


@pytest.mark.requirement("STORE-5")
class TestIndexOnEngine(VectorIndexSuite):
    pass
