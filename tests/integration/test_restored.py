"""After a restore of an older backup nothing answers from commits that are gone, and what is there works on."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest
from integration.backups import put_back, restore_with, save
from integration.pushes import OpenAgain, differences
from integration.worlds import World
from memotree_storage import faults
from memotree_storage.git import restored
from memotree_storage.model.workspace import KEEP_PREFIX
from memotree_storage.postgres.sessions import SessionClosedError

from memotree.memory import MemoryOperations
from memotree.v1 import memory_service_pb2, session_service_pb2, workspace_service_pb2
from memotree.workspaces import WorkspaceOperations

pytestmark = pytest.mark.requirement("USE-8", "STORE-2")

DETACHED = session_service_pb2.SESSION_STATE_DETACHED
OPEN = session_service_pb2.SESSION_STATE_OPEN


async def remember(world: World, text: str, request_id: str) -> memory_service_pb2.RememberResponse:
    request = memory_service_pb2.RememberRequest(workspace=world.workspace, text=text, request_id=request_id)
    return await MemoryOperations(world.store, world.limits).remember(request)


async def session_in(world: World, session_id: str) -> session_service_pb2.Session:
    request = session_service_pb2.GetSessionRequest(workspace=world.workspace, session_id=session_id)
    return (await world.sessions.get_session(request)).session


async def changes_in(world: World, session_id: str) -> list[str]:
    request = session_service_pb2.ListChangesRequest(workspace=world.workspace, session_id=session_id)
    return [change.title for change in (await world.sessions.list_changes(request)).changes]


async def a_repeated_call_makes_again_what_the_backup_lacks(world: World) -> AsyncGenerator[None, World]:
    yield
    lost = await remember(world, "Noted after the backup.", "late")
    after = yield
    made = await remember(after, "Noted after the backup.", "late")
    assert made.commit_id != lost.commit_id
    assert after.repository.exists(made.commit_id)
    assert made.node.id in await after.alive(await after.head())
    assert await remember(after, "Noted after the backup.", "late") == made
    assert await differences(after.store, after.workspace) == []


async def a_repeated_call_whose_commit_is_in_the_backup_is_answered_from_it(
    world: World,
) -> AsyncGenerator[None, World]:
    kept = await remember(world, "Noted before the backup.", "early")
    yield
    await remember(world, "Noted after the backup.", "late")
    after = yield
    repeated = await remember(after, "Noted before the backup.", "early")
    assert (repeated.commit_id, repeated.node.id) == (kept.commit_id, kept.node.id)
    assert await after.head() == kept.commit_id


async def a_repeated_call_makes_the_workspace_that_the_backup_lacks(world: World) -> AsyncGenerator[None, World]:
    order = workspace_service_pb2.CreateWorkspaceRequest(name="desert", request_id="new")
    yield
    lost = (await WorkspaceOperations(world.store, world.pages, world.limits).create_workspace(order)).workspace.id
    world.store.repositories.discard(lost)
    after = yield
    made = (await WorkspaceOperations(after.store, after.pages, after.limits).create_workspace(order)).workspace.id
    assert after.store.repositories.path(made).is_dir()


async def a_lost_commit_is_not_found_after_the_restore(world: World) -> AsyncGenerator[None, World]:
    yield
    node = world.node("Late")
    lost = await world.put(node)
    after = yield
    request = session_service_pb2.OpenSessionRequest(workspace=after.workspace)
    assert (await after.sessions.open_session(request)).session.base_commit_id != lost
    assert node.id not in await after.alive(await after.head())
    async with after.store.database.connection() as conn:
        cursor = await conn.execute("select from mirror.commit where commit_id = %s", (lost,))
        assert cursor.rowcount == 0


async def a_session_that_lost_its_base_is_closed_with_the_reason_and_its_changes_can_be_read(
    world: World,
) -> AsyncGenerator[None, World]:
    yield
    late = world.node("Late")
    await world.put(late)
    session = await world.open()
    await world.stage(session, replace(late, title="Late and changed"), world.node("New here", position="a5"))
    after = yield
    assert (await session_in(after, session)).state == DETACHED
    assert sorted(await changes_in(after, session)) == ["Late and changed", "New here"]
    rebase = session_service_pb2.RebaseSessionRequest(workspace=after.workspace, session_id=session)
    for call in (after.commit(session), after.sessions.rebase_session(rebase), after.stage(session, late)):
        with pytest.raises(SessionClosedError, match=r"was restored from a backup of \d{4}-.*Open a new one"):
            await call
    discard = session_service_pb2.DiscardSessionRequest(workspace=after.workspace, session_id=session)
    await after.sessions.discard_session(discard)
    assert await changes_in(after, session) == []


async def a_session_whose_base_is_in_the_backup_goes_on_and_its_base_is_protected_again(
    world: World,
) -> AsyncGenerator[None, World]:
    yield
    session, node = await world.open(), world.node("Staged before the restore")
    await world.stage(session, node)
    await world.put(world.node("Late", position="a5"))
    after = yield
    found = await session_in(after, session)
    assert found.state == OPEN
    assert after.repository.refs()[f"{KEEP_PREFIX}{session}"] == found.base_commit_id
    await after.commit(session)
    assert node.id in await after.alive(await after.head())


async def test_what_came_after_the_backup_is_gone_and_what_is_there_works_on(
    world: World, tmp_path: Path, again: OpenAgain
) -> None:
    cases = [
        a_repeated_call_makes_again_what_the_backup_lacks,
        a_repeated_call_whose_commit_is_in_the_backup_is_answered_from_it,
        a_repeated_call_makes_the_workspace_that_the_backup_lacks,
        a_lost_commit_is_not_found_after_the_restore,
        a_session_that_lost_its_base_is_closed_with_the_reason_and_its_changes_can_be_read,
        a_session_whose_base_is_in_the_backup_goes_on_and_its_base_is_protected_again,
    ]
    await restore_with(cases, world, tmp_path / "early.backup", again)


async def test_a_start_that_was_killed_before_the_mark_was_gone_does_it_again(
    world: World, tmp_path: Path, again: OpenAgain, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = await save(world.store, tmp_path / "early.backup")
    lost = await remember(world, "Noted after the backup.", "late")
    session = await world.open()
    await put_back(world.store, [backup])
    folder = world.store.repositories.path(world.workspace)

    def die(name: str) -> None:
        if name == "restore.forgotten":
            raise RuntimeError(name)

    with monkeypatch.context() as patched:
        patched.setattr(faults, "point", die)
        async with again():
            assert restored.backup_time(folder) is not None
    async with again() as store:
        after = world.on(store)
        assert restored.backup_time(folder) is None
        assert (await session_in(after, session)).state == DETACHED
        assert (await remember(after, "Noted after the backup.", "late")).commit_id != lost.commit_id
        fresh = await after.open()
    async with again() as store:  # without the mark nothing is forgotten any more
        later = world.on(store)
        assert (await session_in(later, fresh)).state == OPEN
        made = await remember(later, "Noted after the backup.", "late")
        assert made.commit_id == await later.head()
