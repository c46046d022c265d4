"""What recall keeps of a commit is saved in the background, and a start takes it over with what was changed since."""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from integration.damage import differences
from integration.pushes import run
from integration.recall.talks import COLLAPSED, GARDEN, HYBRID, LCA, SEA, TRACTOR, Forest, as_told, leaves
from memotree_storage.model.node import Archive, Entry, new_id

from memotree.forest.recall.archive_snapshot import ArchiveSnapshot
from memotree.forest.recall.saved import array_files, saving
from memotree.forest.recall.saved.array_files import FACTS
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import workspace_service_pb2
from memotree.workspaces import WorkspaceOperations

pytestmark = [pytest.mark.requirement("FOREST-8"), pytest.mark.own_store]


@pytest.fixture(autouse=True)
def small_corpora(monkeypatch: pytest.MonkeyPatch) -> None:
    """Corpora of a few leaves are saved, too."""
    monkeypatch.setattr(saving, "LEAST_LEAVES", 1)


@dataclass
class Starts:
    """One store, and a `Recall` for each start of a server."""

    forest: Forest
    folder: Path
    reads: list[list[str]]
    """The archives of every read of trees since the last start."""

    def start(self, **settings: Any) -> Forest:
        self.reads.clear()
        return self.forest.restarted(saved=self.folder, **settings)

    async def saved(self) -> list[Path]:
        """Wait for the background work, and return what is saved."""
        await self.forest.world.store.background.finish(60)
        home = self.folder / self.forest.world.workspace
        return [each for each in home.iterdir() if (each / FACTS).exists()] if home.exists() else []


@pytest.fixture
def starts(forest: Forest, tmp_path: Path, reads: list[list[str]]) -> Starts:
    return Starts(forest, tmp_path / "recall", reads)


async def test_after_a_start_nothing_is_read_again_and_the_answer_is_the_same(starts: Starts) -> None:
    first = await starts.start()(include_trace=True)
    assert len(starts.reads) == 1
    assert len(await starts.saved()) == 1
    forest = starts.start()
    assert as_told(await forest(include_trace=True)) == as_told(first)
    assert starts.reads == []
    assert await differences(forest.world) == []
    assert await starts.start().contents(filter=pb.RecallFilter(archives=["sea"])) == set(SEA)
    assert starts.reads == []


async def test_what_was_changed_since_is_read_and_nothing_else(starts: Starts) -> None:
    world = starts.forest.world
    sea = starts.forest
    await starts.start()()
    await starts.saved()
    other = Archive(new_id(), "other")
    note = world.node("Note", archive_id=other.id, content="A note about ferries.")
    steps: list[tuple[list[Entry], list[Entry]]] = [
        ([replace(sea.ferry[1], content="Cid: The ferry sank.")], []),
        ([world.node("Fresh", content="A new ferry goes at noon.")], []),
        ([], [sea.garden[1]]),
        ([replace(sea.sea, name="the sea")], []),
        ([other, note], []),
    ]
    for written, gone in steps:
        await world.put(*written, delete=gone)
        reads = [] if other not in written else [[other.id]]
        forest = starts.start()
        expected = starts.forest.restarted()
        right = await expected(include_trace=True)
        starts.reads.clear()
        told = await forest(include_trace=True)
        assert starts.reads == reads
        assert [one.node.id for one in leaves(told)] == [one.node.id for one in leaves(right)]
        assert await forest.contents() == await expected.contents()
        assert await differences(world) == []


async def test_a_session_after_a_start_reads_what_it_changed(starts: Starts) -> None:
    """A base that only sessions ask is saved, too."""
    world = starts.forest.world
    session = await world.open()
    await world.stage(session, replace(starts.forest.garden[1], content="Ann: I planted ferns."))
    there = await starts.start().contents(revision=session)
    assert "Ann: I planted ferns." in there
    assert len(await starts.saved()) == 1
    forest = starts.start()
    assert await forest.contents(revision=session) == there
    assert await forest.contents() == {*GARDEN, *SEA}
    assert starts.reads == []


async def test_a_commit_before_the_saved_one_follows_from_it(starts: Starts) -> None:
    world = starts.forest.world
    await world.put(replace(starts.forest.ferry[1], content="Cid: The ferry sank."))
    await starts.start()()
    await starts.saved()
    forest = starts.start()
    assert await forest.contents(revision=starts.forest.commit) == {*GARDEN, *SEA}
    assert starts.reads == []


async def test_another_branch_is_read_and_what_is_saved_stays_until_it_is_used_from_now_on(
    starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = starts.forest.world
    assert world.repository.move_ref("refs/heads/side", None, await world.head())
    await world.store.catch_up(world.workspace)
    await world.put(world.node("Main"))
    await starts.start()()
    (before,) = await starts.saved()
    sunk = "Cid: The ferry sank."
    await world.put(replace(starts.forest.ferry[1], content=sunk), branch="side")
    side = await world.head("side")
    forest = starts.start()
    assert sunk in await forest.contents(revision=side)
    assert len(starts.reads) == 1
    assert sunk not in await forest.contents()
    assert len(starts.reads) == 1
    assert await starts.saved() == [before]
    monkeypatch.setattr(saving, "MOST_CHANGES", 3)
    for reads in (1, 0):
        await starts.start()(revision=side)
        assert len(starts.reads) == reads
        await starts.saved()


async def test_enough_leaves_are_saved_and_again_after_many_changes(
    starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "MOST_CHANGES", 3)
    world = starts.forest.world
    monkeypatch.setattr(saving, "LEAST_LEAVES", len(GARDEN) + len(SEA) + 1)
    await starts.start()()
    assert await starts.saved() == [], "few leaves are not saved"
    monkeypatch.setattr(saving, "LEAST_LEAVES", 1)
    forest = starts.start()
    await forest()
    (first,) = await starts.saved()
    for number in range(3):
        assert await starts.saved() == [first]
        await world.put(replace(forest.ferry[1], content=f"Cid: The ferry sank {number} times."))
        await forest()
    (second,) = await starts.saved()
    assert second != first


async def test_a_strategy_that_needs_no_snapshots_loads_none(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    await starts.start()()
    await starts.saved()
    monkeypatch.delattr(array_files, "read")
    assert (await starts.start()(strategy=LCA)).nodes


async def test_callers_at_once_load_once(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    await starts.start()()
    await starts.saved()
    read = Mock(wraps=array_files.read)
    monkeypatch.setattr(array_files, "read", read)
    forest = starts.start()
    await asyncio.gather(*(forest() for _ in range(5)))
    assert read.call_count == 1
    assert starts.reads == []


# --- What is not used ------------------------------------------------------------------------------------------------


async def test_what_is_damaged_is_read_anew_and_saved_again(starts: Starts) -> None:
    contents = await starts.start().contents()
    (folder,) = await starts.saved()
    (folder / FACTS).write_bytes(b"")
    assert await starts.start().contents() == contents
    assert len(starts.reads) == 1
    assert len(await starts.saved()) == 1
    assert await starts.start().contents() == contents
    assert starts.reads == []


@pytest.mark.requirement("STORE-4")
async def test_a_rebuild_forgets_what_was_saved(starts: Starts) -> None:
    """The rows were damaged when they were saved."""
    world = starts.forest.world
    right = as_told(await starts.forest(include_trace=True))
    await run(world.store, "update mirror.version set title = 'Damaged', dead = position > 'a1' where not is_archive")
    forest = starts.start()
    assert as_told(await forest(include_trace=True)) != right
    assert len(await starts.saved()) == 1
    await world.store.rebuild(world.workspace)
    assert await starts.saved() == []
    assert as_told(await forest(include_trace=True)) == right
    assert len(await starts.saved()) == 1


@pytest.mark.requirement("STORE-4")
async def test_what_was_saved_before_a_rebuild_by_an_earlier_start_is_not_used(starts: Starts) -> None:
    world = starts.forest.world
    await starts.start()()
    assert len(await starts.saved()) == 1
    world.store.forgetting.clear()  # the rebuild is one of a process that knows nothing of what is saved
    await world.store.rebuild(world.workspace)
    world.store.generations.clear()
    forest = starts.start()
    assert await forest.contents() == {*GARDEN, *SEA}
    assert starts.reads


@pytest.mark.requirement("STORE-4")
async def test_a_loaded_snapshot_that_is_wrong_is_named_and_forgotten(starts: Starts) -> None:
    await starts.start()()
    await starts.saved()
    forest = starts.start()
    contents = await forest.contents()
    kept = forest.recalling.leaf_indexes._kept
    (key,) = [key for key in kept._kept if key.endswith(forest.sea.id)]
    snapshot = kept.get(key)
    assert isinstance(snapshot, ArchiveSnapshot)
    kept.put(key, replace(snapshot, moments=snapshot.moments + 1))
    (told,) = await differences(forest.world)
    assert (told.store, told.what, told.node_id) == ("cache", "archive", forest.sea.id)
    assert await starts.saved() == []
    assert await forest.contents() == contents
    assert starts.reads
    assert await differences(forest.world) == []


async def test_what_is_saved_of_a_workspace_goes_with_it(starts: Starts) -> None:
    world = starts.forest.world
    forest = starts.start()
    await forest()
    assert len(await starts.saved()) == 1
    await forest.recalling.leaf_indexes.clear_saved()
    assert len(await starts.saved()) == 1
    operations = WorkspaceOperations(world.store, world.pages, world.limits)
    info = await operations.get_workspace(workspace_service_pb2.GetWorkspaceRequest(workspace=world.workspace))
    await operations.delete_workspace(
        workspace_service_pb2.DeleteWorkspaceRequest(workspace=world.workspace, confirm_name=info.workspace.name)
    )
    await world.store.background.finish(60)
    assert list(starts.folder.iterdir()) == []


async def test_if_it_cannot_be_saved_recall_works(starts: Starts) -> None:
    starts.folder.write_text("no folder")
    assert await starts.start().contents() == {*GARDEN, *SEA}
    await starts.forest.world.store.background.finish(60)
    assert await starts.start().contents() == {*GARDEN, *SEA}


# --- Rebuilds of the rows that recall has read -----------------------------------------------------------------------


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
    fresh = forest.restarted()
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
