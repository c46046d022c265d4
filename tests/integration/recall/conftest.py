"""A workspace with two conversations."""

import pytest
from integration.recall.talks import GARDEN, SEA, Forest, Models, talk
from integration.worlds import World
from memotree_storage.model.node import Archive, new_id

from memotree.forest.recall.recall import Recall


@pytest.fixture
async def forest(world: World) -> Forest:
    recalling = Recall(world.store, world.limits, Models(world.store.embedder))
    sea = Archive(new_id(), "sea", "another-agent")
    garden, ferry = talk(world.archive.id, GARDEN), talk(sea.id, SEA)
    commit = await world.put(sea, *garden, *ferry)
    return Forest(world, recalling, sea, garden, ferry, commit)
