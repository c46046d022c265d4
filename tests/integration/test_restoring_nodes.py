"""Nodes, subtrees and archives come back from any revision, with their ids, by a new commit."""

from dataclasses import replace
from typing import Any

import pytest
from integration.damage import differences
from integration.histories import git
from integration.sides import Sides, changes
from integration.worlds import World
from memotree_storage.commit.merge_commit import MergeConflictError
from memotree_storage.commit.session_commit import NothingToCommitError
from memotree_storage.errors import InvalidInputError, NotFoundError
from memotree_storage.model.node import Archive, Node, new_id

from memotree.v1 import history_service_pb2 as pb
from memotree.v1 import types_pb2

pytestmark = pytest.mark.requirement("GIT-7")


async def restore(
    sides: Sides, revision: str, *entries: Node | Archive | str, **fields: Any
) -> pb.RestoreNodesResponse:
    ids = [entry.id for entry in entries]
    request = pb.RestoreNodesRequest(workspace=sides.world.workspace, node_ids=ids, revision=revision, **fields)
    return await sides.history.restore_nodes(request)


def family(world: World) -> tuple[Node, Node, Node]:
    root = world.node("Root")
    child = world.node("Child", parent=root)
    return root, child, world.node("Leaf", parent=child)


async def test_a_changed_node_is_as_it_was_and_the_rest_stays(world: World, sides: Sides) -> None:
    one, two = world.nodes(2)
    before = await world.put(one, two)
    await world.put(replace(one, title="Changed", tags=("new",)), replace(two, title="Changed"))
    told = await restore(sides, before, one, validate_only=True)
    assert (told.commit_id, told.change_count) == (sides.commit("main"), 1)
    made = await restore(sides, before, one)
    assert (made.branch, made.change_count, [change.node_id for change in made.changes]) == ("main", 1, [one.id])
    assert (sides.at(one.id), sides.at(two.id)) == (one, replace(two, title="Changed"))
    subject, _, body = git(world, "show", "-s", "--format=%B", made.commit_id).partition("\n")
    assert subject == 'Restore "Node 0"'
    assert f"As of commit {before}." in body
    with pytest.raises(NothingToCommitError):
        await restore(sides, before, one)
    await sides.revert(made.commit_id)
    assert sides.at(one.id) == replace(one, title="Changed", tags=("new",))


async def test_a_subtree_or_archive_comes_back_as_it_was_and_what_did_not_stand_there_goes_if_that_is_wanted(
    world: World, sides: Sides
) -> None:
    root, child, leaf = family(world)
    before = await world.put(root, child, leaf)
    newer, elsewhere = world.node("Newer", parent=root), world.node("Elsewhere")
    await world.put(replace(root, title="Changed"), newer, elsewhere, delete=[child, leaf])
    made = await restore(sides, before, root, recursive=True)
    assert made.change_count == 3
    assert [sides.at(one.id) for one in (root, child, leaf, newer)] == [root, child, leaf, newer]
    await world.put(below := world.node("Below", parent=leaf))
    await restore(sides, before, root, recursive=True, delete_others=True)
    assert [sides.at(one.id) for one in (newer, below, elsewhere)] == [None, None, elsewhere]
    await world.put(replace(child, parent_id=None), delete=[leaf])
    await restore(sides, before, world.archive, recursive=True)
    assert [sides.at(one.id) for one in (root, child, leaf, elsewhere)] == [root, child, leaf, elsewhere]
    assert await differences(world) == []


async def test_what_is_missing_above_comes_back_too(world: World, sides: Sides) -> None:
    archive = Archive(new_id(), "plans", "an-agent")
    root = replace(world.node("Root"), archive_id=archive.id)
    child = replace(world.node("Child", parent=root), archive_id=archive.id)
    other = replace(world.node("Other", parent=root), archive_id=archive.id)
    before = await world.put(archive, root, child, other)
    await world.put(delete=[archive, root, child, other])
    made = await restore(sides, before, child)
    assert made.change_count == 3
    assert [sides.at(one.id) for one in (archive, root, child, other)] == [archive, root, child, None]
    assert await differences(world) == []


async def test_a_node_that_moved_goes_back_and_a_cycle_is_a_conflict(world: World, sides: Sides) -> None:
    one, two = world.nodes(2)
    below = replace(two, parent_id=one.id)
    before = await world.put(one, below)
    await world.put(replace(one, parent_id=two.id), two)
    with pytest.raises(MergeConflictError) as caught:
        await restore(sides, before, two)
    assert [conflict.kind.value for conflict in caught.value.conflicts] == ["CYCLE"]
    await restore(sides, before, one, two)
    assert (sides.at(one.id), sides.at(two.id)) == (one, below)


async def test_in_a_session_with_what_is_staged_there(world: World, sides: Sides) -> None:
    one, two = world.nodes(2)
    before = await world.put(one, two)
    await world.put(replace(one, title="Changed"), delete=[two])
    session_id = await world.open()
    await world.stage(session_id, replace(one, title="Staged"))
    made = await restore(sides, before, one, two, session_id=session_id)
    assert (made.commit_id, made.change_count, made.conflict_count) == ("", 2, 0)
    assert {change.node_id: change.kind for change in await changes(world, session_id)} == {
        one.id: types_pb2.CHANGE_KIND_UPDATED,
        two.id: types_pb2.CHANGE_KIND_CREATED,
    }
    await world.commit(session_id)
    assert (sides.at(one.id), sides.at(two.id)) == (one, two)
    with pytest.raises(NothingToCommitError):
        await restore(sides, before, one, session_id=session_id)


async def test_from_another_branch_onto_another(world: World, sides: Sides) -> None:
    one = world.node()
    await sides.fork(one)
    await world.put(replace(one, title="Of the side"), branch="side")
    await world.put(replace(one, title="Of main"))
    await restore(sides, "main", one, branch="side")
    assert sides.at(one.id, "side") == replace(one, title="Of main")


async def test_what_is_refused(world: World, sides: Sides) -> None:
    one, later = world.nodes(2)
    before = await world.put(one)
    await world.put(later)
    with pytest.raises(NotFoundError, match="was not alive"):
        await restore(sides, before, later)
    for fields in ({"revision": ""}, {"node_ids": []}, {"delete_others": True}, {"node_ids": [one.id] * 1001}):
        given: dict[str, Any] = {"workspace": world.workspace, "revision": before, "node_ids": [one.id], **fields}
        with pytest.raises(InvalidInputError):
            await sides.history.restore_nodes(pb.RestoreNodesRequest(**given))
    session_id = await world.open()
    with pytest.raises(InvalidInputError):
        await restore(sides, before, one, session_id=session_id, validate_only=True)
