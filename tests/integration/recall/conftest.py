"""A workspace with two conversations."""

from typing import Any

import pytest
from integration.recall.talks import GARDEN, SEA, Forest, Models, talk
from integration.worlds import World
from memotree_storage.model.node import Archive, new_id
from memotree_storage.postgres import archive_trees
from memotree_storage.store import Store

from memotree.forest.recall.recall import Recall
from memotree.request.limits import ServiceLimits
from memotree.request.pages import PageTokens


@pytest.fixture
async def forest(world: World) -> Forest:
    return await _two_talks(world)


@pytest.fixture(scope="session")
async def still(shared_store: Store) -> Forest:
    """The same, which no test may change."""
    return await _two_talks(await World.create(shared_store, PageTokens(), ServiceLimits()))


async def _two_talks(world: World) -> Forest:
    recalling = Recall(world.store, world.limits, Models(world.store.embedder))
    sea = Archive(new_id(), "sea", "another-agent")
    garden, ferry = talk(world.archive.id, GARDEN), talk(sea.id, SEA)
    commit = await world.put(sea, *garden, *ferry)
    return Forest(world, recalling, sea, garden, ferry, commit)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The archives of every read of trees."""
    made: list[list[str]] = []
    real = archive_trees.ordered_nodes

    async def leaves_of(snapshot: Any, archive_ids: Any = None) -> Any:
        made.append(sorted(archive_ids))
        return await real(snapshot, archive_ids)

    monkeypatch.setattr(archive_trees, "ordered_nodes", leaves_of)
    return made
