"""Versions that worker processes make ready for the stores: the index and the mirror are as if nobody had helped."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from integration.damage import differences
from integration.worlds import World
from memotree_storage.commit.direct_import import commit_entries
from memotree_storage.index import feature_worker, frequencies, indexer
from memotree_storage.index.feature_worker import EncodedSlice, FeatureWorkers
from memotree_storage.index.features import FeatureMaker
from memotree_storage.index.search import SearchQuery
from memotree_storage.model.node import Node
from memotree_storage.postgres import outbox
from memotree_storage.postgres.pending import Pending
from memotree_storage.postgres.tree import State

Slices = list[EncodedSlice | None]


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> Slices:
    """Let workers process all versions, however few, in small slices; the slices that they return."""
    monkeypatch.setattr(feature_worker, "_MANY", 1)
    monkeypatch.setattr(indexer, "_SLICE", 20)
    made = FeatureWorkers.made
    found: Slices = []

    async def noted(
        self: FeatureWorkers, index: int, workspace_id: str, rows: Sequence[Pending], useful: int
    ) -> object:
        found.append(await made(self, index, workspace_id, rows, useful))
        return found[-1]

    monkeypatch.setattr(FeatureWorkers, "made", noted)
    return found


async def everything(world: World) -> tuple[object, ...]:
    """The rows that the indexer writes."""
    async with world.store.database.connection() as conn:
        terms = await conn.execute(
            "select term, documents from mirror.term where workspace_id = %s order by 1", [world.workspace]
        )
        leaves = await conn.execute(
            "select v.entry_id, v.blob, p.tokens, p.length, p.terms, p.counts, p.vector from mirror.passage p"
            " join mirror.version v using (version_id) join mirror.line using (line_id)"
            " where workspace_id = %s order by 1, 2",
            [world.workspace],
        )
        return await terms.fetchall(), await leaves.fetchall()


async def bring(world: World, nodes: Sequence[Node]) -> str:
    return await commit_entries(world.store, world.workspace, "main", nodes, "Import")


async def found(world: World, commit: str, words: str) -> set[str]:
    hits = await world.store.search.find(State(world.workspace, commit), SearchQuery(words, 10))
    return {hit.version.entry_id for hit in hits}


async def test_workers_write_what_the_service_would_have_written(
    world: World, slices: Slices, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = world.node("Top", content="", type="summary_node")
    nodes = [top, *(world.node(f"Leaf {number}", parent=top, content="words " * number) for number in range(30))]
    await bring(world, nodes)
    await world.store.indexer.drain(world.workspace)
    assert len(slices) == 2
    assert None not in slices
    assert await differences(world) == []
    with_workers = await everything(world)
    monkeypatch.setattr(feature_worker, "_MANY", 10_000)
    await world.store.rebuild(world.workspace)
    assert len(slices) == 2, "the service has done this itself"
    assert await everything(world) == with_workers


async def test_a_version_that_ends_while_a_worker_has_it_is_indexed_as_ended(
    world: World, slices: Slices, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, other = world.node("Beetroot", content="red"), world.node("Other", content="stays")
    first = await bring(world, [node, other])
    encoded = FeatureMaker.encoded
    second: list[str] = []

    async def late(self: FeatureMaker, index: int, workspace_id: str, rows: Sequence[Pending], *, among: int) -> object:
        made = await encoded(self, index, workspace_id, rows, among=among)
        if not second:
            second.append("")
            second[0] = await bring(world, [replace(node, title="Carrot", content="orange")])
        return made

    monkeypatch.setattr(FeatureMaker, "encoded", late)
    await world.store.indexer.drain(world.workspace)
    assert slices[0] is not None
    assert await differences(world) == []
    assert await found(world, first, "beetroot") == {node.id}
    assert await found(world, second[0], "beetroot") == set()
    assert await found(world, second[0], "carrot") == {node.id}


async def test_a_worker_that_is_killed_loses_no_version(
    world: World, slices: Slices, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = FeatureWorkers.made

    async def killed(
        self: FeatureWorkers, index: int, workspace_id: str, rows: Sequence[Pending], useful: int
    ) -> object:
        for worker in self.workers:
            if worker.process is not None:
                worker.process.kill()
                worker.process.wait()
        return await made(self, index, workspace_id, rows, useful)

    monkeypatch.setattr(FeatureWorkers, "made", killed)
    await bring(world, world.nodes(50))
    await world.store.indexer.drain(world.workspace)
    assert None in slices
    assert await world.store.indexer.pending(world.workspace) == 0
    assert await differences(world) == []


async def test_batches_follow_each_other_and_the_next_one_begins_before_the_last_is_written(
    world: World, slices: Slices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "_BATCH", 10)
    monkeypatch.setattr(indexer, "_SLICE", 4)
    read = outbox.pending
    begun: list[int] = []

    async def noted(*arguments: Any, **more: Any) -> list[Pending]:
        begun.append(more["after"])
        return await read(*arguments, **more)

    monkeypatch.setattr(outbox, "pending", noted)
    await bring(world, world.nodes(25))
    await world.store.indexer.drain(world.workspace)
    assert await world.store.indexer.pending(world.workspace) == 0
    assert None not in slices
    assert any(begun), "a batch was read after the one before it"
    assert begun[-1] == 0, "the last look begins at the first row again: a lower id may be committed later"
    assert world.store.indexer._next == {}
    assert await differences(world) == []


async def test_a_drain_that_fails_leaves_no_batch_behind(
    world: World, slices: Slices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "_BATCH", 10)
    add = frequencies.add

    async def failing(*_: object) -> None:
        raise ZeroDivisionError

    await bring(world, world.nodes(25))
    monkeypatch.setattr(frequencies, "add", failing)
    with pytest.raises(ZeroDivisionError):
        await world.store.indexer.drain(world.workspace)
    assert world.store.indexer._next == {}
    monkeypatch.setattr(frequencies, "add", add)
    await world.store.indexer.drain(world.workspace)
    assert None not in slices
    assert await differences(world) == []
