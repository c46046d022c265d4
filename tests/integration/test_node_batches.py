"""A batch of changes is made as a whole or not at all, and may use what it creates."""

import pytest
from integration.wires import Wire, family
from memotree_storage.model.node import new_id

from memotree.v1 import node_service_pb2 as pb
from memotree.v1 import types_pb2

SUMMARY = types_pb2.LEVEL_OF_DETAIL_SUMMARY
DETAIL = types_pb2.LEVEL_OF_DETAIL_DETAIL
REFERENCES = types_pb2.RELATION_TYPE_REFERENCES
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


@pytest.mark.requirement("CANVAS-9", "CANVAS-7")
async def test_a_batch_with_one_wrong_change_changes_nothing_and_names_it(wire: Wire) -> None:
    root, child, _ = await family(wire)
    before = await wire.snapshot()
    batch = [
        pb.NodeChange(create=pb.CreateNodeRequest(archive_id="notes", title="Fine")),
        pb.NodeChange(update=pb.UpdateNodeRequest(node_id=root.id, title="Also fine")),
        pb.NodeChange(move=pb.MoveNodeRequest(node_id=root.id, parent_id=child.id)),
    ]
    refusal = await wire.refused("BatchChangeNodes", changes=batch)
    assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "CYCLE")
    assert refusal.message.startswith("changes[2]: ")
    assert refusal.fields == ("changes[2].move.parent_id",)
    assert await wire.snapshot() == before


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
