"""The store makes up for crashes, for what people push with git, and for damage, and no workspace harms another."""

import asyncio
import contextlib
import json
import os
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from integration.worlds import World
from memotree_storage import catchup, shield, trailers, upkeep
from memotree_storage.catchup import is_behind
from memotree_storage.codec import encode_entry, entry_path
from memotree_storage.frequencies import Tally
from memotree_storage.git.maintenance import MaintenanceReport
from memotree_storage.git.objects import ObjectMissingError
from memotree_storage.git.repository import GitRepository
from memotree_storage.node import Entry, new_id
from memotree_storage.ports import CommitDraft, IndexPoint, Signature, TermVector
from memotree_storage.postgres import registry, sessions
from memotree_storage.postgres.database import Connection, Database
from memotree_storage.postgres.tree import State
from memotree_storage.qdrant.index import QdrantIndex
from memotree_storage.qdrant.outage import IndexUnavailableError
from memotree_storage.search import SearchQuery
from memotree_storage.store import Store
from memotree_storage.trailers import with_trailers
from memotree_storage.verify import Difference, verify
from memotree_storage.workspaces import KEEP_PREFIX, WORKSPACE_REF, WorkspaceInfo, service_signature

OpenAgain = Callable[[], AbstractAsyncContextManager[Store]]
PERSON = Signature("A person", "person@example.org", datetime(2024, 5, 1, tzinfo=UTC))
DEADLINE = 10.0


@pytest.fixture
def again(world: World, database_url: str) -> OpenAgain:
    """Opens the store as a server does that starts."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Store]:
        store = Store(world.store.data_folder, Database(database_url), world.store.index, world.store.embedder)
        try:
            await store.open()
            yield store
        finally:
            await store.close()

    return opened


async def differences(store: Store, workspace_id: str) -> list[str]:
    return [found.description async for found in verify(store, workspace_id) if isinstance(found, Difference)]


def push(
    world: World,
    branch: str,
    *entries: Entry,
    parent: str | None = None,
    by: Signature | None = None,
    **marks: str,
) -> str:
    """Commit with git alone, on top of a branch or of ``parent``; marks become trailers."""
    ref = f"refs/heads/{branch}"
    head = world.repository.refs().get(ref)
    named = {"session": trailers.SESSION, "tag": trailers.TAG, "request": trailers.REQUEST}
    draft = CommitDraft(
        parent or head,
        {entry_path(entry): encode_entry(entry) for entry in entries},
        with_trailers("Change something", {named[key]: value for key, value in marks.items()}),
        by or service_signature(),
        by or service_signature(),
    )
    commit_id = world.repository.write_commit(draft).commit_id
    assert world.repository.move_ref(ref, head, commit_id)
    return commit_id


async def session_of(world: World, session_id: str) -> sessions.Session:
    async with world.store.database.connection() as conn:
        return await sessions.find_session(conn, world.workspace, session_id)


async def run(store: Store, statement: str, *arguments: Any) -> int:
    async with store.database.connection() as conn:
        return (await conn.execute(statement.encode(), arguments)).rowcount


async def names(store: Store) -> dict[str, str]:
    async with store.database.connection() as conn:
        return {one.workspace_id: one.name for one in await registry.list_workspaces(conn)}


# --- refs of all kinds -----------------------------------------------------------------------------------------------


async def test_a_ref_whose_name_is_not_utf8_harms_nobody(world: World, again: OpenAgain) -> None:
    head = world.repository.refs()["refs/heads/main"]
    for folder in ("heads", "tags"):
        with open(os.fsencode(world.repository.path / "refs" / folder) + b"/caf\xe9", "w") as file:  # noqa: ASYNC230, PTH123 - bytes
            file.write(f"{head}\n")
    await world.put(world.node())
    async with again() as store:
        assert await differences(store, world.workspace) == []


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


def _describe_badly(store: Store, workspace_id: str, **fields: object) -> None:
    repository = store.repositories.get(workspace_id)
    tip = repository.refs()[WORKSPACE_REF]
    told = {"name": "odd", "description": "", "created_at": "2024-01-01T00:00:00+00:00"} | fields
    draft = CommitDraft(tip, {"workspace.json": json.dumps(told).encode()}, "Odd\n", PERSON, PERSON)
    assert repository.move_ref(WORKSPACE_REF, tip, repository.write_commit(draft).commit_id)


def _lose_packs(store: Store, workspace_id: str) -> None:
    for pack in (store.repositories.path(workspace_id) / "objects" / "pack").glob("pack-*"):
        pack.unlink()


def _spoil_packed_refs(store: Store, workspace_id: str) -> None:
    (store.repositories.path(workspace_id) / "packed-refs").write_bytes(b"nonsense\n")


DAMAGES: dict[str, Callable[[Store, str], None]] = {
    "a name of half a character": lambda store, key: _describe_badly(store, key, name="half \ud800"),
    "a name that is NUL": lambda store, key: _describe_badly(store, key, name="\0"),
    "a description that is none": lambda store, key: _describe_badly(store, key, description=None),
    "a year that is none": lambda store, key: _describe_badly(store, key, created_at="0001-01-01T00:00:00"),
    "no objects": _lose_packs,
    "packed refs that are nonsense": _spoil_packed_refs,
}


@pytest.mark.requirement("STORE-4")
@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_workspace_keeps_no_other_from_being_served(
    world: World, again: OpenAgain, damage: str
) -> None:
    other = await World.create(world.store, world.pages, world.limits, "other")
    DAMAGES[damage](world.store, other.workspace)
    push(world, "main", world.node("Pushed"))
    async with again() as store:
        assert await differences(store, world.workspace) == []


@pytest.mark.parametrize("age", [timedelta(days=1), timedelta(days=-1)], ids=["older", "younger"])
async def test_of_two_workspaces_of_one_name_the_later_one_gets_another(
    world: World, again: OpenAgain, age: timedelta
) -> None:
    mine = world.store.repositories.describe(world.workspace)
    twin = WorkspaceInfo(new_id(), mine.name, "", mine.created_at - age)
    world.store.repositories.create(twin)
    later = max(mine, twin, key=lambda info: info.created_at).workspace_id
    expected = {key: f"garden-{key}" if key == later else "garden" for key in (mine.workspace_id, twin.workspace_id)}
    for _ in range(2):
        async with again() as store:
            assert await names(store) == expected
            for key in expected:
                assert await differences(store, key) == []
                await store.rebuild(key)
            assert await names(store) == expected


# --- commits that were cut off ---------------------------------------------------------------------------------------


@pytest.mark.requirement("STORE-3")
@pytest.mark.parametrize("rebuilt", [False, True])
async def test_a_commit_that_was_cut_off_reaches_its_session_and_its_tag(world: World, rebuilt: bool) -> None:
    session, node = await world.open(), world.node()
    await world.stage(session, node)
    commit_id = push(world, "main", node, session=session, tag="v1")
    push(world, "main", world.node("By a person"), by=PERSON)
    await (world.store.rebuild if rebuilt else world.store.catch_up)(world.workspace)
    told = await session_of(world, session)
    assert (told.base_commit, told.change_count) == (commit_id, 0)
    assert world.repository.peel(world.repository.refs()["refs/tags/v1"]) == commit_id
    assert await differences(world.store, world.workspace) == []


async def test_a_copied_commit_is_not_taken_for_its_sessions(world: World) -> None:
    """Neither on another branch, nor on the session's own by a person, nor beside what the session stands on."""
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
    push(world, "main", replace(node, title="Later"), parent=start, session=session, tag="v1")  # main is elsewhere now
    await world.store.catch_up(world.workspace)
    told = await session_of(world, session)
    assert (told.base_commit, told.change_count) == (base, 1)
    assert "refs/tags/v1" not in world.repository.refs()


# --- lines that went, and their points -------------------------------------------------------------------------------


async def _lose_a_line(world: World) -> str:
    """A branch with a commit is deleted with git; the commit that it came from is returned."""
    start = await world.put(world.node("Start"))
    await world.put(world.node("Onwards"))
    push(world, "side", world.node("Aside"), parent=start)
    await world.store.catch_up(world.workspace)
    await world.store.indexer.current(world.workspace)
    assert world.repository.move_ref("refs/heads/side", world.repository.refs()["refs/heads/side"], None)
    await world.store.catch_up(world.workspace)
    return start


@pytest.mark.requirement("STORE-5")
async def test_a_line_that_opens_while_others_are_collected_keeps_its_points(
    world: World, shared_index: QdrantIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = await _lose_a_line(world)
    delete = shared_index.delete

    async def late(workspace_id: str, **which: Sequence[int]) -> None:
        push(world, "new", world.node("New"), parent=start)
        await world.store.catch_up(world.workspace)
        await world.store.indexer.current(world.workspace)
        await delete(workspace_id, **which)

    monkeypatch.setattr(shared_index, "delete", late)
    await world.store.upkeep.tidy()
    assert world.repository.read_ref("refs/heads/new")
    assert await differences(world.store, world.workspace) == []


@pytest.mark.requirement("STORE-5")
@pytest.mark.parametrize("restart", [False, True])
async def test_points_that_could_not_be_deleted_go_the_next_time(
    world: World,
    shared_index: QdrantIndex,
    monkeypatch: pytest.MonkeyPatch,
    again: OpenAgain,
    restart: bool,
) -> None:
    await _lose_a_line(world)

    async def away(*_: object, **__: object) -> None:
        raise IndexUnavailableError("away")

    with monkeypatch.context() as patch:
        patch.setattr(shared_index, "delete", away)
        with pytest.raises(IndexUnavailableError):
            await world.store.upkeep.tidy()
    assert len(await differences(world.store, world.workspace)) == 1
    if restart:
        async with again():
            pass
    else:
        await world.store.upkeep.tidy()
    assert await differences(world.store, world.workspace) == []


@pytest.mark.requirement("STORE-5")
@pytest.mark.parametrize("there", [True, False], ids=["line that is there", "line that is not"])
async def test_a_start_sees_missing_points_behind_those_that_are_too_many(
    world: World,
    shared_index: QdrantIndex,
    again: OpenAgain,
    there: bool,
) -> None:
    await world.put(*world.nodes(2))
    await world.store.indexer.current(world.workspace)
    await world.store.indexer.flush()
    kept = [entry async for entry in shared_index.scan(world.workspace)]
    await shared_index.delete(world.workspace)
    vector = (await world.store.embedder.embed(["x"]))[0]
    line = kept[0].line_id if there else 4711
    terms = TermVector((), ())
    await shared_index.upsert(
        [
            IndexPoint(str(uuid.uuid4()), world.workspace, new_id(), line, 1, None, "", "", (), vector, terms)
            for _ in range(len(kept) + 1)
        ]
    )
    async with again() as store:
        assert await differences(store, world.workspace) == []


@pytest.mark.parametrize("how", ["rebuild", "reindex"])
async def test_old_points_go_only_when_the_new_ones_are_there(
    world: World, shared_index: QdrantIndex, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    await world.put(*world.nodes(3))
    delete = shared_index.delete
    pending = []

    async def watched(workspace_id: str, **which: Sequence[int]) -> None:
        pending.append(await world.store.indexer.pending(workspace_id))
        await delete(workspace_id, **which)

    monkeypatch.setattr(shared_index, "delete", watched)
    await getattr(world.store, how)(world.workspace)
    assert pending == [0]
    assert await differences(world.store, world.workspace) == []


# --- what collected lines leave in the scores ------------------------------------------------------------------------


async def scores(store: Store, world: World, text: str) -> dict[str, float]:
    found = await store.search.find(State(world.workspace, await world.head()), SearchQuery(text, 10))
    return {hit.version.entry_id: hit.score for hit in found}


async def _lose_words(world: World, indexed: int) -> str:
    """A branch with three commits that are full of apples is deleted with git, when the index has some of them.

    The commit that they stood on is returned.
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
    assert world.repository.move_ref("refs/heads/side", world.repository.refs()["refs/heads/side"], None)
    await world.store.catch_up(world.workspace)
    return start


@pytest.mark.requirement("STORE-4")
@pytest.mark.parametrize("indexed", [0, 2, 3], ids=["nothing indexed", "a part indexed", "all indexed"])
async def test_scores_after_a_collection_are_those_after_a_rebuild(world: World, indexed: int) -> None:
    await _lose_words(world, indexed)
    await world.store.upkeep.tidy()
    assert await run(world.store, "select from mirror.line where parent_line is not null") == 0
    assert await run(world.store, "select from mirror.term where documents < 1") == 0
    before = await scores(world.store, world, "apple pear")
    assert await differences(world.store, world.workspace) == []
    await world.store.rebuild(world.workspace)
    assert await scores(world.store, world, "apple pear") == before != {}


@pytest.mark.requirement("STORE-4")
async def test_scores_are_right_when_git_has_lost_the_texts_of_what_is_collected(
    world: World, again: OpenAgain
) -> None:
    await _lose_words(world, 3)
    for command in (["repack", "-a", "-d"], ["prune", "--expire=now"]):
        done = await asyncio.create_subprocess_exec("git", "-C", str(world.repository.path), *command)
        assert await done.wait() == 0
    assert await _lost_texts(world) == 5
    async with again() as store:
        await store.upkeep.tidy()
        before = await scores(store, world, "apple pear")
        assert await differences(store, world.workspace) == []
        await store.rebuild(world.workspace)
        assert await scores(store, world, "apple pear") == before != {}


@pytest.mark.requirement("STORE-4")
async def test_a_text_that_git_has_lost_keeps_no_other_from_the_index(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.store.indexer.stop()
    lost, kept = world.node("Lost", content="apple"), world.node("Kept", content="apple")
    await world.put(lost, kept)
    read = world.store.entries.read

    async def without(workspace_id: str, paths: Mapping[str, str]) -> dict[str, Entry]:
        if entry_path(lost) in paths.values():
            raise ObjectMissingError("0" * 40, "blob")
        return await read(workspace_id, paths)

    monkeypatch.setattr(world.store.entries, "read", without)
    assert (await scores(world.store, world, "apple")).keys() == {kept.id}


async def _lost_texts(world: World) -> int:
    """The versions whose text Git does not have; a repository that is open has its packs still."""
    async with world.store.database.connection() as conn:
        cursor = await conn.execute("select blob from mirror.version where not dead")
        blobs = [row[0] for row in await cursor.fetchall()]
    with GitRepository.open(world.repository.path) as repository:
        return sum(not repository.exists(blob) for blob in blobs)


@pytest.mark.requirement("STORE-4")
async def test_a_collection_waits_for_versions_that_are_just_counted(
    world: World, shared_index: QdrantIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _lose_words(world, 0)
    close = shared_index.close_versions
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def slow(ended: Sequence[tuple[str, int]]) -> None:
        begun.set()
        await may_end.wait()
        await close(ended)

    monkeypatch.setattr(shared_index, "close_versions", slow)
    indexing = asyncio.create_task(world.store.indexer.drain(world.workspace))
    await begun.wait()
    tidying = asyncio.create_task(world.store.upkeep.tidy())
    waits = "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    async with asyncio.timeout(DEADLINE):
        while not await run(world.store, waits):  # noqa: ASYNC110 - another process decides
            await asyncio.sleep(0.01)
    may_end.set()
    await asyncio.gather(indexing, tidying)
    assert await differences(world.store, world.workspace) == []


async def _index(world: World, _: str) -> None:
    await world.store.indexer.drain(world.workspace)


async def _come_back(world: World, _: str) -> None:
    side = await _only_child(world)
    assert world.repository.move_ref("refs/heads/back", None, side)
    await world.store.catch_up(world.workspace)


async def _grow(world: World, _: str) -> None:
    push(world, "more", world.node("More", content="apple"), parent=await _only_child(world))
    await world.store.catch_up(world.workspace)
    await world.store.indexer.drain(world.workspace)
    assert world.repository.move_ref("refs/heads/more", world.repository.refs()["refs/heads/more"], None)
    await world.store.catch_up(world.workspace)


async def _lose_another(world: World, start: str) -> None:
    push(world, "other", world.node("Other", content="apple"), parent=start)
    await world.store.catch_up(world.workspace)
    await world.store.indexer.drain(world.workspace)
    assert world.repository.move_ref("refs/heads/other", world.repository.refs()["refs/heads/other"], None)
    await world.store.catch_up(world.workspace)


async def _come_back_beside_another(world: World, start: str) -> None:
    side = await _only_child(world)
    await _lose_another(world, start)
    assert world.repository.move_ref("refs/heads/back", None, side)
    await world.store.catch_up(world.workspace)


async def _rebuild(world: World, _: str) -> None:
    await world.store.rebuild(world.workspace)


async def _only_child(world: World) -> str:
    """The last commit of the one line that forked off."""
    async with world.store.database.connection() as conn:
        cursor = await conn.execute(
            "select commit_id from mirror.commit join mirror.line l using (line_id)"
            " where parent_line is not null and seq = tip_seq"
        )
        (row,) = await cursor.fetchall()
    return str(row[0])


MEANWHILE = [_index, _come_back, _grow, _lose_another, _come_back_beside_another, _rebuild]


@pytest.mark.requirement("STORE-4")
@pytest.mark.parametrize("indexed", [0, 2, 3])
@pytest.mark.parametrize("meanwhile", MEANWHILE)
async def test_what_happens_while_texts_are_read_for_a_collection_counts(
    world: World, monkeypatch: pytest.MonkeyPatch, indexed: int, meanwhile: Callable[[World, str], Awaitable[None]]
) -> None:
    start = await _lose_words(world, indexed)
    bring_to = Tally.bring_to
    calls = []

    async def then_more(tally: Tally, conn: Connection, versions: set[int]) -> None:
        await bring_to(tally, conn, versions)
        calls.append(len(versions))
        if len(calls) == 1:
            await meanwhile(world, start)

    monkeypatch.setattr(Tally, "bring_to", then_more)
    await world.store.upkeep.tidy()
    assert calls
    assert await differences(world.store, world.workspace) == []


# --- what is left behind ---------------------------------------------------------------------------------------------


async def test_holds_of_sessions_that_never_came_to_be_are_released(world: World) -> None:
    """At the second look: a session that is being opened has its hold before it has its row."""
    session, head = await world.open(), await world.head()
    ghost = f"{KEEP_PREFIX}{new_id()}"
    assert world.repository.move_ref(ghost, None, head)
    await world.store.upkeep.tidy()
    assert ghost in world.repository.refs()
    await world.store.upkeep.tidy()
    refs = world.repository.refs()
    assert ghost not in refs
    assert f"{KEEP_PREFIX}{session}" in refs


async def test_a_session_whose_branch_is_gone_expires_and_lets_go_of_its_line(world: World) -> None:
    start = await world.put(world.node("Start"))
    await world.put(world.node("Onwards"))
    aside = push(world, "side", world.node("Aside"), parent=start)
    await world.store.catch_up(world.workspace)
    session = await world.open("side")
    assert world.repository.move_ref("refs/heads/side", aside, None)
    await world.store.catch_up(world.workspace)
    assert (await session_of(world, session)).state == "detached"
    await world.store.upkeep.tidy()
    commits = "select from mirror.commit where commit_id = %s"
    assert await run(world.store, commits, aside) == 1
    await run(world.store, "update work.session set used_at = used_at - ttl - interval '1 second'")
    await world.store.upkeep.tidy()
    assert (await session_of(world, session)).state == "expired"
    assert await run(world.store, commits, aside) == 0
    assert f"{KEEP_PREFIX}{session}" not in world.repository.refs()
    assert await differences(world.store, world.workspace) == []


async def test_commits_whose_refs_are_not_mirrored_yet_are_not_collected(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = await world.put(world.node("Start"))
    await world.put(world.node("Onwards"))
    aside = push(world, "side", world.node("Aside"), parent=start)

    async def cut_off(*_: object) -> None:
        raise IndexUnavailableError("cut off between the commits and the refs")

    with monkeypatch.context() as patched:
        patched.setattr(catchup, "follow_refs", cut_off)
        with pytest.raises(IndexUnavailableError):
            await world.store.catch_up(world.workspace)
    await world.store.upkeep.tidy()
    assert await run(world.store, "select from mirror.commit where commit_id = %s", aside) == 1
    await world.store.catch_up(world.workspace)
    assert await differences(world.store, world.workspace) == []


async def test_views_of_closed_sessions_go(world: World) -> None:
    session = await world.open()
    insert = "insert into work.view (workspace_id, scope, name) values (%s, %s, 'v')"
    await run(world.store, insert, world.workspace, session)
    await run(world.store, insert, world.workspace, "refs/heads/main")
    await world.store.upkeep.tidy()
    assert await run(world.store, "select from work.view") == 2
    await run(world.store, "update work.session set state = 'discarded' where session_id = %s", session)
    await world.store.upkeep.tidy()
    assert await run(world.store, "select from work.view") == 1


# --- the background --------------------------------------------------------------------------------------------------


async def test_a_stop_waits_for_a_repack(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def slow(_: object) -> MaintenanceReport:
        begun.set()
        assert may_end.wait(DEADLINE)
        ended.set()
        return MaintenanceReport(1, 1, repacked=True, commit_graph=True)

    monkeypatch.setattr(upkeep, "maintain", slow)
    monkeypatch.setattr(upkeep, "PACK_LIMIT", 0)
    world.store.upkeep.notice(world.workspace)
    assert await asyncio.to_thread(begun.wait, DEADLINE)
    stopping = asyncio.create_task(world.store.upkeep.stop())
    asyncio.get_running_loop().call_soon(may_end.set)
    await stopping
    assert ended.is_set()


async def test_a_stop_ends_the_background_also_when_its_first_cancellation_gets_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.store.upkeep.stop()
    begun = asyncio.Event()

    async def deaf() -> int:
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return 0

    monkeypatch.setattr(world.store.upkeep, "tidy", deaf)
    monkeypatch.setattr(shield, "_CANCEL_AGAIN", 0.01)
    world.store.upkeep.start()
    await begun.wait()
    await asyncio.wait_for(world.store.upkeep.stop(), DEADLINE)


@pytest.mark.parametrize("failure", [OSError("no"), RuntimeError("no"), ValueError("no")])
async def test_repacking_and_tidying_go_on_whatever_they_meet(
    world: World, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    calls: dict[str, int] = {"count": 0, "tidy": 0}
    twice = asyncio.Event()

    def failing(key: str) -> None:
        calls[key] += 1
        if min(calls.values()) > 1:
            loop.call_soon_threadsafe(twice.set)
        if calls[key] == 1:
            raise failure

    def count(_: object) -> int:
        failing("count")
        return 0

    async def tidy() -> int:
        failing("tidy")
        world.store.upkeep.notice(world.workspace)
        return 0

    loop = asyncio.get_running_loop()
    await world.store.upkeep.stop()
    monkeypatch.setattr(upkeep, "count_packs", count)
    monkeypatch.setattr(upkeep, "_PERIOD", 0.0)
    monkeypatch.setattr(world.store.upkeep, "tidy", tidy)
    world.store.upkeep.start()
    await asyncio.wait_for(twice.wait(), DEADLINE)
    await world.store.upkeep.stop()
