"""The port's promises on the embedded engine, also where its shard is an optimised copy."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from memotree_storage.conformance.vector_index import DIMENSIONS, VectorIndexSuite, point, workspace
from memotree_storage.embedded.qdrant import EmbeddedQdrant
from memotree_storage.ports import IndexPoint
from memotree_storage.qdrant.client import connect
from memotree_storage.qdrant.index import QdrantIndex

__all__ = ["workspace"]


class OptimisedIndex(QdrantIndex):
    """An index whose shard is optimised after the first write of each test, so that later ones change what it holds."""

    engine: EmbeddedQdrant
    is_due = True

    async def upsert(self, points: Sequence[IndexPoint]) -> None:
        await super().upsert(points)
        if self.is_due:
            self.is_due = False
            await self.engine.optimise()


@asynccontextmanager
async def opened(folder: Path, kind: type[QdrantIndex]) -> AsyncIterator[tuple[QdrantIndex, EmbeddedQdrant]]:
    engine = EmbeddedQdrant(folder)
    endpoint = await engine.start()
    client = connect(endpoint.url, endpoint.api_key)
    try:
        index = kind(client, model="test", dimensions=DIMENSIONS, flush=engine.flush)
        await index.prepare()
        yield index, engine
    finally:
        await client.close()
        await engine.stop()


@pytest.fixture(scope="module")
async def plain(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[QdrantIndex]:
    async with opened(tmp_path_factory.mktemp("qdrant"), QdrantIndex) as (index, _):
        yield index


@pytest.fixture(scope="module")
async def optimised(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[OptimisedIndex]:
    async with opened(tmp_path_factory.mktemp("qdrant"), OptimisedIndex) as (index, engine):
        assert isinstance(index, OptimisedIndex)
        index.engine = engine
        await index.upsert([point("other", line=number) for number in range(100)])  # fewer are left as they are
        yield index


@pytest.mark.requirement("STORE-5")
class TestIndexOnEngine(VectorIndexSuite):
    @pytest.fixture
    def index(self, plain: QdrantIndex) -> QdrantIndex:
        return plain


@pytest.mark.requirement("STORE-5")
class TestIndexOnOptimisedShard(VectorIndexSuite):
    @pytest.fixture
    def index(self, optimised: OptimisedIndex) -> OptimisedIndex:
        optimised.is_due = True
        return optimised
