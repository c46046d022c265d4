"""The store recovers from crashes and damage and mirrors pushes, and no workspace affects another."""

import asyncio
import contextlib
import os
import threading
from dataclasses import replace

import pytest
from integration.histories import branch, delete_branch
from integration.pushes import DEADLINE, PERSON, OpenAgain, differences, push, rows, run, session_of
from integration.worlds import World
from memotree_storage import store as opened_store
from memotree_storage.concurrency import cancellation
from memotree_storage.errors import CorruptError
from memotree_storage.git.maintenance import MaintenanceReport
from memotree_storage.git.repository import GitRepository
from memotree_storage.maintenance import background
from memotree_storage.maintenance.line_collection import collect_unreachable_lines
from memotree_storage.mirror import catch_up
from memotree_storage.mirror.catch_up import is_behind
from memotree_storage.model.node import new_id
from memotree_storage.model.workspace import KEEP_PREFIX
from memotree_storage.ports import IndexUnavailableError
from memotree_storage.postgres import staging
from memotree_storage.store import Store, WorkspaceSetAsideError

from memotree.history import HistoryOperations
from memotree.v1 import history_service_pb2 as history_pb

pytestmark = pytest.mark.own_store


# --- refs of all kinds -----------------------------------------------------------------------------------------------


async def test_a_ref_whose_name_is_not_utf8_is_ignored(world: World, again: OpenAgain) -> None:
    head = world.repository.refs()["refs/heads/main"]
    for folder in ("heads", "tags"):
        with open(os.fsencode(world.repository.path / "refs" / folder) + b"/caf\xe9", "w") as file:  # noqa: ASYNC230, PTH123 - bytes
            file.write(f"{head}\n")
    await world.put(world.node())
    async with again() as store:
        told = await differences(store, world.workspace)
    assert told == [
        f"'refs/{folder}/caf\\udce9' is not mirrored, because its name is not UTF-8; rename it with git."
        for folder in ("heads", "tags")
    ]


async def test_a_tag_of_a_file_leaves_the_mirror_up_to_date(world: World) -> None:
    node = world.node()
    await world.put(node)
    blob = (await world.alive(await world.head()))[node.id]
    assert world.repository.move_ref("refs/tags/a-file", None, blob)
    await world.store.catch_up(world.workspace)
    async with world.store.database.connection() as conn:
        assert not await is_behind(conn, world.workspace, world.repository)
    assert world.repository.move_ref("refs/tags/a-file", blob, await world.head())
    async with world.store.database.connection() as conn:
        assert await is_behind(conn, world.workspace, world.repository)


# --- a start ---------------------------------------------------------------------------------------------------------


def _last(table: str, column: str) -> str:
    chosen = f"select max({column}) from mirror.{table} where ITS"  # noqa: S608 - names of ours
    return f"delete from mirror.{table} where ITS and {column} = ({chosen})"  # noqa: S608


LOST_ROWS = {
    "versions": _last("version", "version_id"),
    "placements": _last("placement", "position"),
    "commits": _last("commit", "seq"),
    "branches": "delete from mirror.ref where workspace_id = %s",
    "terms": "delete from mirror.term where workspace_id = %s",
    "leaf features": "delete from mirror.passage where version_id in (select version_id from mirror.version where ITS)",
}


async def lose(world: World, lost: str) -> None:
    """Lose rows of a workspace."""
    statement = LOST_ROWS[lost].replace("ITS", "line_id in (select line_id from mirror.line where workspace_id = %s)")
    assert await run(world.store, statement, *[world.workspace] * statement.count("%s")) > 0


@pytest.mark.requirement("STORE-3")
async def test_a_start_repairs_a_mirror_that_has_lost_rows(world: World, again: OpenAgain) -> None:
    worlds = {lost: await World.create(world.store, world.pages, world.limits) for lost in LOST_ROWS}
    for lost, one in worlds.items():
        await one.put(*one.nodes(3))
        await world.store.indexer.drain(one.workspace)
        assert await differences(world.store, one.workspace) == []
        await lose(one, lost)
        assert await differences(world.store, one.workspace), lost
    await world.store.indexer.stop()  # nothing is flushed in the background
    await world.put(*world.nodes(3))
    await world.store.indexer.drain(world.workspace)
    await lose(world, "terms")
    worlds["terms of versions that wait to be flushed"] = world
    async with again() as store:
        for lost, one in worlds.items():
            await store.indexer.drain(one.workspace)
            assert await differences(store, one.workspace) == [], lost


async def lose_rows(world: World) -> None:
    """Lose a row that later commits do not miss."""
    await world.store.indexer.drain(world.workspace)
    assert await run(world.store, "delete from mirror.placement where from_seq = 5 and dead") == 1


async def fail(*_: object, **__: object) -> None:
    raise RuntimeError("as if it was cut off")


async def find_damage(*_: object, **__: object) -> None:
    raise CorruptError("as if Git was damaged")


@pytest.mark.requirement("STORE-3")
@pytest.mark.parametrize(
    ("place", "name", "failing"), [(Store, "rebuild", fail), (opened_store, "replay_in_transaction", find_damage)]
)
async def test_a_workspace_with_lost_rows_takes_no_changes_before_a_start_repairs_it_or_it_is_rebuilt(
    lived_in: World, again: OpenAgain, monkeypatch: pytest.MonkeyPatch, place: object, name: str, failing: object
) -> None:
    for is_rebuilt in (False, True):
        await lose_rows(lived_in)
        async with contextlib.AsyncExitStack() as stack:
            with monkeypatch.context() as patch:
                patch.setattr(place, name, failing)
                store = await stack.enter_async_context(again())
            assert list(store.set_aside) == [lived_in.workspace]
            for _ in range(2):
                with pytest.raises(WorkspaceSetAsideError, match="rebuild it"):
                    await lived_in.on(store).put(lived_in.node())
            if is_rebuilt:
                await store.rebuild(lived_in.workspace)
                await lived_in.on(store).put(lived_in.node())
                assert store.set_aside == {}
                assert await differences(store, lived_in.workspace) == []
        async with again() as store:
            assert store.set_aside == {}
            assert await differences(store, lived_in.workspace) == []


@pytest.mark.requirement("STORE-3")
async def test_the_removal_of_a_branch_does_not_hide_lost_rows_from_a_start(
    lived_in: World, history: HistoryOperations, again: OpenAgain
) -> None:
    await lose_rows(lived_in)
    await history.delete_branch(history_pb.DeleteBranchRequest(workspace=lived_in.workspace, name="side"))
    lock = lived_in.store.locks.workspaces.of(lived_in.workspace)
    assert await collect_unreachable_lines(lived_in.store.database, lived_in.workspace, lived_in.repository, lock)
    assert await differences(lived_in.store, lived_in.workspace)
    async with again() as store:
        assert await differences(store, lived_in.workspace) == []


# --- commits that were cut off ---------------------------------------------------------------------------------------


@pytest.mark.requirement("STORE-3")
@pytest.mark.parametrize("rebuilt", [False, True])
async def test_an_interrupted_commit_is_settled_in_its_session_and_gets_its_tag(world: World, rebuilt: bool) -> None:
    session, node = await world.open(), world.node()
    await world.stage(session, node)
    commit_id = push(world, "main", node, session=session, tag="v1")
    push(world, "main", world.node("By a person"), by=PERSON)
    await (world.store.rebuild if rebuilt else world.store.catch_up)(world.workspace)
    told = await session_of(world, session)
    assert (told.base_commit, told.change_count) == (commit_id, 0)
    assert world.repository.commit_info(world.repository.refs()["refs/tags/v1"]).commit_id == commit_id
    assert await differences(world.store, world.workspace) == []


@pytest.mark.requirement("STORE-3")
@pytest.mark.parametrize("rebuilt", [False, True])
async def test_edits_after_an_interrupted_commit_stay_staged(world: World, rebuilt: bool) -> None:
    """The commit has what was staged when it was made, and only that leaves the session."""
    once, twice, deleted, kept = nodes = world.nodes(4)
    await world.put(*nodes)
    session, nodes = await world.open(), [replace(node, title="Committed") for node in nodes]
    await world.stage(session, *nodes)
    commit_id = push(world, "main", *nodes, session=session)
    await world.stage(session, replace(once, title="Once"), replace(twice, title="Once"), delete=[deleted])
    await world.stage(session, replace(twice, title="Twice"))
    await (world.store.rebuild if rebuilt else world.store.catch_up)(world.workspace)
    async with world.store.database.connection() as conn:
        rows = {row.entry_id: row for row in await staging.staged(conn, session)}
    committed = await world.alive(commit_id)
    assert {key: row.derived_blob for key, row in rows.items()} == {
        node.id: committed[node.id] for node in (once, twice, deleted)
    }
    assert [rows[node.id].version.title for node in (once, twice)] == ["Once", "Twice"]
    assert rows[deleted.id].entry is None
    last = await world.alive(await world.commit(session))  # nothing conflicts with its own commit
    assert last.keys() == committed.keys() - {deleted.id}
    assert last[kept.id] == committed[kept.id]


async def test_a_copied_commit_is_not_mistaken_for_the_sessions_own(world: World) -> None:
    """Not on another branch, nor with another committer, nor if it is not after the session's base."""
    start = await world.head()
    session, node = await world.open(), world.node()
    await world.stage(session, node)
    base = await world.commit(session, create_tag=True, tag_name="v1")
    await world.stage(session, replace(node, title="Later"))
    tag = world.repository.refs()["refs/tags/v1"]
    assert world.repository.move_ref("refs/tags/v1", tag, None)
    await world.store.catch_up(world.workspace)
    push(world, "other", node, parent=start, session=session, tag="v1")
    push(world, "main", replace(node, title="Later"), by=PERSON, session=session, tag="v1")
    await world.store.catch_up(world.workspace)
    told = await session_of(world, session)
    assert (told.base_commit, told.change_count) == (base, 1)
    assert "refs/tags/v1" not in world.repository.refs()
    push(world, "main", replace(node, title="Later"), parent=start, session=session, tag="v1")  # main has moved
    await world.store.catch_up(world.workspace)
    told = await session_of(world, session)
    assert (told.base_commit, told.change_count) == (base, 1)
    assert "refs/tags/v1" not in world.repository.refs()


# --- what is left behind ---------------------------------------------------------------------------------------------


async def test_views_of_closed_sessions_and_refs_of_sessions_that_were_never_created_are_deleted(world: World) -> None:
    """A ref goes in the second round, because a session that is being opened has its ref before its row."""
    session, closed = await world.open(), await world.open()
    ghost = f"{KEEP_PREFIX}{new_id()}"
    assert world.repository.move_ref(ghost, None, await world.head())
    insert = "insert into work.view (workspace_id, scope, name) values (%s, %s, 'v')"
    for scope in (closed, session, "refs/heads/main"):
        await run(world.store, insert, world.workspace, scope)
    await world.store.maintenance.tidy()
    assert ghost in world.repository.refs()
    assert await run(world.store, "select from work.view") == 3
    await run(world.store, "update work.session set state = 'discarded' where session_id = %s", closed)
    await world.store.maintenance.tidy()
    refs = world.repository.refs()
    assert ghost not in refs
    assert f"{KEEP_PREFIX}{session}" in refs
    assert set(await rows(world.store, "select scope from work.view")) == {(session,), ("refs/heads/main",)}


async def test_a_line_stays_until_its_ref_is_mirrored_and_goes_with_its_branch_and_sessions(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = await world.put(world.node("Start"))
    await world.put(world.node("Onwards"))
    aside = push(world, "side", world.node("Aside"), parent=start)
    commits = "select from mirror.commit where commit_id = %s"

    async def cut_off(*_: object) -> None:
        raise IndexUnavailableError("cut off between the commits and the refs")

    with monkeypatch.context() as patched:
        patched.setattr(catch_up, "follow_refs", cut_off)
        with pytest.raises(IndexUnavailableError):
            await world.store.catch_up(world.workspace)
    await world.store.maintenance.tidy()
    assert await run(world.store, commits, aside) == 1
    await world.store.catch_up(world.workspace)
    assert await differences(world.store, world.workspace) == []
    session = await world.open("side")
    assert world.repository.move_ref("refs/heads/side", aside, None)
    await world.store.catch_up(world.workspace)
    assert (await session_of(world, session)).state == "detached"
    await world.store.maintenance.tidy()
    assert await run(world.store, commits, aside) == 1
    await run(world.store, "update work.session set used_at = used_at - ttl - interval '1 second'")
    await world.store.maintenance.tidy()
    assert (await session_of(world, session)).state == "expired"
    assert await run(world.store, commits, aside) == 0
    assert f"{KEEP_PREFIX}{session}" not in world.repository.refs()
    assert await differences(world.store, world.workspace) == []


# --- the background --------------------------------------------------------------------------------------------------


async def test_a_stop_waits_for_a_repack(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def slow(_: object) -> MaintenanceReport:
        begun.set()
        assert may_end.wait(DEADLINE)
        ended.set()
        return MaintenanceReport(1)

    monkeypatch.setattr(background, "maintain", slow)
    monkeypatch.setattr(background, "PACK_LIMIT", 0)
    world.store.maintenance.notice(world.workspace)
    assert await asyncio.to_thread(begun.wait, DEADLINE)
    stopping = asyncio.create_task(world.store.maintenance.stop())
    asyncio.get_running_loop().call_soon(may_end.set)
    await stopping
    assert ended.is_set()


async def test_refs_are_packed_in_the_background_when_they_are_many_files(
    world: World, history: HistoryOperations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_LOOSE_REFS", 2)
    packed = asyncio.Event()
    pack, loop = GitRepository.pack_refs, asyncio.get_running_loop()

    def telling(self: GitRepository, limit: int) -> int:
        done = pack(self, limit)
        if done:
            loop.call_soon_threadsafe(packed.set)
        return done

    monkeypatch.setattr(GitRepository, "pack_refs", telling)
    for name in ("one", "two", "three"):
        await branch(history, world, name)
    await world.put(world.node())
    await asyncio.wait_for(packed.wait(), DEADLINE)
    assert not (world.repository.path / "refs" / "heads" / "one").exists()
    assert {"refs/heads/one", "refs/heads/two", "refs/heads/three"} <= world.repository.refs().keys()


async def test_a_stop_ends_background_work_even_if_the_first_cancellation_is_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.store.maintenance.stop()
    begun = asyncio.Event()

    async def deaf() -> int:
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return 0

    monkeypatch.setattr(world.store.maintenance, "tidy", deaf)
    monkeypatch.setattr(cancellation, "_CANCEL_AGAIN", 0.01)
    world.store.maintenance.start()
    await begun.wait()
    await asyncio.wait_for(world.store.maintenance.stop(), DEADLINE)


@pytest.mark.requirement("STORE-4", "GIT-1")
async def test_after_both_mirrors_are_lost_no_ref_of_a_lost_session_is_left(
    world: World, history: HistoryOperations, again: OpenAgain
) -> None:
    """Its base was reached by that ref alone, so each rebuild mirrored it and each start collected it again."""
    await branch(history, world, "side")
    await world.put(world.node("On main"))  # so that the side has a line of its own
    await world.put(world.node("On the side"), branch="side")
    await world.open("side")
    await delete_branch(history, world, "side")
    await run(world.store, "drop schema mirror, work cascade")
    await world.store.index.delete(world.workspace)
    for _ in range(2):
        async with again() as store:
            await store.maintenance.stop()  # its rounds come at any moment
            lock = store.locks.workspaces.of(world.workspace)
            await collect_unreachable_lines(store.database, world.workspace, world.repository, lock)
            assert await differences(store, world.workspace) == []
            await store.rebuild(world.workspace)
            assert await differences(store, world.workspace) == []
