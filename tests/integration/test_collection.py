"""Unreachable lines are removed with their points and terms, and nothing else is removed."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from integration.pushes import OpenAgain, differences, push, run, somebody_waits
from integration.worlds import World
from memotree_storage.git.objects import ObjectMissingError
from memotree_storage.git.repository import GitRepository
from memotree_storage.index.frequencies import TermCountUpdate
from memotree_storage.index.search import SearchQuery
from memotree_storage.model.node import Entry, new_id
from memotree_storage.ports import IndexPoint, IndexUnavailableError, TermVector
from memotree_storage.postgres import outbox
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.pending import Pending
from memotree_storage.postgres.tree import State
from memotree_storage.store import Store

from memotree.v1 import workspace_service_pb2
from memotree.workspaces import WorkspaceOperations

pytestmark = pytest.mark.own_store  # a collection is of the whole store

# --- lines that went, and their points -------------------------------------------------------------------------------


async def _forget(world: World, branch: str) -> None:
    """Delete a branch with git, and let the store see it."""
    ref = f"refs/heads/{branch}"
    assert world.repository.move_ref(ref, world.repository.ref(ref), None)
    await world.store.catch_up(world.workspace)


async def _lose(world: World, branch: str, title: str, parent: str) -> None:
    """Push a branch with a node on a commit, and delete it when it is indexed."""
    push(world, branch, world.node(title, content="apple"), parent=parent)
    await world.store.catch_up(world.workspace)
    await world.store.indexer.drain(world.workspace)
    await _forget(world, branch)


async def _lose_a_line(world: World) -> str:
    """Delete a branch with a commit with git; return the commit that it forked from."""
    start = await world.put(world.node("Start"))
    await world.put(world.node("Onwards"))
    await _lose(world, "side", "Aside", start)
    return start


@pytest.mark.requirement("STORE-5")
async def test_a_line_created_during_a_collection_keeps_its_points(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = await _lose_a_line(world)
    delete = world.store.index.delete

    async def late(workspace_id: str, **which: Sequence[int]) -> None:
        push(world, "new", world.node("New"), parent=start)
        await world.store.catch_up(world.workspace)
        await world.store.indexer.current(world.workspace)
        await delete(workspace_id, **which)

    monkeypatch.setattr(world.store.index, "delete", late)
    await world.store.maintenance.tidy()
    assert "refs/heads/new" in world.repository.refs()
    assert await differences(world.store, world.workspace) == []


@pytest.mark.requirement("STORE-5")
async def test_points_that_could_not_be_deleted_are_deleted_the_next_time(
    world: World, monkeypatch: pytest.MonkeyPatch, again: OpenAgain
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise IndexUnavailableError("away")

    for restart in (False, True):
        await _lose_a_line(world)
        with monkeypatch.context() as patch:
            patch.setattr(world.store.index, "delete", away)
            with pytest.raises(IndexUnavailableError):
                await world.store.maintenance.tidy()
        left = await world.store.index.count(world.workspace)
        assert await differences(world.store, world.workspace) == [], "they are noted, and wait for their deletion"
        if restart:
            async with again():
                pass
        else:
            await world.store.maintenance.tidy()
        assert await world.store.index.count(world.workspace) < left
        assert await differences(world.store, world.workspace) == []
        with monkeypatch.context() as patch:
            patch.setattr(world.store.index, "delete", away)  # what is deleted is not deleted again
            await world.store.maintenance.tidy()


@pytest.mark.requirement("STORE-5")
async def test_a_start_detects_missing_points_even_if_there_are_also_extra_points(
    world: World, again: OpenAgain
) -> None:
    other = await World.create(world.store, world.pages, world.limits)
    for one, is_on_a_line in ((world, True), (other, False)):
        await one.put(*one.nodes(2))
        await one.store.indexer.current(one.workspace)
        await one.store.indexer.flush()
        kept = [entry async for entry in world.store.index.scan(one.workspace)]
        await world.store.index.delete(one.workspace)
        vector = (await one.store.embedder.embed(["x"]))[0]
        line = kept[0].line_id if is_on_a_line else 4711
        terms = TermVector((), ())
        extra = [
            IndexPoint(str(uuid.uuid4()), one.workspace, new_id(), line, 1, None, "", "", (), vector, terms)
            for _ in range(len(kept) + 1)
        ]
        await world.store.index.upsert(extra)
    async with again() as store:
        assert await differences(store, world.workspace) == []
        assert await differences(store, other.workspace) == [], "points of a line that is not there"


async def test_old_points_are_deleted_only_after_the_new_ones_are_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.put(*world.nodes(3))
    delete = world.store.index.delete
    pending = []

    async def watched(workspace_id: str, **which: Sequence[int]) -> None:
        pending.append(await world.store.indexer.pending(workspace_id))
        await delete(workspace_id, **which)

    monkeypatch.setattr(world.store.index, "delete", watched)
    await world.store.rebuild(world.workspace)
    assert pending == [0]
    await world.store.reindex(world.workspace)
    assert pending == [0, 0]
    assert await differences(world.store, world.workspace) == []


# --- what collected lines leave in the scores ------------------------------------------------------------------------


async def scores(store: Store, world: World, text: str) -> dict[str, float]:
    found = await store.search.find(State(world.workspace, await world.head()), SearchQuery(text, 10))
    return {hit.version.entry_id: hit.score for hit in found}


async def _lose_words(world: World, indexed: int) -> str:
    """Delete a branch with three commits full of apples with git, after the index has some of them.

    Returns the commit that they forked from.
    """
    apples = [world.node(f"Apple {number}", content="apple") for number in range(3)]
    start = await world.put(world.node("Apple", content="An apple and a pear."), world.node("Pear", content="pear"))
    await world.put(world.node("Onwards", content="pear"))
    await world.store.indexer.current(world.workspace)
    await world.store.indexer.stop()
    for number, node in enumerate(apples):
        if number == indexed:
            await world.store.indexer.current(world.workspace)
        push(world, "side", node, replace(apples[0], title=f"Changed {number}"), parent=None if number else start)
        await world.store.catch_up(world.workspace)
    if indexed == len(apples):
        await world.store.indexer.current(world.workspace)
    await _forget(world, "side")
    return start


INDEXED = (0, 2, 3)
"""How many of the commits of a deleted branch the index has: none, a part, or all."""


@pytest.mark.requirement("STORE-4")
async def test_scores_after_a_collection_are_those_after_a_rebuild(world: World) -> None:
    for indexed in INDEXED:
        one = await World.create(world.store, world.pages, world.limits)
        await _lose_words(one, indexed)
        await one.store.maintenance.tidy()
        assert await run(one.store, "select from mirror.line where parent_line is not null") == 0
        assert await run(one.store, "select from mirror.term where documents < 1") == 0
        before = await scores(one.store, one, "apple pear")
        assert await differences(one.store, one.workspace) == [], f"{indexed} commits are indexed"
        await one.store.rebuild(one.workspace)
        assert await scores(one.store, one, "apple pear") == before != {}, f"{indexed} commits are indexed"


@pytest.mark.requirement("STORE-4")
async def test_scores_are_right_even_if_git_has_lost_the_texts_of_the_collected_lines(
    world: World, again: OpenAgain
) -> None:
    await _lose_words(world, 3)
    for command in (["repack", "-a", "-d"], ["prune", "--expire=now"]):
        done = await asyncio.create_subprocess_exec("git", "-C", str(world.repository.path), *command)
        assert await done.wait() == 0
    async with world.store.database.connection() as conn:
        cursor = await conn.execute("select blob from mirror.version where not dead")
        blobs = [blob for (blob,) in await cursor.fetchall()]
    with GitRepository.open(world.repository.path) as newly_opened:  # an open one still has its packs
        assert sum(not newly_opened.exists(blob) for blob in blobs) == 5
    async with again() as store:
        await store.maintenance.tidy()
        before = await scores(store, world, "apple pear")
        assert await differences(store, world.workspace) == []
        await store.rebuild(world.workspace)
        assert await scores(store, world, "apple pear") == before != {}


@pytest.mark.requirement("STORE-4")
async def test_a_text_lost_from_git_does_not_keep_others_out_of_the_index(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.store.indexer.stop()
    lost, kept = world.node("Lost", content="apple"), world.node("Kept", content="apple")
    await world.put(lost, kept)
    read = world.store.entries.read

    async def without(workspace_id: str, paths: Mapping[str, str]) -> dict[str, Entry]:
        if any(lost.id in path for path in paths.values()):
            raise ObjectMissingError("0" * 40, "blob")
        return await read(workspace_id, paths)

    monkeypatch.setattr(world.store.entries, "read", without)
    assert (await scores(world.store, world, "apple")).keys() == {kept.id}


async def _delete(world: World) -> None:
    name = world.store.repositories.describe(world.workspace).name
    request = workspace_service_pb2.DeleteWorkspaceRequest(workspace=world.workspace, confirm_name=name)
    await WorkspaceOperations(world.store, world.pages, world.limits).delete_workspace(request)


@pytest.mark.requirement("STORE-4")
async def test_the_points_of_a_deleted_workspace_go_at_the_next_start_at_the_latest(
    world: World, again: OpenAgain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is killed between the rows and the points leaves the points."""
    await world.put(*world.nodes(3))
    await world.store.indexer.drain(world.workspace)

    class KilledError(BaseException):
        """Ends the call where a kill would."""

    async def killed(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(world.store.index, "delete", killed)
        with pytest.raises(KilledError):
            await _delete(world)
    await world.store.close()
    assert await world.store.index.count(world.workspace) == 3
    async with again() as store:
        assert await store.index.count(world.workspace) == 0


@pytest.mark.requirement("STORE-4")
async def test_a_workspace_is_deleted_while_it_is_indexed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deletion takes no row that the indexer still needs, else each would wait for the other."""
    await world.put(*world.nodes(3))
    await world.store.indexer.drain(world.workspace)
    await run(
        world.store,
        "insert into mirror.outbox (index_number, workspace_id, version_id, changed, counted)"
        " select 1, %s, version_id, false, true from mirror.version",
        world.workspace,
    )
    held = outbox.held
    begun, may_go_on = asyncio.Event(), asyncio.Event()

    async def late(*arguments: Any) -> dict[int, Pending]:
        begun.set()
        await may_go_on.wait()
        return await held(*arguments)

    monkeypatch.setattr(outbox, "held", late)
    indexing = asyncio.create_task(world.store.indexer.drain(world.workspace))
    await begun.wait()
    deleting = asyncio.create_task(_delete(world))
    await somebody_waits(world.store)
    may_go_on.set()
    await asyncio.gather(indexing, deleting)
    assert await world.store.index.count(world.workspace) == 0


@pytest.mark.requirement("STORE-4")
async def test_a_collection_waits_for_versions_that_are_being_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _lose_words(world, 0)
    close = world.store.index.close_versions
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def slow(ended: Sequence[tuple[str, int]]) -> None:
        begun.set()
        await may_end.wait()
        await close(ended)

    monkeypatch.setattr(world.store.index, "close_versions", slow)
    indexing = asyncio.create_task(world.store.indexer.drain(world.workspace))
    await begun.wait()
    tidying = asyncio.create_task(world.store.maintenance.tidy())
    await somebody_waits(world.store)
    may_end.set()
    await asyncio.gather(indexing, tidying)
    assert await differences(world.store, world.workspace) == []


async def _come_back(world: World) -> None:
    assert world.repository.move_ref("refs/heads/back", None, await _only_child(world))
    await world.store.catch_up(world.workspace)


async def _come_back_beside_another(world: World, start: str) -> None:
    side = await _only_child(world)
    await _lose(world, "other", "Other", start)
    assert world.repository.move_ref("refs/heads/back", None, side)
    await world.store.catch_up(world.workspace)


async def _grow(world: World) -> None:
    await _lose(world, "more", "More", await _only_child(world))


async def _only_child(world: World) -> str:
    """The last commit of the only line that forked."""
    async with world.store.database.connection() as conn:
        cursor = await conn.execute(
            "select commit_id from mirror.commit join mirror.line l using (line_id)"
            " where l.workspace_id = %s and parent_line is not null and seq = tip_seq",
            (world.workspace,),
        )
        (row,) = await cursor.fetchall()
    return str(row[0])


MEANWHILE: dict[str, Callable[[World, str], Awaitable[object]]] = {
    "it is indexed": lambda world, _: world.store.indexer.drain(world.workspace),
    "the line comes back": lambda world, _: _come_back(world),
    "the line grows": lambda world, _: _grow(world),
    "another line is lost": lambda world, start: _lose(world, "other", "Other", start),
    "the line comes back beside another": _come_back_beside_another,
    "all is rebuilt": lambda world, _: world.store.rebuild(world.workspace),
}


@pytest.mark.requirement("STORE-4")
@pytest.mark.parametrize("indexed", INDEXED)
async def test_changes_made_while_a_collection_reads_texts_are_counted(
    world: World, monkeypatch: pytest.MonkeyPatch, indexed: int
) -> None:
    bring_to = TermCountUpdate.bring_to
    for what, meanwhile in MEANWHILE.items():
        one = await World.create(world.store, world.pages, world.limits)
        start = await _lose_words(one, indexed)
        calls = []

        async def then_more(tally: TermCountUpdate, conn: Connection, versions: set[int]) -> None:
            await bring_to(tally, conn, versions)
            calls.append(len(versions))  # noqa: B023 - it is called in the same turn
            if len(calls) == 1:  # noqa: B023
                await meanwhile(one, start)  # noqa: B023

        with monkeypatch.context() as patch:
            patch.setattr(TermCountUpdate, "bring_to", then_more)
            await one.store.maintenance.tidy()
        assert calls, what
        assert await differences(one.store, one.workspace) == [], what
