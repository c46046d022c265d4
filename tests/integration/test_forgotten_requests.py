"""A request id whose result is no longer stored: the same call finds its commit, and another call is refused."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from integration.worlds import World
from memotree_storage.model.node import Archive, new_id
from memotree_storage.postgres.requests import RequestIdReusedError

from memotree.forest.joining.join import ArchiveJoin
from memotree.memory import MemoryOperations
from memotree.models.cache import AnswerCache
from memotree.models.gateway import Models
from memotree.v1 import forest_service_pb2, memory_service_pb2, session_service_pb2, workspace_service_pb2
from memotree.workspaces import WorkspaceOperations

pytestmark = pytest.mark.requirement("STORE-2")

Call = Callable[..., Awaitable[Any]]


async def forget(world: World) -> None:
    """Delete the results of all requests, as their retention does, and the loss of the schema ``work``."""
    async with world.store.database.transaction() as conn:
        await conn.execute("delete from work.request")


async def test_a_commit_of_a_session_is_not_the_answer_to_another_call(world: World) -> None:
    session_id = await world.open()
    await world.stage(session_id, world.node("First"))

    def call(message: str) -> session_service_pb2.CommitChangesRequest:
        return session_service_pb2.CommitChangesRequest(
            workspace=world.workspace, session_id=session_id, message=message, request_id="once"
        )

    first = await world.sessions.commit_changes(call("First"))
    assert "MemoTree-Request-Digest: " in world.repository.commit_info(first.commit_id).message
    await world.stage(session_id, second := world.node("Second"))
    await forget(world)
    with pytest.raises(RequestIdReusedError):
        await world.sessions.commit_changes(call("Second"))
    assert await world.head() == first.commit_id
    assert second.id in await world.alive(first.commit_id, session_id), "the change is still staged"
    assert (await world.sessions.commit_changes(call("First"))).commit_id == first.commit_id


async def test_a_note_is_not_the_answer_to_another_note(world: World) -> None:
    memory = MemoryOperations(world.store, world.limits)

    async def remember(text: str) -> memory_service_pb2.RememberResponse:
        request = memory_service_pb2.RememberRequest(workspace=world.workspace, text=text, request_id="once")
        return await memory.remember(request)

    first = await remember("Retries stop after five tries.")
    await forget(world)
    with pytest.raises(RequestIdReusedError):
        await remember("Logs are kept for a week.")
    assert await world.head() == first.commit_id
    assert (await remember("Retries stop after five tries.")).commit_id == first.commit_id


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


async def test_a_joined_archive_is_not_the_answer_to_another_join(world: World) -> None:
    others = [Archive(new_id(), name, world.archive.model_id) for name in ("one", "two", "three")]
    await world.put(*others, *(world.node(archive_id=other.id) for other in others))
    joining = ArchiveJoin(world.store, Models(AnswerCache(world.store.database)), world.limits)

    async def join(*names: str) -> forest_service_pb2.MergeArchivesResponse:
        request = forest_service_pb2.MergeArchivesRequest(
            workspace=world.workspace, archives=names, name="both", request_id="once"
        )
        return await joining.merge_archives(request)

    first = await join("one", "two")
    await forget(world)
    with pytest.raises(RequestIdReusedError):
        await join("one", "three")
    assert await world.head() == first.commit_id
    assert (await join("one", "two")).commit_id == first.commit_id


async def test_a_commit_from_before_digests_answers_as_it_did(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = MemoryOperations(world.store, world.limits)
    request = memory_service_pb2.RememberRequest(workspace=world.workspace, text="Old.", request_id="once")
    with monkeypatch.context() as patch:
        patch.setattr("memotree_storage.model.trailers.REQUEST_DIGEST", "Not-Known")
        first = await memory.remember(request)
    await forget(world)
    assert (await memory.remember(request)).commit_id == first.commit_id
