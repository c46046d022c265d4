"""Recall while states change, and its cache of states."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import psycopg
import pytest
from integration.damage import differences
from integration.pushes import push_files
from integration.recall.talks import COLLAPSED, GARDEN, HYBRID, LCA, SEA, Forest, as_told, leaves
from integration.worlds import World
from memotree_storage.model.codec import encode_entry
from memotree_storage.model.node import Archive, Entry, new_id
from memotree_storage.model.paths import entry_path
from memotree_storage.postgres import archive_trees, archive_versions
from memotree_storage.postgres.rows import ArchiveVersion
from memotree_storage.postgres.tree import Snapshot, State

from memotree.forest.recall import recall, snapshot_cache, state_view
from memotree.forest.recall.archive_snapshot import ArchiveSnapshot
from memotree.forest.recall.scoring.leaf_rows import LeafRows, Segment
from memotree.forest.recall.search_corpus import SearchCorpus
from memotree.forest.recall.snapshot_cache import SnapshotCache
from memotree.forest.recall.snapshot_comparison import same
from memotree.forest.recall.state_view import SessionMovedError
from memotree.v1 import forest_service_pb2 as pb

# --- States ----------------------------------------------------------------------------------------------------------


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
    answered = state_view.reading

    def reading(store: Any, view: Any) -> Any:
        step = next(steps, None)

        async def first() -> Any:
            if step is not None:
                await step()

        return _After(first, answered(store, view))

    monkeypatch.setattr(recall, "reading", reading)
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
    answered = state_view.reading

    def reading(store: Any, view: Any) -> Any:
        fresh = forest.world.node("Fresh")
        return _After(lambda: forest.world.stage(session, fresh), answered(store, view))

    monkeypatch.setattr(recall, "reading", reading)
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


@pytest.mark.own_store
async def test_leaves_are_found_while_the_index_is_rebuilt(forest: Forest) -> None:
    async with forest.world.store.database.connection() as conn:
        await conn.execute("delete from mirror.passage")
    assert await forest.contents() == {*GARDEN, *SEA}


# --- What is kept in memory ------------------------------------------------------------------------------------------


async def test_after_a_commit_only_what_changed_is_read_again(forest: Forest, reads: list[list[str]]) -> None:
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
    assert reads[1:] == [], "they follow from the snapshots before"


async def test_a_corpus_of_all_archives_is_made_once_and_then_followed(
    forest: Forest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a session is asked between two commits, or before its base."""
    made, real = list[int](), snapshot_cache.make_corpus

    def make_corpus(snapshots: Any, *more: Any) -> SearchCorpus:
        made.append(len(snapshots))
        return real(snapshots, *more)

    monkeypatch.setattr(snapshot_cache, "make_corpus", make_corpus)
    session = await forest.world.open()
    for number in range(3):
        sunk = f"Cid: The ferry sank {number} times."
        await forest.world.stage(session, replace(forest.ferry[1], content=sunk))
        assert sunk in await forest.contents(revision=session)
        await forest.world.commit(session)
        assert sunk in await forest.contents()
    assert made == [2]


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Returns the statements of this test since it was called last, except for that which ends a transaction.

    The index works at the same time, and its statements are not counted.
    """
    sent: list[tuple[asyncio.Task[Any] | None, str]] = []
    real = psycopg.AsyncCursor.execute

    async def execute(self: Any, query: Any, *args: Any, **fields: Any) -> Any:
        sent.append((asyncio.current_task(), " ".join(str(query).split())))
        return await real(self, query, *args, **fields)

    def since() -> list[str]:
        found = [query for task, query in sent if task is asyncio.current_task()]
        sent.clear()
        return found

    monkeypatch.setattr(psycopg.AsyncCursor, "execute", execute)
    return since


async def test_a_recall_after_a_commit_sends_seven_statements_more(
    forest: Forest, statements: Callable[[], list[str]]
) -> None:
    await forest()
    for turn in ("The ferry sank.", "The ferry was raised."):
        await forest.world.put(replace(forest.ferry[1], content=f"Cid: {turn}"))
        statements()
        assert f"Cid: {turn}" in await forest.contents()
        changed = statements()
        await forest()
        # What changed, numbers of leaves, what is superseded, the changed nodes, their features, the shown versions,
        # and what the changed ones said before.
        assert len(changed) - len(statements()) <= 7, changed
        assert not any(each.startswith("begin") for each in changed)


async def test_a_recall_after_a_staged_change_sends_eight_statements_more(
    forest: Forest, statements: Callable[[], list[str]]
) -> None:
    await forest()
    session = await forest.world.open()
    for turn in ("The ferry sank.", "The ferry was raised."):
        await forest.world.stage(session, replace(forest.ferry[1], content=f"Cid: {turn}"))
        statements()
        assert f"Cid: {turn}" in await forest.contents(revision=session)
        changed = statements()
        await forest.contents(revision=session)
        # Two transactions, each with the digest; what is staged, what it supersedes, the changed nodes, their texts.
        assert len(changed) - len(statements()) <= 8, changed


@pytest.mark.requirement("STORE-9")
async def test_the_archives_of_a_commit_are_those_of_another_one_with_its_changes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a recall after a commit costs what the commit changed, however many archives there are."""
    cache, read, archives = SnapshotCache(world.store, 1 << 20), list[State](), archive_versions.archives

    async def noted(snapshot: Snapshot, **named: Any) -> list[ArchiveVersion]:
        read.append(snapshot.state)
        return await archives(snapshot, **named)

    monkeypatch.setattr(archive_versions, "archives", noted)
    one, two = Archive(new_id(), "one"), Archive(new_id(), "two")
    await world.put(one, two, world.node())
    await cache.view(State(world.workspace, await world.head()))
    read.clear()
    renamed = replace(two, name="a name before the others")
    steps: list[tuple[list[Entry], list[Entry]]] = [
        ([world.node()], []),
        ([replace(one, description="Described.")], []),
        ([renamed], []),
        ([Archive(new_id(), "three"), world.node()], []),
        ([], [one]),
    ]
    for number, (written, gone) in enumerate(steps):
        if number % 2:
            session_id = await world.open()
            await world.stage(session_id, *written, delete=gone)
            view = await cache.view(State(world.workspace, await world.head(), session_id))
            async with world.store.database.connection() as conn:
                expected = await archives(Snapshot(conn, view.state))
            assert list(view.archives.items()) == [(archive.entry_id, archive) for archive in expected]
        await world.put(*written, delete=gone)
        view = await cache.view(State(world.workspace, await world.head()))
        assert read == []
        async with world.store.database.connection() as conn:
            expected = await archives(Snapshot(conn, view.state))
        assert list(view.archives.items()) == [(archive.entry_id, archive) for archive in expected]


def _vectors_forged(snapshot: ArchiveSnapshot) -> ArchiveSnapshot:
    index = snapshot.leaf_index
    rows = LeafRows.plain(Segment(np.flip(index.vectors, axis=0), index.text))
    return replace(snapshot, leaf_index=replace(index, text_rows=rows))


@pytest.mark.requirement("STORE-4")
@pytest.mark.parametrize(
    "forge",
    [lambda snapshot: replace(snapshot, blobs=snapshot.blobs.with_rows([(0, np.array([b"0" * 40]))])), _vectors_forged],
)
async def test_what_recall_remembers_wrongly_is_named_and_forgotten(
    forest: Forest, forge: Callable[[ArchiveSnapshot], ArchiveSnapshot]
) -> None:
    contents = await forest.contents()
    await forest(revision=forest.commit)
    assert await differences(forest.world) == []
    cache = forest.recalling.leaf_indexes
    (key,) = [key for key, kept in cache._kept._kept.items() if key.endswith(forest.sea.id)]
    kept = cache._kept.get(key)
    assert isinstance(kept, ArchiveSnapshot)
    cache._kept.put(key, forge(kept))
    (told,) = await differences(forest.world)
    assert (told.store, told.what, told.node_id) == ("cache", "archive", forest.sea.id)
    assert await differences(forest.world) == []
    (view,) = [view for view in cache._views._views.values() if view.generation == 0]
    await forest()
    (view,) = [view for view in cache._views._views.values() if view.generation == 1]
    view.archives = {forest.sea.id: view.archives[forest.sea.id]}
    (told,) = await differences(forest.world)
    assert (told.store, told.what) == ("cache", "archives")
    assert await forest.contents() == contents


@pytest.mark.requirement("STORE-4")
@pytest.mark.parametrize("strategy", [LCA, COLLAPSED])
async def test_nodes_that_a_search_remembers_wrongly_are_named_and_forgotten(forest: Forest, strategy: int) -> None:
    right = as_told(await forest(strategy=strategy))
    seen = forest.recalling._seen
    remembered = seen.items()
    for key, version in remembered:
        seen.put(key, replace(version, title="Forged"))
    assert as_told(await forest(strategy=strategy)) != right
    told = await differences(forest.world)
    assert {(one.store, one.what) for one in told} == {("cache", "node")}
    assert {one.node_id for one in told} == {version.entry_id for _, version in remembered}
    assert as_told(await forest(strategy=strategy)) == right
    assert await differences(forest.world) == []


@pytest.mark.requirement("STORE-4")
async def test_many_nodes_that_no_longer_hold_hide_none_that_does(forest: Forest) -> None:
    """They match better, and the search of all levels asks for more until enough of what it finds holds."""
    world = forest.world
    over = {"valid_to": "2020-01-01"}
    ended = [replace(node, attributes=over) for node in world.nodes(120, content="gazebo gazebo")]
    (alive,) = world.nodes(1, content="There is a gazebo behind the old house by the river, and a boat.")
    await world.put(*ended, alive)
    for strategy in (LCA, COLLAPSED):
        found = await forest(query="gazebo", strategy=strategy, top_k=1)
        assert [each.node.id for each in found.nodes] == [alive.id]


@pytest.mark.requirement("STORE-8")
@pytest.mark.parametrize("is_warm", [True, False])
async def test_leaves_whose_archive_is_gone_are_found_until_they_are_deleted(forest: Forest, is_warm: bool) -> None:
    """A merge by git takes an archive on one side, and a leaf below it is written on the other."""
    world = forest.world
    if is_warm:
        assert await forest.contents() == {*GARDEN, *SEA}
    push_files(world, {entry_path(forest.sea): None})
    await world.store.catch_up(world.workspace)
    assert await forest.contents() == {*GARDEN, *SEA}
    assert await forest.contents(filter=pb.RecallFilter(archives=["notes"])) == set(GARDEN)
    (leaf,) = [one for one in leaves(await forest("seasick on a boat")) if one.node.content == SEA[1]]
    assert leaf.node.archive_id == forest.sea.id
    session_id = await world.open()
    changed = replace(forest.ferry[1], content="Cid: The ferry to the island leaves at ten.")
    await world.stage(session_id, changed)
    assert await forest.contents(revision=session_id) == {*GARDEN, changed.content, *SEA[1:]}
    await world.put(delete=forest.ferry)
    assert await forest.contents() == set(GARDEN)


@pytest.mark.requirement("STORE-8")
async def test_what_is_gone_does_not_depend_on_what_was_read_before(forest: Forest) -> None:
    """An archive that a branch deleted with its nodes is not gone: no file of the branch names it."""
    world = forest.world
    await forest.contents()
    assert world.repository.move_ref("refs/heads/side", None, await world.head())
    await world.store.catch_up(world.workspace)
    await world.put(delete=[*reversed(forest.ferry), forest.sea], branch="side")
    state = State(world.workspace, await world.head("side"))
    assert (await forest.recalling.leaf_indexes.view(state)).archive_ids == [world.archive.id]
    push_files(world, {entry_path(forest.sea): None})
    await world.store.catch_up(world.workspace)
    session_id = await world.open()
    await world.stage(session_id, forest.sea)
    view = await forest.recalling.leaf_indexes.view(State(world.workspace, await world.head(), session_id))
    assert sorted(view.archive_ids) == sorted([world.archive.id, forest.sea.id])


@pytest.mark.requirement("STORE-8", "FOREST-8")
async def test_what_is_read_of_an_archive_does_not_depend_on_the_others_that_are_read_with_it(forest: Forest) -> None:
    """A push says that a leaf is in the archive of the sea, below a node of the garden."""
    world = forest.world
    stray = replace(forest.ferry[1], parent_id=forest.garden[0].id)
    push_files(world, {entry_path(stray): encode_entry(stray)})
    await world.store.catch_up(world.workspace)
    ids = [forest.sea.id, world.archive.id]
    async with world.store.database.connection() as conn:
        snapshot = Snapshot(conn, State(world.workspace, await world.head()))
        both = await archive_trees.ordered_nodes(snapshot, ids)
        for archive_id in ids:
            alone = await archive_trees.ordered_nodes(snapshot, [archive_id])
            assert alone == [node for node in both if node.archive_id == archive_id]
    assert await forest.contents() == {*GARDEN, *SEA}
    assert {told.store for told in await differences(world)} == {"git"}


async def test_callers_at_once_read_the_trees_once(forest: Forest, reads: list[list[str]]) -> None:
    answers = await asyncio.gather(*(forest() for _ in range(8)))
    assert len(reads) == 1
    assert [as_told(answer) for answer in answers] == [as_told(answers[0])] * 8


async def test_the_cache_is_bounded_and_does_not_change_answers(forest: Forest) -> None:
    small = forest.restarted(cache_bytes=1)
    answers = [await small(token_budget=30), await forest(token_budget=30)]
    assert answers[0].receipt.answer_sha256 == answers[1].receipt.answer_sha256
    [warning] = answers[0].warnings
    assert "more than the 0 MiB that recall may cache" in warning
    assert "MEMOTREE_RECALL_CACHE_BYTES" in warning
    assert as_told(answers[0]) == as_told(answers[1])
    assert small.recalling.leaf_indexes.weight <= 1
    assert forest.recalling.leaf_indexes.weight > 0


async def test_with_too_many_leaves_the_index_selects_archives_and_a_warning_says_so(forest: Forest) -> None:
    answer = await forest.restarted(scan_leaves=len(GARDEN))()
    assert answer.leaves_considered == len(GARDEN)
    assert {passage.archive_name for passage in answer.passages} == {"notes"}
    assert any("index" in warning for warning in answer.warnings)


# --- Beside a fresh server --------------------------------------------------------------------------------------------


@pytest.mark.requirement("FOREST-8", "STORE-9")
async def test_after_any_change_recall_sees_what_a_fresh_server_would(forest: Forest) -> None:
    """Snapshots, corpora and counts that follow from earlier ones are those that are read at once."""
    world = forest.world
    fresh = world.node("Fresh", content="A new ferry goes at noon.")
    below = replace(world.node("Below", content="It stops at the pier."), parent_id=fresh.id)
    moved = replace(forest.garden[2], archive_id=forest.sea.id, parent_id=forest.ferry[0].id)
    steps: list[tuple[list[Entry], list[Entry]]] = [
        ([fresh], []),
        ([below, replace(fresh, content="The new ferry is late.")], []),
        ([moved], []),
        ([replace(forest.ferry[1], content="Cid: The ferry sank.")], [below]),
        ([], [fresh]),
        ([forest.garden[2]], []),
    ]
    await forest()
    for written, gone in steps:
        session = await world.open()
        await world.stage(session, *written, delete=gone)
        staged = await forest.contents(revision=session)
        await world.commit(session)
        assert await forest.contents() == staged
        kept, cache = forest.recalling.leaf_indexes, SnapshotCache(world.store, 1 << 24)
        state = State(world.workspace, await world.head())
        view, again = await kept.view(state), await cache.view(state)
        known = await kept.leaf_counts(view)
        assert {key: count for key, count in known.items() if count} == await cache.leaf_counts(again)
        made = await kept.snapshots(view, view.archive_ids)
        whole = await cache.snapshots(again, again.archive_ids)
        assert all(same(one, other) for one, other in zip(made, whole, strict=True))
        assert await differences(world) == []
    assert await forest.contents() == {*GARDEN, *SEA} - {SEA[0]} | {"Cid: The ferry sank."}
