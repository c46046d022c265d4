"""Recall while states change, and its cache of states."""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import pytest
from integration.pushes import run
from integration.recall.talks import (
    COLLAPSED,
    GARDEN,
    HYBRID,
    LCA,
    SEA,
    TRACTOR,
    Forest,
    Models,
    leaves,
)
from integration.worlds import World
from memotree_storage.postgres import archive_trees as archive_trees_module

from memotree.forest.recall.recall import Recall
from memotree.forest.recall.snapshot_cache import SessionMovedError
from memotree.v1 import forest_service_pb2 as pb

# --- States ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("FOREST-8", "GIT-4")
async def test_each_state_has_its_own_leaves_and_no_others(forest: Forest) -> None:
    world = forest.world
    everything = {*GARDEN, *SEA}
    assert await forest.contents() == everything
    changed = replace(forest.garden[1], content="Ann: I planted tulips.")
    later = await world.put(changed, delete=[forest.ferry[2]])
    after = everything - {GARDEN[0], SEA[1]} | {changed.content}
    assert await forest.contents() == after
    assert await forest.contents(revision=forest.commit) == everything
    assert await forest.contents(revision=later) == after
    moved = replace(forest.garden[2], archive_id=forest.sea.id, parent_id=forest.ferry[0].id)
    await world.put(moved)
    here = pb.RecallFilter(archives=["sea"])
    assert await forest.contents(filter=here) == {SEA[0], SEA[2], GARDEN[1]}
    assert await forest.contents(filter=here, revision=later) == {SEA[0], SEA[2]}
    assert await forest.contents(filter=pb.RecallFilter(archives=["notes"])) == after - {SEA[0], SEA[2], GARDEN[1]}


@pytest.mark.requirement("FOREST-8", "STORE-5")
async def test_staged_changes_are_found_at_once_but_only_in_their_session(forest: Forest) -> None:
    world = forest.world
    everything = {*GARDEN, *SEA}
    session = await world.open()
    assert await forest.contents(revision=session) == everything
    fresh = world.node("Fresh", content="A new ferry goes at noon.")
    await world.stage(session, fresh, delete=[forest.garden[1]])
    assert await forest.contents(revision=session) == everything - {GARDEN[0]} | {fresh.content}
    fresh = replace(fresh, content="A new ferry goes at ten.")
    await world.stage(session, fresh)
    assert await forest.contents(revision=session) == everything - {GARDEN[0]} | {fresh.content}
    moved = replace(forest.ferry[1], archive_id=world.archive.id, parent_id=forest.garden[0].id)
    await world.stage(session, moved)
    here = pb.RecallFilter(archives=["sea"])
    assert await forest.contents(revision=session, filter=here) == {SEA[1], SEA[2]}
    await world.stage(session, forest.ferry[1], delete=[fresh])
    assert await forest.contents(revision=session) == everything - {GARDEN[0]}
    assert await forest.contents() == everything
    await world.commit(session)
    assert await forest.contents() == await forest.contents(revision=session) == everything - {GARDEN[0]}


@pytest.mark.requirement("FOREST-8", "STORE-5")
@pytest.mark.parametrize("strategy", [LCA, COLLAPSED, HYBRID])
async def test_a_change_or_commit_during_a_recall_never_mixes_two_states(
    forest: Forest, monkeypatch: pytest.MonkeyPatch, strategy: int
) -> None:
    world = forest.world
    session = await world.open()
    tractor = replace(forest.garden[4], title="Ben: My tractor", content="Ben: My tractor is sold.")
    await world.stage(session, tractor)
    steps = iter([lambda: world.stage(session, delete=[forest.garden[5]]), lambda: world.commit(session)])
    answered = Recall._reading

    def reading(self: Recall, view: Any) -> Any:
        step = next(steps, None)

        async def first() -> Any:
            if step is not None:
                await step()

        return _After(first, answered(self, view))

    monkeypatch.setattr(Recall, "_reading", reading)
    answer = await forest(revision=session, strategy=strategy, top_k=1, token_budget=12)  # type: ignore[arg-type]
    assert next(steps, None) is None
    found = [*leaves(answer), *answer.nodes]
    assert found
    assert answer.commit_id == await world.head()
    assert {one.node.id for one in found}.isdisjoint({forest.garden[5].id})
    for one in found:
        if one.node.id == tractor.id:
            assert one.node.content == tractor.content
            assert one.node.commit_id == answer.commit_id


@dataclass
class _After:
    """A context manager that awaits something before it enters another one."""

    first: Any
    context: Any

    async def __aenter__(self) -> Any:
        await self.first()
        return await self.context.__aenter__()

    async def __aexit__(self, *details: object) -> Any:
        return await self.context.__aexit__(*details)


async def test_a_recall_in_a_session_that_keeps_changing_is_refused_with_advice_to_retry(
    forest: Forest, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await forest.world.open()
    answered = Recall._reading

    def reading(self: Recall, view: Any) -> Any:
        fresh = forest.world.node("Fresh")
        return _After(lambda: forest.world.stage(session, fresh), answered(self, view))

    monkeypatch.setattr(Recall, "_reading", reading)
    await forest.world.stage(session, forest.world.node("First"))
    with pytest.raises(SessionMovedError):
        await forest(revision=session)


@pytest.mark.requirement("FOREST-8", "STORE-5")
async def test_another_workspace_is_never_seen(forest: Forest) -> None:
    other = await World.create(forest.world.store, forest.world.pages, forest.world.limits, "elsewhere")
    await other.put(other.node("Tractor", content="A tractor of others."))
    assert await forest.contents() == {*GARDEN, *SEA}
    for strategy in (LCA, COLLAPSED):
        answer = await forest(strategy=strategy, top_k=100)
        assert all(one.node.archive_id in {forest.sea.id, forest.world.archive.id} for one in answer.nodes)


async def test_leaves_are_found_while_the_index_is_rebuilt(forest: Forest) -> None:
    async with forest.world.store.database.connection() as conn:
        await conn.execute("delete from mirror.passage")
    assert await forest.contents() == {*GARDEN, *SEA}


# --- What is kept in memory ------------------------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The archives of every read of trees."""
    made: list[list[str]] = []
    real = archive_trees_module.ordered_nodes

    async def leaves_of(snapshot: Any, archive_ids: Any = None) -> Any:
        made.append(sorted(archive_ids))
        return await real(snapshot, archive_ids)

    monkeypatch.setattr(archive_trees_module, "ordered_nodes", leaves_of)
    return made


async def test_after_a_commit_only_the_changed_archives_are_read_again(forest: Forest, reads: list[list[str]]) -> None:
    await forest()
    await forest()
    assert reads == [sorted([forest.sea.id, forest.world.archive.id])]
    await forest.world.put(replace(forest.ferry[1], content="Cid: The ferry sank."))
    await forest()
    await forest(revision=forest.commit)
    session = await forest.world.open()
    await forest.world.stage(session, replace(forest.garden[1], content="Ann: I planted ferns."))
    await forest(revision=session)
    await forest(revision=session)
    assert reads[1:] == [[forest.sea.id], [forest.world.archive.id]]


async def test_callers_at_once_read_the_trees_once(forest: Forest, reads: list[list[str]]) -> None:
    answers = await asyncio.gather(*(forest() for _ in range(8)))
    assert len(reads) == 1
    for answer in answers:
        answer.receipt.ClearField("moment")
    assert len({answer.SerializeToString(deterministic=True) for answer in answers}) == 1


async def test_the_cache_is_bounded_and_does_not_change_answers(forest: Forest) -> None:
    world = forest.world
    small = Recall(world.store, world.limits, Models(world.store.embedder), cache_bytes=1)
    request = pb.RecallRequest(workspace=world.workspace, query=TRACTOR, token_budget=30)
    answers = [await small.recall(request), await forest.recalling.recall(request)]
    assert answers[0].receipt.answer_sha256 == answers[1].receipt.answer_sha256
    for answer in answers:
        answer.receipt.ClearField("moment")
    assert answers[0] == answers[1]
    assert small.leaf_indexes.weight <= 1
    assert forest.recalling.leaf_indexes.weight > 0


async def test_with_too_many_leaves_the_index_selects_archives_and_a_warning_says_so(forest: Forest) -> None:
    world = forest.world
    careful = Recall(world.store, world.limits, Models(world.store.embedder), scan_leaves=len(GARDEN))
    answer = await careful.recall(pb.RecallRequest(workspace=world.workspace, query=TRACTOR))
    assert answer.leaves_considered == len(GARDEN)
    assert {passage.archive_name for passage in answer.passages} == {"notes"}
    assert any("index" in warning for warning in answer.warnings)


# --- Rows that are replaced ------------------------------------------------------------------------------------------


@pytest.mark.requirement("STORE-4", "FOREST-8")
@pytest.mark.parametrize("strategy", [LCA, COLLAPSED, HYBRID])
async def test_a_recall_after_a_rebuild_reads_nothing_that_was_cached_before(forest: Forest, strategy: int) -> None:
    """The rows were damaged when they were cached; a rebuild mends the rows, and so what is recalled."""
    world = forest.world
    asked: dict[str, Any] = {"strategy": strategy, "include_trace": True}
    right = await forest(**asked)
    await run(world.store, "update mirror.version set title = 'Damaged', dead = position > 'a1' where not is_archive")
    await run(world.store, "update mirror.passage set counts = terms, tokens = 1")
    fresh = replace(forest, recalling=Recall(world.store, world.limits, Models(world.store.embedder)))
    assert as_told(await fresh(**asked)) != as_told(right)
    session = await world.open()
    await world.stage(session, world.node("Staged"))
    await fresh(**asked, revision=session)
    await world.store.rebuild(world.workspace)
    assert as_told(await fresh(**asked)) == as_told(right)
    assert as_told(await fresh(**asked, revision=session)).text


def as_told(answer: pb.RecallResponse) -> pb.RecallResponse:
    """An answer without its receipt, which has the moment."""
    told = pb.RecallResponse()
    told.CopyFrom(answer)
    told.ClearField("receipt")
    return told
