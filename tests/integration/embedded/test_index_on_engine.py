"""The port's promises on the embedded engine, also where its shard is an optimised copy."""

from collections.abc import AsyncIterator, Sequence

import pytest
from integration.embedded.engines import run_engine
from memotree_storage.conformance.vector_index import VectorIndexSuite, point, workspace
from memotree_storage.embedded.qdrant import EmbeddedQdrant
from memotree_storage.ports import IndexPoint
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


@pytest.fixture(scope="module")
async def plain(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[QdrantIndex]:
    async with run_engine(tmp_path_factory.mktemp("qdrant")) as running:
        yield running.index


@pytest.fixture(scope="module")
async def optimised(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[OptimisedIndex]:
    async with run_engine(tmp_path_factory.mktemp("qdrant"), OptimisedIndex) as running:
        index = running.index
        assert isinstance(index, OptimisedIndex)
        index.engine = running.engine
        await index.upsert([point("other", line=number) for number in range(100)])  # fewer are left as they are
        yield index


@pytest.mark.requirement("STORE-5")
class TestIndexOnEngine(VectorIndexSuite):
    @pytest.fixture
    def index(self, plain: QdrantIndex) -> QdrantIndex:
        return plain


@pytest.mark.requirement("STORE-5")
class TestIndexOnOptimisedShard:
    """The tests that change what an optimised shard holds, and search it."""

    test_a_vector_comes_later = VectorIndexSuite.test_a_point_without_a_vector_is_found_by_its_terms_alone
    test_an_upsert_replaces_a_point = VectorIndexSuite.test_an_upsert_replaces_a_point_of_the_same_id
    test_a_version_is_closed = VectorIndexSuite.test_closing_a_version_hides_it_from_then_on
    test_many_versions_are_closed_at_once = VectorIndexSuite.test_many_versions_are_closed_at_once
    test_a_version_is_hidden_by_a_nearer_line = (
        VectorIndexSuite.test_a_version_is_hidden_by_a_nearer_line_from_its_seq_on
    )
    test_lines_are_kept = VectorIndexSuite.test_delete_keeps_the_lines_it_is_told_to
    test_lines_are_deleted = VectorIndexSuite.test_delete_takes_only_the_lines_it_is_told_to
    test_filters_narrow_the_search = VectorIndexSuite.test_filters_narrow_the_search
    test_a_state_stays_the_same = VectorIndexSuite.test_a_state_stays_the_same_while_later_commits_arrive
    test_searches_equal_brute_force = VectorIndexSuite.test_searches_equal_brute_force_on_random_histories

    @pytest.fixture
    def index(self, optimised: OptimisedIndex) -> OptimisedIndex:
        optimised.is_due = True
        return optimised
