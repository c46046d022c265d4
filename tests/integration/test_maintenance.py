"""The operations of maintenance: verification and rebuild as streams, and the status."""

from dataclasses import replace

import pytest
from integration.damage import change, differences
from integration.sides import rebase
from integration.worlds import World
from memotree_storage.errors import NotFoundError
from memotree_storage.postgres import registry

from memotree.maintenance import MaintenanceOperations
from memotree.v1 import maintenance_service_pb2 as pb


@pytest.fixture
def maintenance(world: World) -> MaintenanceOperations:
    return MaintenanceOperations(world.store, world.pages, world.limits, max_message_bytes=4096, embedded={"postgres"})


@pytest.mark.own_store
@pytest.mark.requirement("STORE-4", "GIT-1")
async def test_verification_and_rebuild_are_streams_and_a_rebuild_keeps_what_is_staged(
    lived_in: World, maintenance: MaintenanceOperations
) -> None:
    session = await lived_in.open()
    staged = lived_in.node("Staged")
    await lived_in.stage(session, staged)
    head = await lived_in.head()
    before = await lived_in.alive(head, session)
    await change(lived_in, "update mirror.version set title = 'Forged' where title = 'Top'")
    name = lived_in.store.repositories.describe(lived_in.workspace).name
    events = [event async for event in maintenance.verify_workspace(pb.VerifyWorkspaceRequest(workspace=name))]
    assert {event.WhichOneof("event") for event in events} == {"progress", "difference"}
    (found,) = [event.difference for event in events if event.HasField("difference")]
    assert (found.store, found.what) == ("postgres", "row")
    request = pb.RebuildWorkspaceRequest(workspace=lived_in.workspace)
    steps = [event.progress async for event in maintenance.rebuild_workspace(request)]
    assert {step.step for step in steps} == {"commits", "index"}
    assert all(step.done == step.total for step in {step.step: step for step in steps}.values())
    assert await lived_in.alive(head, session) == before
    assert staged.id in before
    assert await differences(lived_in) == []


@pytest.mark.own_store
async def test_a_rebuild_continues_if_its_caller_cancels(world: World, maintenance: MaintenanceOperations) -> None:
    await world.put(world.node("Right"))
    await change(world, "update mirror.version set title = 'Forged' where title = 'Right'")
    stream = maintenance.rebuild_workspace(pb.RebuildWorkspaceRequest(workspace=world.workspace))
    await anext(stream)
    await stream.aclose()
    await maintenance.finish()
    assert await differences(world) == []


@pytest.mark.requirement("STORE-4")
async def test_a_rebuild_keeps_the_edits_that_undo_what_their_session_committed(world: World) -> None:
    """Replaying a session's commits must not mistake its later edits for the committed ones."""
    node = world.node("One")
    await world.put(node)
    session = await world.open()
    for title in ("Two", "Three"):
        await world.stage(session, replace(node, title=title))
        await world.commit(session)
    await world.put(world.node("By another session"))
    await rebase(world, session)
    await world.stage(session, replace(node, title="Two"))
    expected = await _seen(world, session)
    await world.store.rebuild(world.workspace)
    assert await _seen(world, session) == expected
    await world.commit(session)
    assert (await world.alive(await world.head())) == expected


async def _seen(world: World, session: str) -> dict[str, str]:
    async with world.store.database.connection() as conn:
        _, resolved = await registry.resolve(conn, world.workspace, session)
    return await world.alive(resolved.state.commit_id, session)


@pytest.mark.own_store
async def test_status_returns_versions_stores_and_counts(world: World, maintenance: MaintenanceOperations) -> None:
    status = await maintenance.get_status(pb.GetStatusRequest())
    assert status.max_depth == 128
    assert [(one.name, one.healthy, one.embedded) for one in status.stores] == [
        ("git", True, True),
        ("postgres", True, True),
        ("qdrant", True, False),
    ]
    assert "PostgreSQL" in status.stores[1].detail
    assert (status.workspace_count, status.max_message_bytes) == (1, 4096)
    assert status.embedding_model == world.store.embedder.model
    assert status.version


async def test_a_missing_workspace_is_not_found(maintenance: MaintenanceOperations) -> None:
    with pytest.raises(NotFoundError):
        await anext(maintenance.verify_workspace(pb.VerifyWorkspaceRequest(workspace="nowhere")))
    with pytest.raises(NotFoundError):
        await anext(maintenance.rebuild_workspace(pb.RebuildWorkspaceRequest(workspace="nowhere")))
