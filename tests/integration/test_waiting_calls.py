"""Calls that wait for a workspace hold no connection to PostgreSQL: calls of other workspaces need them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from integration.pushes import differences, push, rows
from integration.worlds import World
from memotree_storage import store
from memotree_storage.concurrency.locks import TooManyVerificationsError
from memotree_storage.maintenance.line_collection import collect_unreachable_lines
from memotree_storage.postgres import registry
from memotree_storage.postgres.database import Database
from memotree_storage.verify import verify
from memotree_storage.verify.points import check_index

from memotree.canvas import NodeOperations
from memotree.v1 import node_service_pb2, session_service_pb2, workspace_service_pb2
from memotree.workspaces import WorkspaceOperations

pytestmark = [pytest.mark.requirement("STORE-8"), pytest.mark.own_store]

CALLS = 4
"""More than the connections that are free while a call holds the workspace."""
Call = Callable[[], Awaitable[Any]]


@pytest.fixture
async def small(world: World, database_url: str) -> AsyncIterator[World]:
    """The world with a pool of three connections."""
    database = Database(database_url, min_size=3, max_size=3, patience=timedelta(seconds=10))
    await database.open()
    many, world.store.database = world.store.database, database
    try:
        yield world
    finally:
        world.store.database = many
        await database.close()


@asynccontextmanager
async def held(world: World) -> AsyncIterator[None]:
    """Hold the workspace as a long catch-up does: its lock, and its row on a connection."""
    async with world.store.locks.workspaces.of(world.workspace), world.store.database.transaction() as conn:
        await registry.lock_workspace(conn, world.workspace)
        yield


async def somebody_waits(lock: asyncio.Lock, count: int = 1) -> None:
    """Return when so many tasks wait for a lock."""
    while len(lock._waiters or ()) < count:  # noqa: ASYNC110 - a lock tells nobody who waits
        await asyncio.sleep(0.005)


async def wait_without_connections(world: World, calls: list[Call], at_once: int = CALLS) -> list[Any]:
    """Begin calls while the workspace is held; when all or ``at_once`` of them wait, another call is answered.

    Returns their results.
    """
    async with held(world):
        waiting = [asyncio.ensure_future(call()) for call in calls]
        async with asyncio.timeout(60):
            await somebody_waits(world.store.locks.workspaces.of(world.workspace), at_once)
        assert not any(task.done() for task in waiting)
        assert await world.head()
    return await asyncio.gather(*waiting)


async def test_verifications_that_wait_for_a_workspace_hold_no_connection(small: World) -> None:
    calls: list[Call] = [lambda: differences(small.store, small.workspace)] * CALLS
    assert await wait_without_connections(small, calls, at_once=2) == [[]] * CALLS


async def test_a_second_look_at_the_index_waits_without_a_connection(small: World) -> None:
    await small.put(small.node())
    await small.store.indexer.current(small.workspace)
    await small.store.index.delete(small.workspace)

    async def compare() -> int:
        return len([found async for found in check_index(small.store, small.workspace)])

    assert min(await wait_without_connections(small, [compare] * CALLS)) > 0


async def test_a_repeated_creation_waits_without_a_connection_for_what_was_pushed(small: World) -> None:
    operations = WorkspaceOperations(small.store, small.pages, small.limits)
    request = workspace_service_pb2.CreateWorkspaceRequest(name="orchard", request_id="once")
    made = await operations.create_workspace(request)
    orchard = replace(small, workspace=made.workspace.id)
    push(orchard, "main", orchard.archive)
    repeated = await wait_without_connections(orchard, [lambda: operations.create_workspace(request)] * CALLS)
    assert [each.workspace.id for each in repeated] == [made.workspace.id] * CALLS


def creating(world: World, session_id: str) -> Call:
    """A call that stages a new node in a session."""
    nodes = NodeOperations(world.store, world.pages, world.limits)
    request = node_service_pb2.CreateNodeRequest(
        workspace=world.workspace, session_id=session_id, archive_id=world.archive.id, title="A node"
    )
    return lambda: nodes.create_node(request)


async def test_edits_after_a_commit_that_was_cut_off_wait_without_a_connection(small: World) -> None:
    opened = [await small.open() for _ in range(CALLS)]
    small.store.unsettled.update(dict.fromkeys(opened, small.workspace))
    push(small, "main", small.node("Pushed"))
    await wait_without_connections(small, [creating(small, session_id) for session_id in opened])
    assert small.store.unsettled == {}


async def test_an_edit_that_waits_for_a_commit_follows_git_if_the_commit_is_cut_off(world: World) -> None:
    session_id = await world.open()
    lock = world.store.locks.sessions.of(session_id)
    async with lock:
        edit = asyncio.ensure_future(creating(world, session_id)())
        await somebody_waits(lock)
        world.store.unsettled[session_id] = world.workspace
    await edit
    assert world.store.unsettled == {}


async def test_unreachable_lines_are_collected_without_a_connection_that_waits(small: World) -> None:
    await small.put(small.node("On main"))
    small.repository.move_ref("refs/heads/side", None, await small.head())
    await small.put(small.node("On the side"), branch="side")
    await small.put(small.node("Later on main"))
    small.repository.move_ref("refs/heads/side", await small.head("side"), None)
    await small.store.catch_up(small.workspace)

    async def collect() -> list[int]:
        lock = small.store.locks.workspaces.of(small.workspace)
        return await collect_unreachable_lines(small.store.database, small.workspace, small.repository, lock)

    collected = await wait_without_connections(small, [collect] * CALLS)
    assert sorted(map(len, collected)) == [0, 0, 0, 1]


async def test_verifications_whose_readers_are_slow_leave_connections_to_others(small: World) -> None:
    begun, goes_on = asyncio.Semaphore(0), asyncio.Event()

    async def read_slowly() -> None:
        async for _ in verify(small.store, small.workspace):
            begun.release()
            await goes_on.wait()

    running = [asyncio.ensure_future(read_slowly()) for _ in range(2 * CALLS)]
    async with asyncio.timeout(60):
        await begun.acquire()
        await begun.acquire()
    assert not any(task.done() for task in running)
    assert await small.head()
    goes_on.set()
    await asyncio.gather(*running)


async def test_only_a_few_verifications_wait_for_others(small: World) -> None:
    """So they take no more than their share of the calls that may run."""
    async with held(small):
        calls = [asyncio.ensure_future(differences(small.store, small.workspace)) for _ in range(20)]
        refused, _ = await asyncio.wait(calls, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        assert {type(call.exception()) for call in refused} == {TooManyVerificationsError}
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(one, TooManyVerificationsError) for one in ended] == [False] * 18 + [True] * 2
    assert await differences(small.store, small.workspace) == []


async def test_a_rebuild_holds_no_session_while_it_mirrors_the_history(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = await world.put(world.node("A node"))
    world.repository.move_ref("refs/heads/side", None, side)
    session_id = await world.open("side")
    world.repository.move_ref("refs/heads/side", side, None)  # the rebuild detaches the session
    request = session_service_pb2.DiscardSessionRequest(workspace=world.workspace, session_id=session_id)
    real = store.replay_in_transaction

    async def replay(*arguments: Any) -> None:
        async with asyncio.timeout(60):
            await world.sessions.discard_session(request)
        await real(*arguments)

    monkeypatch.setattr(store, "replay_in_transaction", replay)
    await world.store.rebuild(world.workspace)
    assert await differences(world.store, world.workspace) == []


async def test_consecutive_calls_share_one_connection(small: World) -> None:
    """The pool prefers the connection that was used last."""
    used = {tuple(await rows(small.store, "select pg_backend_pid()")) for _ in range(6)}
    assert len(used) == 1
