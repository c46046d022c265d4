"""Calls that are cancelled or wait for each other: Git and the rows agree afterwards, and other calls go on."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from integration.pushes import OpenAgain, differences, push, rows, somebody_waits
from integration.worlds import World
from memotree_storage.commit.direct_import import ImportRacedError, commit_entries
from memotree_storage.commit.refs import BranchNotFoundError, RefMovedError
from memotree_storage.commit.session_commit import CommitOrder, NothingToCommitError, commit_session
from memotree_storage.concurrency.background import BackgroundTasks
from memotree_storage.concurrency.cancellation import CommitPoint, finish_past_commit_point, retry_until_done
from memotree_storage.concurrency.threads import _THREADS, in_store_thread
from memotree_storage.git.repository import GitRepository
from memotree_storage.git.workspaces import Repositories
from memotree_storage.mirror.catch_up import is_behind
from memotree_storage.model.workspace import KEEP_PREFIX, WorkspaceNotFoundError, service_signature
from memotree_storage.postgres import registry, sessions
from memotree_storage.postgres.database import (
    Database,
    DatabaseUnavailableError,
    ServerBusyError,
    TransactionRacedError,
)

from memotree.history import HistoryOperations
from memotree.v1 import history_service_pb2 as history_pb
from memotree.v1 import session_service_pb2 as sessions_pb
from memotree.v1 import workspace_service_pb2 as workspaces_pb
from memotree.workspaces import WorkspaceOperations

pytestmark = pytest.mark.own_store

DEADLINE = 60.0


@dataclass
class Gate:
    """Stops a thread at one place until the gate is opened."""

    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)
    passed: threading.Event = field(default_factory=threading.Event)
    closed: bool = False

    def close(self) -> None:
        """Stop the next thread that reaches the gate."""
        for event in (self.reached, self.opened, self.passed):
            event.clear()
        self.closed = True

    def pass_through(self) -> None:
        """Called in a thread."""
        if self.closed:
            self.closed = False
            self.reached.set()
            assert self.opened.wait(DEADLINE)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """A gate before each effect on Git; a closed gate stops the next one."""
    gate = Gate()
    for owner, name in (
        (GitRepository, "move_ref"),
        (Repositories, "create"),
        (Repositories, "update"),
        (Repositories, "discard"),
    ):
        monkeypatch.setattr(owner, name, _gated(gate, getattr(owner, name)))
    yield gate
    gate.opened.set()


def _gated(gate: Gate, effect: Callable[..., Any]) -> Callable[..., Any]:
    def gated(*arguments: Any, **named: Any) -> Any:
        gate.pass_through()
        try:
            return effect(*arguments, **named)
        finally:
            gate.passed.set()

    return gated


@pytest.fixture
def workspaces(world: World) -> WorkspaceOperations:
    return WorkspaceOperations(world.store, world.pages, world.limits)


async def cut_off(gate: Gate, call: Coroutine[Any, Any, Any]) -> None:
    """Cancel a call while Git changes, and again while it ends."""
    gate.close()
    task = asyncio.create_task(call)
    assert await asyncio.to_thread(gate.reached.wait, DEADLINE)
    task.cancel()
    await asyncio.wait([task], timeout=0.05)
    task.cancel()
    gate.opened.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, DEADLINE)
    assert await asyncio.to_thread(gate.passed.wait, DEADLINE)


async def agrees(world: World) -> bool:
    async with world.store.database.connection() as conn:
        return not await is_behind(conn, world.workspace, world.repository)


@pytest.mark.requirement("CANVAS-8")
async def test_a_cancelled_creation_or_deletion_of_a_branch_or_tag_is_mirrored(
    world: World, history: HistoryOperations, gate: Gate
) -> None:
    fields = {"workspace": world.workspace, "name": "side"}
    for call in (
        history.create_branch(history_pb.CreateBranchRequest(**fields)),
        history.delete_branch(history_pb.DeleteBranchRequest(**fields)),
        history.create_tag(history_pb.CreateTagRequest(**fields)),
        history.delete_tag(history_pb.DeleteTagRequest(**fields)),
    ):
        await cut_off(gate, call)
        assert await agrees(world)
    assert [name for name in world.repository.refs() if name.endswith("/side")] == []


@pytest.mark.requirement("CANVAS-8")
async def test_a_ref_whose_row_could_not_be_written_is_mirrored_soon_after(
    world: World, history: HistoryOperations, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any) -> None:
        monkeypatch.undo()
        raise DatabaseUnavailableError("gone")

    monkeypatch.setattr("memotree_storage.postgres.refs.put_ref", refuse)
    with pytest.raises(DatabaseUnavailableError):
        await history.create_branch(history_pb.CreateBranchRequest(workspace=world.workspace, name="side"))
    await world.sessions.finish()
    assert await agrees(world)
    assert "refs/heads/side" in world.repository.refs()


@pytest.mark.requirement("CANVAS-8")
async def test_a_session_cancelled_while_it_is_opened_closed_or_rebased_protects_its_own_base(
    world: World, gate: Gate
) -> None:
    request = sessions_pb.OpenSessionRequest(workspace=world.workspace, agent="one")
    await cut_off(gate, world.sessions.open_session(request))
    found = await rows(
        world.store, "select session_id, base_commit from work.session where agent = 'one' and state = 'open'"
    )
    held = world.repository.refs()
    assert [held.get(KEEP_PREFIX + session_id) for session_id, _ in found] == [base for _, base in found]
    session_id = found[0][0]
    await world.put(world.node("Other"))
    fields = {"workspace": world.workspace, "session_id": session_id}
    for call in (
        world.sessions.rebase_session(sessions_pb.RebaseSessionRequest(**fields)),
        world.sessions.discard_session(sessions_pb.DiscardSessionRequest(**fields)),
    ):
        await cut_off(gate, call)
        [(state, base)] = await rows(
            world.store, "select state, base_commit from work.session where session_id = %s", session_id
        )
        kept = world.repository.refs().get(KEEP_PREFIX + session_id)
        assert kept == (base if state == "open" else None)
        assert base == await world.head()
    assert state == "discarded"


@pytest.mark.requirement("CANVAS-8")
async def test_a_cancelled_creation_renaming_or_deletion_of_a_workspace_leaves_a_complete_one_or_none(
    world: World, workspaces: WorkspaceOperations, gate: Gate
) -> None:
    create = workspaces_pb.CreateWorkspaceRequest(name="cut", request_id="r-1")
    await cut_off(gate, workspaces.create_workspace(create))
    again = await workspaces.create_workspace(create)
    assert sorted(world.store.repositories.ids()) == sorted([world.workspace, again.workspace.id])
    rename = workspaces_pb.UpdateWorkspaceRequest(workspace="cut", name="paste")
    delete = workspaces_pb.DeleteWorkspaceRequest(workspace="paste", confirm_name="paste")
    for call, left in (
        (workspaces.update_workspace(rename), [("paste",)]),
        (workspaces.delete_workspace(delete), []),
    ):
        await cut_off(gate, call)
        query = "select name from mirror.workspace where workspace_id = %s"
        assert await rows(world.store, query, again.workspace.id) == left
    assert world.store.repositories.ids() == [world.workspace]


@pytest.mark.requirement("CANVAS-8")
async def test_a_creation_that_fails_after_the_repository_was_made_leaves_no_workspace_and_a_repeated_one_the_first(
    world: World, workspaces: WorkspaceOperations, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any) -> None:
        monkeypatch.undo()
        raise DatabaseUnavailableError("gone")

    monkeypatch.setattr("memotree.request.idempotency.end_request", refuse)
    with pytest.raises(DatabaseUnavailableError):
        await workspaces.create_workspace(workspaces_pb.CreateWorkspaceRequest(name="half", request_id="r-1"))
    await world.sessions.finish()
    assert world.store.repositories.ids() == [world.workspace]
    with pytest.raises(WorkspaceNotFoundError):
        await workspaces.get_workspace(workspaces_pb.GetWorkspaceRequest(workspace="half"))
    create = workspaces_pb.CreateWorkspaceRequest(name="first", request_id="r-2")
    made = await workspaces.create_workspace(create)
    async with world.store.database.transaction() as conn:  # as if it could not be registered at a start
        await conn.execute("delete from mirror.workspace where workspace_id = %s", (made.workspace.id,))
    with pytest.raises(WorkspaceNotFoundError):
        await workspaces.create_workspace(create)
    await world.sessions.finish()
    assert made.workspace.id in world.store.repositories.ids(), "the repository of the first call is left"


@pytest.mark.requirement("CANVAS-8")
@pytest.mark.parametrize("what", ["delete", "import"])
async def test_a_branch_that_somebody_moves_at_the_same_moment_is_mirrored_although_the_call_fails(
    world: World, history: HistoryOperations, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    await history.create_branch(history_pb.CreateBranchRequest(workspace=world.workspace, name="side"))
    move, pushed = GitRepository.move_ref, list[str]()

    def race(repository: GitRepository, ref: str, old: str | None, new: str | None) -> bool:
        monkeypatch.undo()
        pushed.append(push(world, "side", world.node("Pushed")))
        return move(repository, ref, old, new)

    monkeypatch.setattr(GitRepository, "move_ref", race)
    if what == "delete":
        with pytest.raises(RefMovedError):
            await history.delete_branch(history_pb.DeleteBranchRequest(workspace=world.workspace, name="side"))
    else:
        with pytest.raises(ImportRacedError):
            await commit_entries(world.store, world.workspace, "side", [world.node()], "Import")
    await world.sessions.finish()
    assert [await world.head("side")] == pushed


@pytest.mark.requirement("CANVAS-8", "STORE-1")
async def test_an_import_and_a_commit_of_the_library_that_are_cut_off_are_mirrored_and_told_to_the_index(
    world: World, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported, node = world.node("Imported"), world.node("Cut off")
    await cut_off(gate, commit_entries(world.store, world.workspace, "main", [imported], "Import"))
    assert await agrees(world)
    session_id = await world.open()
    await world.stage(session_id, node)
    noticed: list[str] = []
    monkeypatch.setattr(world.store.indexer, "notice", noticed.append)
    order = CommitOrder("Cut it off", service_signature(), service_signature())
    await cut_off(gate, commit_session(world.store, world.workspace, session_id, order))
    assert {imported.id, node.id} <= (await world.alive(await world.head())).keys()
    assert noticed == [world.workspace]


@pytest.mark.requirement("CANVAS-8")
@pytest.mark.parametrize("freed", [False, True])
async def test_commits_that_are_cancelled_while_all_threads_are_busy_are_whole_or_not_there(
    world: World, *, freed: bool
) -> None:
    """They wait for a thread when they are cancelled, or are somewhere between two steps."""
    opened = [await world.open() for _ in range(6)]
    staged = [world.node() for _ in opened]
    for session_id, node in zip(opened, staged, strict=True):
        await world.stage(session_id, node)
    proceed = threading.Event()
    busy = [asyncio.create_task(in_store_thread(proceed.wait, DEADLINE)) for _ in range(_THREADS)]
    await asyncio.sleep(0)
    commits = [asyncio.create_task(world.commit(session_id)) for session_id in opened]
    if freed:
        proceed.set()
    for number, commit in enumerate(commits):
        await asyncio.sleep(0.01 * number)  # another step of each
        commit.cancel()
    proceed.set()
    await asyncio.gather(*busy)
    ended = await asyncio.gather(*commits, return_exceptions=True)
    assert all(isinstance(each, str | asyncio.CancelledError) for each in ended)
    await world.put(world.node())
    assert await differences(world.store, world.workspace) == []
    async with world.store.database.connection() as conn:
        left = await sessions.list_sessions(conn, world.workspace, closed=False)
    for session in left:  # what was not committed still can be, and what was is nothing to commit
        with contextlib.suppress(NothingToCommitError):
            await world.commit(session.session_id)
    assert {node.id for node in staged} <= set(await world.alive(await world.head()))


@pytest.mark.requirement("STORE-1")
async def test_a_store_that_closes_waits_for_its_background_work(again: OpenAgain) -> None:
    ended = asyncio.Event()

    async def work() -> None:
        await asyncio.sleep(0.05)
        ended.set()

    async with again() as store:
        store.background.start(work())
    assert ended.is_set()


@pytest.mark.requirement("CANVAS-8")
@pytest.mark.parametrize("begins", [False, True])
async def test_work_is_cancelled_before_its_commit_point_and_finished_after_it(*, begins: bool) -> None:
    going, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work(commit_point: CommitPoint) -> None:
        commit_point.reached = begins
        going.set()
        await go_on.wait()
        ended.set()
        raise DatabaseUnavailableError("nobody listens")

    task = asyncio.create_task(finish_past_commit_point(work))
    await going.wait()
    task.cancel()
    asyncio.get_running_loop().call_later(0.01, go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set() is begins


@pytest.mark.requirement("SERVE-1")
async def test_a_graceful_stop_does_not_wait_for_an_unavailable_store() -> None:
    async def away() -> None:
        raise DatabaseUnavailableError("gone")

    background = BackgroundTasks()
    background.start(retry_until_done("a mirror is behind", away))
    await asyncio.wait_for(background.finish(grace=0.05), DEADLINE)


@pytest.mark.requirement("SERVE-1")
async def test_commits_that_wait_for_a_workspace_hold_no_connection(world: World, database_url: str) -> None:
    opened = [await world.open() for _ in range(4)]
    for session_id in opened:
        await world.stage(session_id, world.node())
    small, large = Database(database_url, min_size=1, max_size=1), world.store.database
    await small.open()
    world.store.database = small
    try:
        async with world.store.locks.workspaces.of(world.workspace), asyncio.timeout(DEADLINE):
            commits = [asyncio.create_task(world.commit(session_id)) for session_id in opened]
            while len(world.store.commits._queues.get(world.workspace, ())) < len(opened):  # noqa: ASYNC110 - as it is
                await asyncio.sleep(0.005)
            assert await world.head(), "with the only connection"
        assert len(set(await asyncio.gather(*commits))) == len(opened)
    finally:
        world.store.database = large
        await small.close()


@pytest.mark.requirement("SERVE-2")
async def test_a_server_without_a_free_connection_says_that_it_is_busy(database_url: str) -> None:
    database = Database(database_url, min_size=1, max_size=1, patience=timedelta(seconds=0.2))
    await database.open()
    try:
        async with database.connection():
            with pytest.raises(ServerBusyError):
                async with database.connection():
                    pass
    finally:
        await database.close()


@pytest.mark.requirement("STORE-2")
async def test_discarding_a_session_during_its_commit_causes_no_deadlock(world: World) -> None:
    session_id = await world.open()
    await world.stage(session_id, world.node())
    request = sessions_pb.DiscardSessionRequest(workspace=world.workspace, session_id=session_id)
    async with world.store.database.transaction() as conn:
        await sessions.hold_session(conn, world.workspace, session_id)
        discard = asyncio.create_task(world.sessions.discard_session(request))
        await somebody_waits(world.store)
        await conn.execute("update work.staged set revision = revision + 1 where session_id = %s", (session_id,))
    assert (await discard).session.change_count == 0


@pytest.mark.requirement("SERVE-2")
async def test_a_deadlock_is_reported_as_a_deadlock_and_not_as_an_outage(world: World) -> None:
    for kind in (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure):
        with pytest.raises(TransactionRacedError):
            async with world.store.database.transaction():
                raise kind


@pytest.mark.requirement("CANVAS-15")
async def test_a_session_opened_on_a_branch_that_is_being_deleted_is_refused_or_detached(
    world: World, history: HistoryOperations, gate: Gate
) -> None:
    await history.create_branch(history_pb.CreateBranchRequest(workspace=world.workspace, name="side"))
    gate.close()
    opening = asyncio.create_task(world.open("side"))  # stops after it has read the head
    assert await asyncio.to_thread(gate.reached.wait, DEADLINE)
    delete = history_pb.DeleteBranchRequest(workspace=world.workspace, name="side")
    deleting = asyncio.create_task(history.delete_branch(delete))
    await somebody_waits(world.store)
    gate.opened.set()
    session_id = await opening
    assert (await deleting).detached_sessions == 1
    [(state,)] = await rows(world.store, "select state from work.session where session_id = %s", session_id)
    assert state == "detached"
    with pytest.raises(BranchNotFoundError):
        await world.open("side")


@pytest.mark.requirement("CANVAS-15")
async def test_a_session_can_be_opened_while_the_row_of_its_branch_is_rewritten(world: World) -> None:
    async with world.store.database.transaction() as conn:
        await registry.lock_workspace(conn, world.workspace)
        await conn.execute("delete from mirror.ref where workspace_id = %s", (world.workspace,))
        opening = asyncio.create_task(world.open())
        await somebody_waits(world.store)
        commit_id = world.repository.refs()["refs/heads/main"]
        await conn.execute(
            "insert into mirror.ref values (%s, 'refs/heads/main', %s, %s)", (world.workspace, commit_id, commit_id)
        )
    assert await opening
