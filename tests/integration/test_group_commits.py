"""Commits that wait for each other are made together: one transaction, one pack, one move of the branch."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock

import psycopg
import pytest
from by_hand import read_entry
from integration.histories import branch
from integration.pushes import differences, push
from integration.statements import recorded
from integration.worlds import World
from memotree_storage.commit import group_commit, write_path
from memotree_storage.commit.group_commit import BranchBusyError
from memotree_storage.commit.rebase import ConflictError
from memotree_storage.commit.session_commit import NothingToCommitError
from memotree_storage.commit.transaction import PendingHead
from memotree_storage.concurrency.cancellation import CommitPoint
from memotree_storage.git.open_pack import GitOpenPack
from memotree_storage.git.repository import GitRepository
from memotree_storage.model.codec import encode_entry
from memotree_storage.model.node import Node
from memotree_storage.postgres import projector
from memotree_storage.postgres.database import DatabaseUnavailableError

from memotree.history import HistoryOperations
from memotree.v1 import session_service_pb2 as sessions_pb

pytestmark = [pytest.mark.requirement("CANVAS-8"), pytest.mark.own_store]

DEADLINE = 60.0


@pytest.fixture
def finished(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each pack of a group that was synced."""
    sizes: list[int] = []
    finish = GitOpenPack.finish

    def counted(pack: GitOpenPack) -> None:
        finish(pack)
        if pack._is_read:
            sizes.append(pack.size)

    monkeypatch.setattr(GitOpenPack, "finish", counted)
    return sizes


async def together(world: World, calls: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Begin calls one after the other while the workspace is held, and return their results or errors in order."""
    async with held(world) as begin:
        tasks = [await begin(call) for call in calls]
    return await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def held(world: World) -> AsyncIterator[Callable[[Coroutine[Any, Any, Any]], Awaitable[asyncio.Task[Any]]]]:
    """Hold the workspace; yields what begins a commit and returns when it waits."""
    joined = asyncio.Semaphore(0)
    join = world.store.commits.join

    def told(*arguments: Any) -> None:
        join(*arguments)
        joined.release()

    async def begin(call: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(call)
        await asyncio.wait_for(joined.acquire(), DEADLINE)
        return task

    world.store.commits.join = told  # type: ignore[method-assign]
    try:
        async with world.store.locks.workspaces.of(world.workspace):
            yield begin
    finally:
        world.store.commits.join = join  # type: ignore[method-assign]


async def staged_sessions(world: World, nodes: Sequence[Node], branch: str = "") -> list[str]:
    opened = []
    for node in nodes:
        opened.append(await world.open(branch))
        await world.stage(opened[-1], node)
    return opened


def waiting(session_id: str) -> group_commit._Member[None]:
    """A call that waits for the commit of a session."""
    return group_commit._Member(AsyncMock(), "main", session_id, CommitPoint(), writes_first=False)


def parents_of(world: World, commit_id: str, count: int) -> list[str]:
    """The first parents of a commit, that many, nearest first."""
    found = []
    for _ in range(count):
        commit_id = world.repository.commit_info(commit_id).parents[0]
        found.append(commit_id)
    return found


async def test_commits_that_wait_share_a_pack_and_stay_commits_of_their_own(world: World, finished: list[int]) -> None:
    nodes = world.nodes(8)
    sessions = await staged_sessions(world, nodes)
    before = await world.head()
    made = await together(world, [world.commit(each, f"Commit {n}") for n, each in enumerate(sessions)])
    assert len(finished) == 1
    assert world.repository.ref("refs/heads/main") == made[-1] == await world.head()
    assert parents_of(world, made[-1], 8) == [*reversed(made[:-1]), before]
    for number, commit_id in enumerate(made):
        assert world.repository.commit_info(commit_id).message.startswith(f"Commit {number}\n")
        alive = await world.alive(commit_id)
        assert [node.id in alive for node in nodes] == [place <= number for place in range(8)]
    assert await differences(world.store, world.workspace) == []


async def test_a_commit_in_a_group_sends_few_statements_of_its_own(world: World) -> None:
    """Those that all share (the workspace, the refs, the branch's head and its line, the transaction) are sent once."""
    counts = []
    for size in (2, 6):
        sessions = await staged_sessions(world, world.nodes(size))
        with recorded() as sent:
            await together(world, [world.commit(each) for each in sessions])
        counts.append(len(sent))
    of_each, shared = (counts[1] - counts[0]) // 4, counts[0] - 2 * ((counts[1] - counts[0]) // 4)
    assert of_each <= 8, "before and in the group"
    assert shared <= 4


async def test_commits_of_the_same_nodes_are_merged_in_the_order_in_which_they_came(world: World) -> None:
    node = world.node("One")
    await world.put(node)
    first, second = await world.open(), await world.open()
    await world.stage(first, replace(node, title="Another title"))
    await world.stage(second, replace(node, content="Another text."))
    made = await together(world, [world.commit(first), world.commit(second)])
    both = replace(node, title="Another title", content="Another text.")
    assert read_entry(world.repository, made[1], node.id) == encode_entry(both)
    assert await differences(world.store, world.workspace) == []


@pytest.mark.parametrize("request_ids", [False, True])
async def test_one_that_is_refused_is_rolled_back_alone(world: World, finished: list[int], request_ids: bool) -> None:
    """One that gives a request id has noted it by then; it may be sent again with the same one."""
    node = world.node("One")
    await world.put(node)
    nodes = world.nodes(3)
    first, second, third = await staged_sessions(world, nodes)
    one, other = await world.open(), await world.open()
    await world.stage(one, replace(node, content="What one says."))
    await world.stage(other, replace(node, content="What another says."))
    nothing = await world.open()
    finished.clear()
    sessions = (first, one, nothing, second, other, third)
    calls = [world.commit(each, request_id=f"r-{n}" * request_ids) for n, each in enumerate(sessions)]
    made = await together(world, calls)
    assert [type(result) for result in made] == [str, str, NothingToCommitError, str, ConflictError, str]
    assert len(finished) == 1
    assert parents_of(world, made[5], 3) == [made[3], made[1], made[0]]
    assert await world.alive(await world.head(), other) != await world.alive(await world.head())  # it is still staged
    assert await differences(world.store, world.workspace) == []
    await world.stage(nothing, world.node())
    assert isinstance(await world.commit(nothing, request_id="r-2" * request_ids), str)


async def test_after_a_push_meanwhile_all_are_made_again_on_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = world.nodes(5)
    sessions = await staged_sessions(world, nodes)
    move, pushed = GitRepository.move_ref, list[str]()

    def race(repository: GitRepository, ref: str, old: str | None, new: str | None) -> bool:
        if ref == "refs/heads/main" and not pushed:
            pushed.append("")
            pushed[0] = push(world, "main", world.node("Pushed"))
        return move(repository, ref, old, new)

    monkeypatch.setattr(GitRepository, "move_ref", race)
    made = await together(world, [world.commit(each) for each in sessions])
    assert parents_of(world, made[-1], 5) == [*reversed(made[:-1]), *pushed]
    assert await differences(world.store, world.workspace) == []


async def test_what_stands_nowhere_is_mended_by_any_commit_of_a_group(world: World) -> None:
    parent = world.node("Parent")
    child = world.node("Child", parent=parent)
    push(world, "main", child)
    await world.store.catch_up(world.workspace)
    assert await differences(world.store, world.workspace) != []
    sessions = await staged_sessions(world, [world.node(), parent, world.node()])
    made = await together(world, [world.commit(each) for each in sessions])
    assert [type(each) for each in made] == [str] * 3
    assert await differences(world.store, world.workspace) == []


async def test_a_branch_that_keeps_moving_ends_all_of_them(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = await staged_sessions(world, world.nodes(2))
    monkeypatch.setattr(GitRepository, "move_ref", lambda *_: False)
    before = await world.head()
    made = await together(world, [world.commit(each) for each in sessions])
    assert [type(each) for each in made] == [BranchBusyError] * 2
    monkeypatch.undo()
    assert await world.head() == before
    assert [type(await world.commit(each)) for each in sessions] == [str, str]
    assert await differences(world.store, world.workspace) == []


@pytest.mark.parametrize("kind", [psycopg.errors.DivisionByZero, NothingToCommitError])
async def test_one_that_fails_when_it_has_rows_leaves_none_and_the_others_their_commits(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    """A statement that fails, or a refusal, which should not come so late: each is made alone then."""
    nodes = world.nodes(4)
    sessions = await staged_sessions(world, nodes)
    project = projector.project

    async def failing(conn: Any, workspace_id: str, commit: Any, changes: Any, *rest: Any, **named: Any) -> Any:
        tip = await project(conn, workspace_id, commit, changes, *rest, **named)
        if nodes[1].id in {change.entry_id for change in changes}:
            if kind is NothingToCommitError:
                raise kind("refused")
            await conn.execute("select 1 / 0")
        return tip

    monkeypatch.setattr(projector, "project", failing)
    made = await together(world, [world.commit(each) for each in sessions])
    assert [type(each) for each in made] == [str, kind, str, str]
    assert await world.alive(made[3]) == await world.alive(await world.head())
    monkeypatch.undo()
    assert nodes[1].id not in await world.alive(await world.head())
    assert await differences(world.store, world.workspace) == []
    assert isinstance(await world.commit(sessions[1]), str)
    assert await differences(world.store, world.workspace) == []


async def test_one_that_is_refused_while_its_objects_are_written_is_left_out_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, finished: list[int]
) -> None:
    """Such as one whose folder in Git is a file that somebody pushed: it has no rows yet."""
    sessions = await staged_sessions(world, world.nodes(3))
    write, calls = GitOpenPack.write_commit, list[str]()

    def refusing(pack: GitOpenPack, draft: Any) -> Any:
        written = write(pack, draft)
        calls.append(written.commit_id)
        if len(calls) == 2:
            raise NothingToCommitError("refused")
        return written

    monkeypatch.setattr(GitOpenPack, "write_commit", refusing)
    finished.clear()
    made = await together(world, [world.commit(each) for each in sessions])
    assert [type(each) for each in made] == [str, NothingToCommitError, str]
    assert len(finished) == 1
    assert parents_of(world, made[2], 1) == [made[0]]
    assert await differences(world.store, world.workspace) == []


async def test_rows_that_could_not_be_written_follow_later(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = world.nodes(3)
    sessions = await staged_sessions(world, nodes)
    publish = write_path.PendingCommits.publish

    async def cut(pending: Any, transaction: Any) -> None:
        await publish(pending, transaction)
        monkeypatch.undo()
        raise DatabaseUnavailableError("gone")

    monkeypatch.setattr(write_path.PendingCommits, "publish", cut)
    made = await together(world, [world.commit(each, request_id=f"r-{n}") for n, each in enumerate(sessions)])
    assert [type(each) for each in made] == [DatabaseUnavailableError] * 3
    again = [await world.commit(each, request_id=f"r-{n}") for n, each in enumerate(sessions)]
    assert parents_of(world, again[-1], 2) == [again[1], again[0]]
    assert world.repository.ref("refs/heads/main") == again[-1]
    assert {node.id for node in nodes} <= set(await world.alive(await world.head()))
    assert await differences(world.store, world.workspace) == []


async def test_a_request_id_that_is_sent_twice_at_once_makes_one_commit(world: World) -> None:
    [session] = await staged_sessions(world, [world.node()])
    before = await world.head()
    made = await together(world, [world.commit(session, request_id="r-1") for _ in range(3)])
    assert len(set(made)) == 1
    assert parents_of(world, made[0], 1) == [before]


async def test_a_caller_that_leaves_while_it_waits_commits_nothing(world: World) -> None:
    sessions = await staged_sessions(world, world.nodes(3))
    before = await world.head()
    async with held(world) as begin:
        tasks = [await begin(world.commit(each)) for each in sessions]
        tasks[1].cancel()
        await asyncio.wait([tasks[1]])
    made = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(made[1], asyncio.CancelledError)
    assert parents_of(world, made[2], 2) == [made[0], before]
    assert isinstance(await world.commit(sessions[1]), str)


async def test_the_commit_of_a_caller_that_leaves_late_is_made(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = world.nodes(2)
    sessions = await staged_sessions(world, [first, second])
    noticed: list[str] = []
    monkeypatch.setattr(world.store.indexer, "notice", noticed.append)
    begun, go_on, project = asyncio.Event(), asyncio.Event(), projector.project

    async def slow(*arguments: Any, **named: Any) -> Any:
        begun.set()
        await go_on.wait()
        return await project(*arguments, **named)

    monkeypatch.setattr(projector, "project", slow)
    calls = [asyncio.create_task(world.commit(sessions[0]))]
    await asyncio.wait_for(begun.wait(), DEADLINE)
    calls.append(asyncio.create_task(world.commit(sessions[1])))
    calls[0].cancel()
    await asyncio.wait([calls[0]], timeout=0.02)
    assert not calls[0].done()
    go_on.set()
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(ended[0], asyncio.CancelledError)
    assert {first.id, second.id} <= set(await world.alive(await world.head()))
    assert noticed == [world.workspace] * 2
    assert await differences(world.store, world.workspace) == []


async def test_branches_and_tags_and_what_comes_after_much_work_have_groups_of_their_own(
    world: World, finished: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    history = HistoryOperations(world.store, world.pages, world.limits)
    await branch(history, world, "side")
    main = await staged_sessions(world, world.nodes(4))
    side = await staged_sessions(world, world.nodes(2), "side")
    finished.clear()
    order = [main[0], side[0], main[1], side[1], main[2], main[3]]
    made = dict(zip(order, await together(world, [world.commit(each) for each in order]), strict=True))
    assert len(finished) == 2
    assert parents_of(world, made[main[3]], 3) == [made[main[2]], made[main[1]], made[main[0]]]
    assert parents_of(world, made[side[1]], 1) == [made[side[0]]]

    more = await staged_sessions(world, world.nodes(6))
    monkeypatch.setattr(group_commit, "_MOST_BYTES", 1)  # each of them is too long for company
    monkeypatch.setattr(group_commit, "_is_much", lambda _: False)
    finished.clear()
    again = await together(world, [world.commit(each) for each in more])
    assert len(finished) == 6
    assert parents_of(world, again[-1], 5) == list(reversed(again[:-1]))

    [tagged] = await staged_sessions(world, [world.node()])
    finished.clear()
    commit_id = await world.commit(tagged, create_tag=True, tag_name="v1")
    assert finished == []  # a tag needs the commit to be there
    assert world.repository.peel(world.repository.refs()["refs/tags/v1"]) == commit_id
    assert await differences(world.store, world.workspace) == []


async def test_a_session_that_is_edited_at_the_moment_keeps_no_other_commit_waiting(world: World) -> None:
    edited, first, second = await staged_sessions(world, world.nodes(3))
    async with world.store.locks.sessions.of(edited):
        async with held(world) as begin:
            tasks = [await begin(world.commit(each)) for each in (edited, first, second)]
        await asyncio.wait(tasks[1:], timeout=DEADLINE)
        assert [task.done() for task in tasks] == [False, True, True]
    assert parents_of(world, await tasks[0], 1) == [await tasks[2]]


async def test_a_session_that_is_always_edited_is_waited_for_in_the_end(world: World) -> None:
    edited, *others = [waiting(f"session {number}") for number in range(5)]
    async with world.store.locks.sessions.of(edited.session_id):
        for other in others[:3]:
            queue = deque([edited, other])
            assert group_commit._taken(world.store, queue) == [other]
            assert list(queue) == [edited]
        assert group_commit._taken(world.store, deque([edited, others[3]])) == [edited, others[3]]
    members = [waiting(f"edited {number}") for number in range(5)]
    async with AsyncExitStack() as stack:
        for member in members:
            await stack.enter_async_context(world.store.locks.sessions.of(member.session_id))
        queue = deque(members)
        assert [len(group_commit._taken(world.store, queue)) for _ in range(4)] == [1, 1, 1, 2], "together"


async def test_what_a_failed_commit_wrote_is_read_by_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    [session] = await staged_sessions(world, [world.node()])
    add, noted = write_path.PendingCommits.add, list[str]()

    def note(pending: Any, ref: str, parent: str, head: PendingHead) -> None:
        add(pending, ref, parent, head)
        noted.append(head.commit_id)
        assert world.repository.exists(head.commit_id)
        raise DatabaseUnavailableError("gone")

    monkeypatch.setattr(write_path.PendingCommits, "add", note)
    with pytest.raises(DatabaseUnavailableError):
        await world.commit(session)
    assert [world.repository.exists(commit_id) for commit_id in noted] == [False]
    monkeypatch.undo()
    await world.sessions.discard_session(
        sessions_pb.DiscardSessionRequest(workspace=world.workspace, session_id=session)
    )
