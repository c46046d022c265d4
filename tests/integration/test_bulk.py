"""Imports without a session: one commit or none, checked against what the importer read; the result is a tree."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from integration.damage import differences
from integration.pushes import push
from integration.worlds import World
from memotree_storage.commit.direct_import import ImportBrokenError, ImportRacedError, commit_entries, retry_if_raced
from memotree_storage.index.search import SearchQuery
from memotree_storage.model.node import Archive, Entry, Node, new_id
from memotree_storage.model.trailers import JOB, trailers_of, with_trailers
from memotree_storage.postgres import tree
from memotree_storage.postgres.registry import RevisionNotFoundError
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot, State


async def bring(world: World, *entries: Entry, removals: tuple[str, ...] = (), **more: Any) -> str:
    return await commit_entries(world.store, world.workspace, "main", entries, "Import", removals=removals, **more)


async def alive(world: World, commit: str) -> dict[str, Version]:
    async with world.store.database.connection() as conn:
        found = await tree.everything(Snapshot(conn, State(world.workspace, commit)))
    return {version.entry_id: version for version in found}


async def small_tree(world: World) -> tuple[Node, Node, Node]:
    top = world.node("Top")
    child, other = world.node("Child", parent=top), world.node("Other", position="a1")
    await world.put(top, child, other)
    return top, child, other


async def test_an_import_removes_entries_with_tombstones(world: World) -> None:
    top, child, other = await small_tree(world)
    before = await world.head()
    fresh = world.node("Fresh", parent=other)
    commit = await bring(world, fresh, replace(other, title="Renamed"), removals=(top.id, child.id))
    assert set(await alive(world, commit)) == {world.archive.id, other.id, fresh.id}
    assert set(await alive(world, before)) == {world.archive.id, top.id, child.id, other.id}
    async with world.store.database.connection() as conn:
        dead = await tree.versions(Snapshot(conn, State(world.workspace, commit)), [top.id, child.id], dead=True)
    assert {(version.title, version.dead) for version in dead.values()} == {("Top", True), ("Child", True)}
    hits = await world.store.search.find(State(world.workspace, commit), SearchQuery("child", 10))
    assert child.id not in {hit.version.entry_id for hit in hits}
    assert await differences(world) == []
    await world.store.rebuild(world.workspace)
    assert set(await alive(world, commit)) == {world.archive.id, other.id, fresh.id}


async def test_an_archive_is_removed_with_its_nodes(world: World) -> None:
    top, child, other = await small_tree(world)
    with pytest.raises(ImportBrokenError, match="stands below it"):
        await bring(world, removals=(world.archive.id, top.id, child.id))
    commit = await bring(world, removals=(world.archive.id, top.id, child.id, other.id))
    assert await alive(world, commit) == {}
    assert await differences(world) == []


@pytest.mark.requirement("STORE-2")
async def test_an_import_is_refused_if_an_entry_changed_since_it_was_read(world: World) -> None:
    top, _, other = await small_tree(world)
    read = {entry_id: version.blob for entry_id, version in (await alive(world, await world.head())).items()}
    fresh = world.node("Fresh", parent=top)
    moved = await world.put(replace(top, title="Meanwhile"))
    for expected in ({top.id: read[top.id]}, {other.id: None}, {fresh.id: "0" * 40}):
        with pytest.raises(ImportRacedError, match=next(iter(expected))) as caught:
            await bring(world, fresh, expected=expected)
        assert [found.node_id for found in caught.value.conflicts] == [*expected]
    assert await world.head() == moved
    commit = await bring(world, fresh, expected={other.id: read[other.id], fresh.id: None})
    assert await world.head() == commit


@pytest.mark.requirement("STORE-2")
async def test_of_two_imports_of_one_entry_one_wins(world: World) -> None:
    top, _, _ = await small_tree(world)
    blob = (await alive(world, await world.head()))[top.id].blob
    results = await asyncio.gather(
        *(bring(world, replace(top, title=f"By {number}"), expected={top.id: blob}) for number in range(4)),
        return_exceptions=True,
    )
    assert sum(isinstance(result, str) for result in results) == 1
    assert sum(isinstance(result, ImportRacedError) for result in results) == 3


@pytest.mark.requirement("STORE-2")
async def test_an_import_that_is_repeated_reads_what_was_pushed_meanwhile(world: World) -> None:
    top, _, _ = await small_tree(world)
    push(world, "main", replace(top, title="Pushed"))
    fresh = world.node("Fresh", parent=top)

    async def read_and_commit() -> str:
        blob = (await alive(world, await world.head()))[top.id].blob
        return await bring(world, fresh, expected={top.id: blob})

    commit = await retry_if_raced(read_and_commit)
    assert (await alive(world, commit))[top.id].title == "Pushed"


async def test_an_import_without_a_change_makes_no_commit(world: World) -> None:
    top, child, _ = await small_tree(world)
    head = await world.head()
    assert await bring(world, top, child, removals=(new_id(),)) == head
    commit = await bring(world, top, replace(child, brief="New"))
    stat = world.repository.diff(head, commit)
    assert [change.path.rsplit("/", 1)[-1] for change in stat] == [f"{child.id}-child.md"]


async def test_an_import_that_would_break_the_tree_or_of_a_missing_branch_is_refused(world: World) -> None:
    top, child, other = await small_tree(world)
    head = await world.head()
    one, two = world.node("One"), world.node("Two")
    aside = Archive(new_id(), "aside")
    cases: list[tuple[list[Entry], tuple[str, ...], str]] = [
        ([world.node("Orphan", parent=new_id())], (), "parent"),
        ([world.node("Homeless", archive_id=new_id())], (), "archive"),
        ([world.node("Late", parent=child)], (child.id,), "parent"),
        ([], (top.id,), child.id),
        ([aside, replace(top, archive_id=aside.id)], (), child.id),
        ([replace(one, parent_id=two.id), replace(two, parent_id=one.id)], (), "hangs below itself"),
        ([replace(top, parent_id=child.id)], (), "cycle"),
    ]
    for entries, removals, told in cases:
        with pytest.raises(ImportBrokenError, match=told):
            await bring(world, other, *entries, removals=removals)
    with pytest.raises(RevisionNotFoundError):
        await commit_entries(world.store, world.workspace, "nowhere", [world.node()], "Import")
    assert await world.head() == head


async def test_an_import_keeps_its_message_and_the_attributes_of_archives(world: World) -> None:
    archive = Archive(new_id(), "Handbook", "m", "d", {"document_id": "handbook.pdf"})
    message = with_trailers("Ingest\n\nCreated:\n- x", {JOB: "j1"})
    commit = await commit_entries(world.store, world.workspace, "main", [archive], message)
    message = world.repository.commit_info(commit).message
    assert message == "Ingest\n\nCreated:\n- x\n\nMemoTree-Job: j1\n"
    assert trailers_of(message) == {JOB: "j1"}
    assert (await alive(world, commit))[archive.id].to_archive() == archive
    assert await differences(world) == []
    await world.store.rebuild(world.workspace)
    assert (await alive(world, commit))[archive.id].to_archive() == archive
