"""Recall after a rebuild, which replaces the rows that it had read."""

from dataclasses import replace
from typing import Any

import pytest
from integration.pushes import run
from integration.recall.talks import COLLAPSED, GARDEN, HYBRID, LCA, TRACTOR, Forest, Models, as_told

from memotree.forest.recall.recall import Recall


@pytest.mark.own_store
@pytest.mark.requirement("STORE-4", "FOREST-8")
@pytest.mark.parametrize("strategy", [LCA, COLLAPSED, HYBRID])
async def test_a_recall_after_a_rebuild_reads_nothing_that_was_cached_before(forest: Forest, strategy: int) -> None:
    """The rows were damaged when they were cached; a rebuild mends the rows, and so what is recalled."""
    world = forest.world
    asked: dict[str, Any] = {"strategy": strategy, "include_trace": True}
    session = await world.open()
    await world.stage(session, world.node("Staged"))
    right, right_there = await forest(**asked), await forest(**asked, revision=session)
    await run(world.store, "update mirror.version set title = 'Damaged', dead = position > 'a1' where not is_archive")
    await run(world.store, "update mirror.passage set counts = terms, tokens = 1")
    fresh = replace(forest, recalling=Recall(world.store, world.limits, Models(world.store.embedder)))
    assert as_told(await fresh(**asked)) != as_told(right)
    assert as_told(await fresh(**asked, revision=session)) != as_told(right_there)
    await world.store.rebuild(world.workspace)
    assert as_told(await fresh(**asked)) == as_told(right)
    assert as_told(await fresh(**asked, revision=session)) == as_told(right_there)


@pytest.mark.requirement("STORE-4", "FOREST-8")
async def test_a_rebuild_changes_no_answer(forest: Forest) -> None:
    """Whatever the order is in which equal texts, old versions and branches come back into the index."""
    world = forest.world
    alike = [world.node(f"Note {number % 3}", content=GARDEN[number % 4]) for number in range(24)]
    for start in range(0, len(alike), 8):
        await world.put(*alike[start : start + 8])
    for number in range(0, len(alike), 5):
        alike[number] = replace(alike[number], content=GARDEN[(number + 1) % 4])
        await world.put(alike[number], delete=[alike[number + 1]])
    asked = [
        {"query": query, "strategy": strategy, "top_k": 7, "include_trace": True}
        for query in (TRACTOR, *GARDEN[:3], "Note 1")
        for strategy in (LCA, COLLAPSED, HYBRID)
    ]
    before = [as_told(await forest(**fields)) for fields in asked]
    found = [[(hit.version.entry_id, hit.score) for hit in await forest.search(fields["query"])] for fields in asked]
    await world.store.rebuild(world.workspace)
    assert [as_told(await forest(**fields)) for fields in asked] == before
    again = [[(hit.version.entry_id, hit.score) for hit in await forest.search(fields["query"])] for fields in asked]
    assert again == found
