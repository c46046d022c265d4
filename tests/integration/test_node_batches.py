"""A batch of changes is made as a whole or not at all, and may use what it creates."""

from dataclasses import replace

import pytest
from integration.wires import Wire, family
from integration.worlds import World
from memotree_storage.model.node import new_id
from memotree_storage.postgres.requests import RequestIdReusedError

from memotree.canvas import NodeOperations
from memotree.v1 import node_service_pb2 as pb
from memotree.v1 import types_pb2

SUMMARY = types_pb2.LEVEL_OF_DETAIL_SUMMARY
EXTENDS = types_pb2.RELATION_TYPE_EXTENDS


@pytest.mark.requirement("CANVAS-9")
async def test_a_batch_may_use_a_node_that_it_creates(wire: Wire) -> None:
    root, child, leaf = await family(wire)
    top, below = new_id(), new_id()
    batch = [
        pb.NodeChange(create=pb.CreateNodeRequest(node_id=top, archive_id="notes", title="Top")),
        pb.NodeChange(create=pb.CreateNodeRequest(node_id=below, parent_id=top, title="Below")),
        pb.NodeChange(move=pb.MoveNodeRequest(node_id=leaf.id, parent_id=below)),
        pb.NodeChange(update=pb.UpdateNodeRequest(node_id=below, title="Renamed")),
        pb.NodeChange(
            add_relation=pb.AddRelationRequest(
                node_id=below, relation=types_pb2.Relation(type=EXTENDS, target_id=root.id)
            )
        ),
        pb.NodeChange(delete=pb.DeleteNodeRequest(node_id=child.id)),
    ]
    found = await wire("BatchChangeNodes", changes=batch, commit_message="all at once")
    assert [result.node.id for result in found.results] == [top, below, leaf.id, below, below, child.id]
    assert await wire.tree() == [("Root", 0), ("Top", 0), ("Renamed", 1), ("Leaf", 2)]
    changed = (await wire("ListChanges")).changes
    assert {message for change in changed for message in change.commit_messages} == {"all at once"}


@pytest.mark.requirement("CANVAS-9", "STORE-2")
async def test_after_an_edit_is_undone_within_a_batch_the_next_edit_is_derived_from_the_base(wire: Wire) -> None:
    """The base has moved meanwhile; the second edit must not use the blob that the first one was derived from."""
    node = await wire.create("base")
    other = await wire.create("other")
    await wire("CommitChanges", message="Begin")
    ours = wire.session
    await wire("UpdateNode", node_id=node.id, title="ours")
    await wire("UpdateNode", node_id=other.id, title="moves the base")
    await wire.open()
    await wire("UpdateNode", node_id=node.id, title="theirs")
    await wire("CommitChanges", message="Theirs")
    wire.session = ours
    await wire("CommitChanges", message="Only the other", specific_nodes=[other.id])
    titles = ("base", "final")
    batch = [pb.NodeChange(update=pb.UpdateNodeRequest(node_id=node.id, title=title)) for title in titles]
    await wire("BatchChangeNodes", changes=batch)
    await wire("CommitChanges", message="Final")
    assert (await wire.get(node.id)).title == "final"


@pytest.mark.requirement("CANVAS-9")
@pytest.mark.parametrize("field", ["workspace", "session_id"])
async def test_a_change_of_a_batch_cannot_be_of_another_workspace_or_session(wire: Wire, field: str) -> None:
    node = await wire.create("Node")
    own = {"workspace": wire.workspace, "session_id": wire.session}
    fine = pb.NodeChange(update=pb.UpdateNodeRequest(node_id=node.id, title="Fine", **own))
    await wire("BatchChangeNodes", changes=[fine])
    other = pb.NodeChange(update=pb.UpdateNodeRequest(node_id=node.id, title="Wrong", **own | {field: "another"}))
    refusal = await wire.refused("BatchChangeNodes", changes=[fine, other])
    assert (refusal.code, refusal.fields) == ("INVALID_ARGUMENT", (f"changes[1].update.{field}",))
    assert (await wire.get(node.id)).title == "Fine"


@pytest.mark.requirement("CANVAS-9", "CANVAS-8")
async def test_a_batch_may_be_committed_by_the_same_call(wire: Wire) -> None:
    root, child, leaf = await family(wire)
    await wire("CommitChanges", message="Begin")
    sessions = (await wire("ListSessions")).sessions
    batch = [
        pb.NodeChange(create=pb.CreateNodeRequest(parent_id=root.id, title="New", content="What is new.")),
        pb.NodeChange(update=pb.UpdateNodeRequest(node_id=child.id, title="Renamed")),
        pb.NodeChange(delete=pb.DeleteNodeRequest(node_id=leaf.id)),
    ]
    commit = pb.CommitAtOnce(agent="ada", message="Tidy up\n\nAll of it.")
    made = await wire("BatchChangeNodes", session_id="", changes=batch, commit=commit, commit_message="because")
    assert made.branch == "main"
    assert [result.node.title for result in made.results] == ["New", "Renamed", ""]
    assert made.results[2].node.id == leaf.id
    told = (await wire("GetCommit", revision=made.commit_id)).commit
    assert (told.subject, told.author.name) == ("Tidy up", "ada")
    await wire.open()
    assert await wire.tree() == [("Root", 0), ("Renamed", 1), ("New", 1)]
    assert (await wire.get(made.results[0].node.id)).content == "What is new."
    assert len((await wire("ListSessions")).sessions) == len(sessions) + 1, "the batch leaves no session"


@pytest.mark.requirement("CANVAS-9", "CANVAS-8")
async def test_a_committed_batch_is_made_once_per_request_id_also_after_its_result_is_forgotten(world: World) -> None:
    nodes = NodeOperations(world.store, world.pages, world.limits)
    root, child, old = world.nodes(3)
    await world.put(root, replace(child, parent_id=old.id), old)
    request = pb.BatchChangeNodesRequest(
        workspace=world.workspace,
        changes=[
            pb.NodeChange(create=pb.CreateNodeRequest(parent_id=root.id, title="New")),
            pb.NodeChange(update=pb.UpdateNodeRequest(node_id=root.id, title="Renamed")),
            pb.NodeChange(delete=pb.DeleteNodeRequest(node_id=old.id, recursive=True)),
        ],
        commit=pb.CommitAtOnce(),
        request_id="once",
    )
    first = await nodes.batch_change_nodes(request)
    assert list(first.results[2].deleted_ids) == [child.id]
    assert await nodes.batch_change_nodes(request) == first
    async with world.store.database.transaction() as conn:
        await conn.execute("delete from work.request")
    assert await nodes.batch_change_nodes(request) == first
    assert await world.head() == first.commit_id
    del request.changes[2]
    with pytest.raises(RequestIdReusedError):
        await nodes.batch_change_nodes(request)


@pytest.mark.requirement("CANVAS-9", "CANVAS-8")
async def test_a_batch_that_cannot_be_committed_leaves_nothing(wire: Wire) -> None:
    root, child, _ = await family(wire)
    commit_id = (await wire("CommitChanges", message="Begin")).commit_id
    rename = pb.NodeChange(update=pb.UpdateNodeRequest(node_id=root.id, title="Renamed"))
    same = pb.NodeChange(update=pb.UpdateNodeRequest(node_id=root.id, title="Root"))
    seen = pb.NodeChange(update=pb.UpdateNodeRequest(node_id=root.id, level=SUMMARY))
    late = pb.NodeChange(delete=pb.DeleteNodeRequest(node_id=child.id))
    for fields, code, named in (
        ({"changes": [rename, late], "session_id": ""}, "FAILED_PRECONDITION", ()),
        ({"changes": [same], "session_id": ""}, "FAILED_PRECONDITION", ()),
        ({"changes": [rename]}, "INVALID_ARGUMENT", ("session_id",)),
        ({"changes": [rename, seen], "session_id": ""}, "INVALID_ARGUMENT", ("changes[1].update.level",)),
    ):
        refusal = await wire.refused("BatchChangeNodes", commit=pb.CommitAtOnce(), **fields)
        assert (refusal.code, refusal.fields) == (code, named)
    nowhere = pb.CommitAtOnce(branch="nowhere")
    refusal = await wire.refused("BatchChangeNodes", session_id="", changes=[rename], commit=nowhere)
    assert refusal.code == "NOT_FOUND"
    assert (await wire("GetCommit", revision="main")).commit.id == commit_id
