"""A request id whose result is no longer stored: the same call finds its commit, and another call is refused."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from by_hand import file_changes
from integration.histories import branch
from integration.pushes import PERSON
from integration.worlds import World
from memotree_storage.ports import CommitDraft
from memotree_storage.postgres.requests import RequestIdReusedError
from memotree_storage.postgres.sessions import SessionNotFoundError

from memotree.history import HistoryOperations
from memotree.memory import MemoryOperations
from memotree.v1 import memory_service_pb2, session_service_pb2, workspace_service_pb2
from memotree.workspaces import WorkspaceOperations

pytestmark = pytest.mark.requirement("STORE-2")

Call = Callable[..., Awaitable[Any]]


async def forget(world: World) -> None:
    """Delete the results of all requests, as their retention does, and the loss of the schema ``work``."""
    async with world.store.database.transaction() as conn:
        await conn.execute("delete from work.request")


async def test_a_commit_of_a_session_is_the_answer_to_the_same_call_alone(world: World) -> None:
    session_id, other = await world.open(), await world.open()
    await world.stage(session_id, world.node("First"))
    await world.stage(other, world.node("Of another session"))

    def call(message: str) -> session_service_pb2.CommitChangesRequest:
        return session_service_pb2.CommitChangesRequest(
            workspace=world.workspace, session_id=session_id, message=message, request_id="once"
        )

    first = await world.sessions.commit_changes(call("First"))
    assert "MemoTree-Request-Digest: " in world.repository.commit_info(first.commit_id).message
    await world.stage(session_id, second := world.node("Second"))
    await forget(world)
    note = memory_service_pb2.RememberRequest(workspace=world.workspace, text="Another.", request_id="once")
    for wrong in (
        world.sessions.commit_changes(call("Second")),
        world.commit(other, "First", request_id="once"),
        MemoryOperations(world.store, world.limits).remember(note),
    ):
        with pytest.raises(RequestIdReusedError):
            await wrong
    assert await world.head() == first.commit_id
    assert second.id in await world.alive(first.commit_id, session_id), "the change is still staged"
    assert (await world.sessions.commit_changes(call("First"))).commit_id == first.commit_id


async def test_a_note_is_not_kept_again_on_another_branch(world: World, history: HistoryOperations) -> None:
    memory = MemoryOperations(world.store, world.limits)
    await branch(history, world, "aside")
    request = memory_service_pb2.RememberRequest(workspace=world.workspace, text="One.", request_id="once")
    first = await memory.remember(request)
    await forget(world)
    request.text, request.branch = "Two.", "aside"
    with pytest.raises(RequestIdReusedError):
        await memory.remember(request)
    assert await world.head() == first.commit_id


async def test_the_copy_of_a_commit_is_not_the_answer(world: World) -> None:
    """``git cherry-pick`` copies the trailers; ids of commits are random, so one of many copies would come first."""
    start = await world.head()
    session_id = await world.open()
    await world.stage(session_id, node := world.node("First"))
    first = await world.commit(session_id, request_id="once")
    message = world.repository.commit_info(first).message
    for number in range(8):
        files = file_changes(world.repository, start, {node.id: node})
        author = replace(PERSON, when=PERSON.when + timedelta(seconds=number))
        copy = world.repository.write_commit(CommitDraft(start, files, message, author, author)).commit_id
        assert world.repository.move_ref(f"refs/heads/copy-{number}", None, copy)
    await world.store.catch_up(world.workspace)
    await forget(world)
    assert await world.commit(session_id, request_id="once") == first


async def test_a_commit_is_the_answer_also_if_its_session_is_lost(world: World) -> None:
    session_id = await world.open()
    await world.stage(session_id, world.node("First"))
    request = session_service_pb2.CommitChangesRequest(
        workspace=world.workspace, session_id=session_id, message="First", request_id="once", renew_summaries=True
    )
    first = await world.sessions.commit_changes(request)
    await forget(world)
    async with world.store.database.transaction() as conn:
        await conn.execute("delete from work.session")
    again = await world.sessions.commit_changes(request)
    assert (again.commit_id, again.branch, again.change_count) == (first.commit_id, "main", 1)
    request.message = "Second"
    with pytest.raises(RequestIdReusedError):
        await world.sessions.commit_changes(request)
    request.request_id = "another"
    with pytest.raises(SessionNotFoundError):
        await world.sessions.commit_changes(request)


async def test_a_workspace_is_not_the_answer_to_another_description(world: World) -> None:
    operations = WorkspaceOperations(world.store, world.pages, world.limits)

    async def create(description: str) -> workspace_service_pb2.CreateWorkspaceResponse:
        request = workspace_service_pb2.CreateWorkspaceRequest(name="desert", description=description, request_id="one")
        return await operations.create_workspace(request)

    first = await create("Sand.")
    await forget(world)
    with pytest.raises(RequestIdReusedError):
        await create("Stones.")
    assert (await create("Sand.")).workspace.id == first.workspace.id


async def test_a_commit_from_before_digests_answers_as_it_did(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = MemoryOperations(world.store, world.limits)
    request = memory_service_pb2.RememberRequest(workspace=world.workspace, text="Old.", request_id="once")
    with monkeypatch.context() as patch:
        patch.setattr("memotree_storage.model.trailers.REQUEST_DIGEST", "Not-Known")
        first = await memory.remember(request)
    await forget(world)
    assert (await memory.remember(request)).commit_id == first.commit_id
