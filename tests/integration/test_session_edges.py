"""Edge cases of sessions: the author of a commit, its tag, expiry, id prefixes, and ids of something else."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from integration.pushes import rows, run
from integration.worlds import World
from memotree_storage.concurrency.locks import KeyedLocks
from memotree_storage.git.repository import GitRepository
from memotree_storage.model.node import Node
from memotree_storage.model.workspace import KEEP_PREFIX
from memotree_storage.postgres import sessions, staging
from memotree_storage.postgres.sessions import SessionClosedError, SessionNotFoundError
from memotree_storage.postgres.staging import Edit

from memotree.canvas import NodeOperations
from memotree.request.lookup import AmbiguousIdError, InvalidIdError
from memotree.v1 import node_service_pb2, types_pb2, workspace_service_pb2
from memotree.v1 import session_service_pb2 as sessions_pb
from memotree.workspaces import WorkspaceOperations

pytestmark = pytest.mark.own_store

DEADLINE = 60.0


def commit_of(world: World, session_id: str, **fields: Any) -> sessions_pb.CommitChangesRequest:
    return sessions_pb.CommitChangesRequest(
        workspace=world.workspace, session_id=session_id, message="Change something", **fields
    )


async def read(world: World, session_id: str) -> None:
    """Read the nodes of a session."""
    request = node_service_pb2.ListChildrenRequest(
        workspace=world.workspace, revision=session_id, archive=world.archive.id
    )
    await NodeOperations(world.store, world.pages, world.limits).list_children(request)


@pytest.mark.requirement("CANVAS-6")
async def test_an_author_with_a_time_alone_is_the_agent_of_the_session(world: World) -> None:
    session_id = await world.open(agent="gardener")
    when = datetime(2021, 5, 4, tzinfo=UTC)
    stamp = Timestamp()
    stamp.FromDatetime(when)
    for author in (types_pb2.CommitAuthor(timestamp=stamp), types_pb2.CommitAuthor(email="g@example.org")):
        await world.stage(session_id, world.node())
        made = world.repository.commit_info(await world.commit(session_id, author=author)).author
        assert made.name == "gardener"
        assert made.email == (author.email or world.limits.author_email)
        assert made.when == when or not author.HasField("timestamp")


@pytest.mark.requirement("CANVAS-6")
async def test_a_tag_made_by_someone_else_at_the_same_moment_is_not_reported_as_made(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = await world.open()
    await world.stage(session_id, world.node())
    move = GitRepository.move_ref

    def race(repository: GitRepository, ref: str, old: str | None, new: str | None) -> bool:
        if ref == "refs/tags/v1":
            move(repository, ref, None, repository.refs()["refs/heads/main"])
        return move(repository, ref, old, new)

    monkeypatch.setattr(GitRepository, "move_ref", race)
    found = await world.sessions.commit_changes(commit_of(world, session_id, create_tag=True, tag_name="v1"))
    assert found.tag_name == ""
    assert len(found.warnings) == 1


@pytest.mark.requirement("CANVAS-6", "CANVAS-8")
@pytest.mark.parametrize("taken", [False, True])
async def test_a_repeated_commit_returns_its_tag_and_makes_it_if_it_is_missing(world: World, *, taken: bool) -> None:
    session_id = await world.open()
    await world.stage(session_id, world.node())
    request = commit_of(world, session_id, create_tag=True, tag_name="v1", request_id="r-1")
    first = await world.sessions.commit_changes(request)
    async with world.store.database.transaction() as conn:  # as if the call had been interrupted before its end
        await conn.execute("delete from work.request where request_id = 'r-1'")
        await conn.execute("delete from mirror.ref where name = 'refs/tags/v1'")
    refs = world.repository.refs()
    world.repository.move_ref("refs/tags/v1", refs["refs/tags/v1"], None)
    if taken:
        parent = world.repository.commit_info(first.commit_id).parents[0]
        world.repository.move_ref("refs/tags/v1", None, parent)
    again = await world.sessions.commit_changes(request)
    assert (again.commit_id, again.tag_name) == (first.commit_id, "" if taken else "v1")
    assert bool(again.warnings) is taken
    assert world.repository.commit_info(world.repository.refs()["refs/tags/v1"]).commit_id == (
        parent if taken else first.commit_id
    )


async def read_archives(world: World, session_id: str) -> None:
    """Read the archives of a session."""
    request = workspace_service_pb2.ListArchivesRequest(workspace=world.workspace, revision=session_id)
    await WorkspaceOperations(world.store, world.pages, world.limits).list_archives(request)


@pytest.mark.requirement("CANVAS-15")
async def test_reading_a_session_keeps_it_alive_until_it_expires_and_writes_nothing_if_it_was_just_used(
    world: World,
) -> None:
    request = sessions_pb.GetSessionRequest(workspace=world.workspace, session_id=await world.open())
    for reading in (read, read_archives):
        await _age(world, request.session_id, 0.9)
        await reading(world, request.session_id)
        expires = (await world.sessions.get_session(request)).session.expire_time.ToDatetime(UTC)
        assert expires > datetime.now(UTC) + world.limits.session_ttl - timedelta(minutes=1)
    version = "select xmin::text from work.session where session_id = %s"
    before = await rows(world.store, version, request.session_id)
    await read(world, request.session_id)
    assert await rows(world.store, version, request.session_id) == before
    await _age(world, request.session_id, 2)
    await read(world, request.session_id)
    found = (await world.sessions.get_session(request)).session
    assert found.state == sessions_pb.SESSION_STATE_EXPIRED, "reading does not bring it back"


async def _age(world: World, session_id: str, lives: float) -> None:
    aged = "update work.session set used_at = now() - ttl * %s where session_id = %s"
    assert await run(world.store, aged, lives, session_id) == 1


@pytest.mark.requirement("CANVAS-15")
async def test_changes_can_be_discarded_despite_a_conflict_of_other_changes(world: World) -> None:
    parent, other, third = world.node("Parent"), world.node("Other"), world.node("Third")
    await world.put(parent)
    session_id = await world.open()
    await world.stage(session_id, world.node("Child", parent=parent), other, third)
    await world.put(delete=[parent])
    await world.commit(session_id, specific_nodes=[third.id])  # its base has no parent for the child any more
    found = await world.sessions.discard_changes(
        sessions_pb.DiscardChangesRequest(workspace=world.workspace, session_id=session_id, node_ids=[other.id])
    )
    assert found.session.change_count == 1


@pytest.mark.requirement("CANVAS-13")
async def test_a_staged_change_is_named_by_four_characters_or_more_and_candidates_are_listed(world: World) -> None:
    session_id = await world.open()
    twins = [Node(f"abcd{tail * 12}", world.archive.id, None, "a0", title=f"Twin {tail}") for tail in "12"]
    await world.stage(session_id, *twins)
    fields: dict[str, Any] = {"workspace": world.workspace, "session_id": session_id}
    with pytest.raises(InvalidIdError):
        await world.sessions.discard_changes(sessions_pb.DiscardChangesRequest(**fields, node_ids=["abc"]))
    with pytest.raises(AmbiguousIdError) as caught:
        await world.sessions.discard_changes(sessions_pb.DiscardChangesRequest(**fields, node_ids=["abcd"]))
    assert [node.entry_id for node in caught.value.nodes] == [twin.id for twin in twins]
    with pytest.raises(InvalidIdError) as refused:
        await world.commit(session_id, specific_nodes=["abc"])
    assert refused.value.violations[0].field == "specific_nodes[0]"
    await world.commit(session_id, specific_nodes=["abcd1", "abcd2"])


@pytest.mark.requirement("CANVAS-13", "CANVAS-8")
async def test_a_repeated_commit_gives_its_first_answer_although_its_choice_is_ambiguous_by_now(world: World) -> None:
    session_id = await world.open()
    first, *later = [Node(f"abcd{tail * 12}", world.archive.id, None, "a0", title=f"Twin {tail}") for tail in "123"]
    await world.stage(session_id, first)
    request = commit_of(world, session_id, specific_nodes=["abcd"], request_id="r-1")
    made = await world.sessions.commit_changes(request)
    async with world.store.database.transaction() as conn:  # as if the call had been cut off before its end
        await conn.execute("delete from work.request where request_id = 'r-1'")
    await world.stage(session_id, *later)
    assert (await world.sessions.commit_changes(request)).commit_id == made.commit_id


@pytest.mark.requirement("CANVAS-13", "CANVAS-15")
async def test_a_choice_is_looked_up_in_an_open_session_of_the_workspace_alone(world: World) -> None:
    other = await World.create(world.store, world.pages, world.limits)
    session_id = await other.open()
    twins = [Node(f"abcd{tail * 12}", other.archive.id, None, "a0", title=f"Secret {tail}") for tail in "12"]
    await other.stage(session_id, *twins)
    for text in ("abcd", "abc"):
        with pytest.raises(SessionNotFoundError):
            await world.commit(session_id, specific_nodes=[text])
    await other.sessions.discard_session(
        sessions_pb.DiscardSessionRequest(workspace=other.workspace, session_id=session_id)
    )
    with pytest.raises(SessionClosedError):
        await other.commit(session_id, specific_nodes=["abc"])


@pytest.mark.requirement("STORE-8")
async def test_a_staged_change_has_each_of_its_tools_and_reasons_once(world: World) -> None:
    """So an agent that edits a node all day does not make its row long."""
    (node,) = world.nodes(1)
    session_id = await world.open()
    for number in range(3):
        async with world.store.database.transaction() as conn:
            session = await sessions.hold_session(conn, world.workspace, session_id)
            edit = Edit(replace(node, title=f"Title {number}"), None, f"Reason {number % 2}", "UpdateNode")
            await staging.stage(conn, session, [edit])
            (row,) = await staging.staged(conn, session_id)
    assert row.tools == ["UpdateNode"]
    assert row.messages == ["Reason 0", "Reason 1"]


@pytest.mark.requirement("STORE-8")
async def test_the_id_of_a_workspace_given_as_a_session_blocks_nobody_and_waits_for_no_lock(world: World) -> None:
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(SessionNotFoundError):
            await world.commit(world.workspace)
        assert await world.put(world.node())
    other = await World.create(world.store, world.pages, world.limits)
    request = sessions_pb.DiscardSessionRequest(workspace=world.workspace, session_id=world.workspace)
    for kind in ("joins", "workspaces"):
        locks: KeyedLocks = getattr(world.store.locks, kind)
        async with locks.of(world.workspace), asyncio.timeout(DEADLINE):
            for call in (world.sessions.discard_session(request), other.commit(world.workspace)):
                with pytest.raises(SessionNotFoundError):
                    await call


@pytest.mark.requirement("STORE-8")
async def test_a_call_with_a_session_of_another_workspace_waits_for_no_call_of_that_session(world: World) -> None:
    other = await World.create(world.store, world.pages, world.limits)
    theirs = await other.open()
    rebase = sessions_pb.RebaseSessionRequest(workspace=world.workspace, session_id=theirs)
    async with world.store.locks.sessions.of(theirs), asyncio.timeout(DEADLINE):
        for call in (world.commit(theirs, request_id="once"), world.sessions.rebase_session(rebase)):
            with pytest.raises(SessionNotFoundError):
                await call
        assert await world.put(world.node())


@pytest.mark.requirement("STORE-8")
async def test_writers_that_wait_for_a_workspace_hold_no_connection(world: World) -> None:
    waiting = 20  # more than there are connections
    opened = [await world.open() for _ in range(waiting)]
    for session_id in opened:
        await world.stage(session_id, world.node())
    lock = world.store.locks.workspaces.of(world.workspace)
    async with lock, asyncio.timeout(60):
        commits = [asyncio.create_task(world.commit(session_id)) for session_id in opened]
        queues = world.store.commits._queues
        while len(queues.get(world.workspace, ())) < waiting:  # noqa: ASYNC110 - a queue tells nobody who waits
            await asyncio.sleep(0.005)
        await world.head()
    assert len(set(await asyncio.gather(*commits))) == waiting


# --- The refs that protect base commits -------------------------------------------------------------------------------


@pytest.mark.requirement("CANVAS-8")
@pytest.mark.parametrize("is_discarded", [False, True])
async def test_late_moves_in_reverse_order_protect_the_last_commit_of_a_session_that_is_open_and_none_else(
    world: World, monkeypatch: pytest.MonkeyPatch, is_discarded: bool
) -> None:
    late = list[Coroutine[Any, Any, None]]()
    monkeypatch.setattr(world.store.background, "start", late.append)
    session_id = await world.open()
    for number in range(2):
        await world.stage(session_id, world.node(f"Node {number}"))
        head = await world.commit(session_id)
    if is_discarded:
        await world.sessions.discard_session(
            sessions_pb.DiscardSessionRequest(workspace=world.workspace, session_id=session_id)
        )
    while late:
        await late.pop()
    assert world.repository.ref(KEEP_PREFIX + session_id) == (None if is_discarded else head)
