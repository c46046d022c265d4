"""What a session keeps after a commit of a part of its changes is told if it does not fit what the branch has now."""

from dataclasses import replace
from typing import Any

import pytest
from integration.pushes import session_of
from integration.sides import changes
from integration.worlds import World
from memotree_storage.commit.rebase import ConflictError
from memotree_storage.model.node import Node

from memotree.canvas import NodeOperations
from memotree.v1 import node_service_pb2, session_service_pb2

pytestmark = pytest.mark.requirement("CANVAS-6", "GIT-6")


async def commit(world: World, session_id: str, *node_ids: str) -> session_service_pb2.CommitChangesResponse:
    request = session_service_pb2.CommitChangesRequest(
        workspace=world.workspace, session_id=session_id, message="A part", specific_nodes=node_ids
    )
    return await world.sessions.commit_changes(request)


async def conflicts(world: World, session_id: str) -> dict[str, list[Any]]:
    return {change.node_id: list(change.conflicts) for change in await changes(world, session_id)}


async def move(world: World, session_id: str, **fields: Any) -> None:
    request = node_service_pb2.MoveNodeRequest(workspace=world.workspace, session_id=session_id, **fields)
    await NodeOperations(world.store, world.pages, world.limits).move_node(request)


async def with_a_cycle(world: World) -> tuple[Node, Node, Node, str]:
    """Two nodes that the session and the branch moved below each other, one that was committed, and the session."""
    one, two, other = world.nodes(3)
    await world.put(one, two, other)
    session_id = await world.open()
    await world.stage(session_id, replace(one, parent_id=two.id), replace(other, title="Other"))
    await world.put(replace(two, parent_id=one.id))
    assert len((await commit(world, session_id, other.id)).warnings) == 1
    return one, two, other, session_id


async def test_a_change_below_a_node_that_others_deleted_is_told_until_it_is_moved(world: World) -> None:
    parent, moved, other = world.nodes(3)
    await world.put(parent, moved, other)
    session_id = await world.open()
    await world.stage(session_id, replace(moved, parent_id=parent.id), replace(other, title="Other"))
    await world.put(delete=[parent])
    made = await commit(world, session_id, other.id)
    assert made.remaining_changes == 1
    assert any(moved.id in warning and "ListConflicts" in warning for warning in made.warnings)
    ((found,),) = (await conflicts(world, session_id)).values()
    assert f"its parent {parent.id} was deleted" in found.description
    with pytest.raises(ConflictError):
        await commit(world, session_id)
    await move(world, session_id, node_id=moved.id, parent_id="", archive_id=world.archive.id, position=0)
    assert (await conflicts(world, session_id)) == {moved.id: []}
    await commit(world, session_id)
    assert moved.id in await world.alive(await world.head())


async def test_a_change_that_others_committed_too_does_not_remain(world: World) -> None:
    same, other = world.nodes(2)
    await world.put(same, other)
    session_id = await world.open()
    await world.stage(session_id, replace(same, title="Of both"), replace(other, title="Other"))
    await world.put(replace(same, title="Of both"))
    assert (await commit(world, session_id, other.id)).remaining_changes == 0
    assert await changes(world, session_id) == []


async def test_a_conflict_is_told_until_it_is_ended_by_whatever_edit_does_that(world: World) -> None:
    one, two, _, session_id = await with_a_cycle(world)
    nodes = NodeOperations(world.store, world.pages, world.limits)
    fields = {"workspace": world.workspace, "session_id": session_id}
    await nodes.update_node(node_service_pb2.UpdateNodeRequest(**fields, node_id=one.id, title="Of another title"))
    await nodes.create_node(node_service_pb2.CreateNodeRequest(**fields, archive_id=world.archive.id, title="New"))
    told = await conflicts(world, session_id)
    assert ["cycle" in found.description for found in told.pop(one.id)] == [True]
    assert list(told.values()) == [[]]
    await move(world, session_id, node_id=two.id, parent_id="", archive_id=world.archive.id)
    assert not any((await conflicts(world, session_id)).values())
    await commit(world, session_id)


async def test_a_conflict_ends_when_the_other_change_is_discarded(world: World) -> None:
    one, _, other, session_id = await with_a_cycle(world)
    await world.stage(session_id, replace(other, title="Else"))
    request = session_service_pb2.DiscardChangesRequest(
        workspace=world.workspace, session_id=session_id, node_ids=[one.id]
    )
    await world.sessions.discard_changes(request)
    assert await conflicts(world, session_id) == {other.id: []}
    assert not (await session_of(world, session_id)).has_conflicts


async def test_only_a_change_that_does_not_fit_is_told_with_its_values(world: World) -> None:
    torn, fits, other = world.nodes(3)
    await world.put(torn, fits, other)
    session_id = await world.open()
    await world.stage(session_id, *(replace(node, title="Ours") for node in (torn, fits, other)))
    await world.put(replace(torn, title="Theirs"), replace(fits, content="Theirs."))
    made = await commit(world, session_id, other.id)
    assert all(torn.id in warning and fits.id not in warning for warning in made.warnings)
    told = await conflicts(world, session_id)
    assert {node_id: len(found) for node_id, found in told.items()} == {torn.id: 1, fits.id: 0}
    (found,) = told[torn.id]
    assert (found.node_id, found.field) == (torn.id, "title")
    values = (found.base_value, found.our_value, found.their_value)
    assert [value.text for value in values] == [torn.title, "Ours", "Theirs"]
    await commit(world, session_id, fits.id)
