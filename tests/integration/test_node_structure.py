"""Moving, splitting, uniting, relating and deleting nodes keeps the tree whole, one by one and in batches."""

from dataclasses import replace
from typing import Any

import pytest
from integration.statements import recorded
from integration.wires import Wire, family
from integration.worlds import World
from memotree_storage.conflicts import ChildValue
from memotree_storage.mirror.tree_check import check_tree
from memotree_storage.model.node import Entry, new_id
from memotree_storage.model.provenance import without_provenance
from memotree_storage.postgres import staging
from memotree_storage.postgres.requests import RequestIdReusedError
from memotree_storage.postgres.tree import Snapshot, State

from memotree.canvas import NodeOperations
from memotree.v1 import node_service_pb2 as pb
from memotree.v1 import types_pb2

SUMMARY = types_pb2.LEVEL_OF_DETAIL_SUMMARY
REFERENCES = types_pb2.RELATION_TYPE_REFERENCES
EXTENDS = types_pb2.RELATION_TYPE_EXTENDS


@pytest.mark.requirement("CANVAS-10")
async def test_a_node_with_children_is_only_deleted_with_them_and_dangling_relations_are_reported(wire: Wire) -> None:
    root, child, leaf = await family(wire)
    await wire("AddRelation", node_id=root.id, relation=types_pb2.Relation(type=REFERENCES, target_id=leaf.id))
    refusal = await wire.refused("DeleteNode", node_id=child.id)
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "HAS_CHILDREN")
    found = await wire("DeleteNode", node_id=child.id, recursive=True)
    assert list(found.deleted_ids) == [child.id, leaf.id]
    assert any(leaf.id in warning and "REFERENCES" in warning for warning in found.warnings)
    assert await wire.tree() == [("Root", 0)]
    shown = await wire("ExpandNode", revision=wire.session, node_id=root.id, include_relations=True)
    assert not shown.relations[0].HasField("node"), "the target is not alive any more"


@pytest.mark.requirement("CANVAS-10")
async def test_a_move_takes_a_place_and_never_makes_a_cycle(wire: Wire) -> None:
    root, child, leaf = await family(wire)
    for parent in (child.id, leaf.id, root.id):
        refusal = await wire.refused("MoveNode", node_id=root.id, parent_id=parent)
        assert (refusal.code, refusal.reason, refusal.fields) == ("INVALID_ARGUMENT", "CYCLE", ("parent_id",))
    second = await wire.create("Second", parent_id=root.id)
    moved = (await wire("MoveNode", node_id=second.id, position=0)).node
    assert (moved.parent_id, await wire.children(root.id)) == (root.id, [second.id, child.id])
    moved = (await wire("MoveNode", node_id=leaf.id, parent_id="", position=0)).node
    assert (moved.parent_id, list(moved.path)) == ("", [])
    assert await wire.children() == [leaf.id, root.id]
    await wire("MoveNode", node_id=leaf.id, parent_id=second.id)
    assert list((await wire.get(leaf.id)).path) == [root.id, second.id]


@pytest.mark.requirement("CANVAS-10")
async def test_a_move_to_another_archive_moves_the_whole_subtree(wire: Wire) -> None:
    root, child, leaf = await family(wire)
    plans = (await wire("CreateArchive", name="plans")).archive
    refusal = await wire.refused("MoveNode", node_id=leaf.id, parent_id=root.id, archive_id="plans")
    assert (refusal.code, refusal.fields) == ("INVALID_ARGUMENT", ("archive_id",)), "its parent is in another one"
    assert await wire.children(child.id) == [leaf.id]
    assert (await wire("MoveNode", node_id=leaf.id, parent_id=root.id, archive_id="notes")).node.parent_id == root.id
    await wire("MoveNode", node_id=leaf.id, parent_id=child.id)
    await wire("MoveNode", node_id=child.id, parent_id="", archive_id="plans")
    assert (await wire.get(leaf.id)).archive_id == plans.id
    assert await wire.tree(archive="plans") == [("Child", 0), ("Leaf", 1)]
    assert await wire.tree(archive="notes") == [("Root", 0)]


@pytest.mark.requirement("CANVAS-10")
async def test_a_split_keeps_the_first_part_and_makes_siblings_or_children(wire: Wire) -> None:
    root, child, leaf = await family(wire)
    after = await wire.create("After", parent_id=root.id)
    parts = [
        pb.SplitPart(title="One", content="1"),
        pb.SplitPart(title="Two", content="2"),
        pb.SplitPart(title="Three"),
    ]
    found = await wire("SplitNode", node_id=child.id, parts=parts)
    ids = [node.id for node in found.nodes]
    assert ids[0] == child.id
    assert await wire.children(root.id) == [*ids, after.id]
    assert [node.content for node in found.nodes] == ["1", "2", ""]
    assert await wire.children(child.id) == [leaf.id]
    found = await wire("SplitNode", node_id=child.id, parts=parts[:2], as_children=True)
    assert await wire.children(child.id) == [leaf.id, found.nodes[1].id]


@pytest.mark.requirement("CANVAS-10")
async def test_a_union_takes_content_children_tags_and_relations_over(wire: Wire) -> None:
    root, child, leaf = await family(wire)
    one = await wire.create("One", parent_id=root.id, content="1", tags=["a"], attributes={"k": "first"})
    two = await wire.create("Two", parent_id=root.id, content="2", tags=["b"], attributes={"k": "second", "m": "x"})
    below = await wire.create("Below two", parent_id=two.id)
    for source, aim in ((child, two), (two, leaf), (two, one)):
        relation = types_pb2.Relation(type=REFERENCES, target_id=aim.id, description="d")
        await wire("AddRelation", node_id=source.id, relation=relation)
    found = await wire("MergeNodes", node_ids=[one.id, two.id])
    union = found.node
    assert list(found.deleted_ids) == [two.id]
    assert (union.id, union.title, union.content) == (one.id, "One", "1\n\n2")
    assert (list(union.tags), without_provenance(union.attributes)) == (["a", "b"], {"k": "first", "m": "x"})
    assert [relation.target_id for relation in union.relations] == [leaf.id]
    assert await wire.children(one.id) == [below.id]
    assert [relation.target_id for relation in (await wire.get(child.id)).relations] == [one.id]
    refusal = await wire.refused("MergeNodes", node_ids=[leaf.id, root.id])
    assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "CYCLE")


@pytest.mark.requirement("CANVAS-10")
async def test_every_type_of_relation_can_be_added_described_and_removed(wire: Wire) -> None:
    root, child, _ = await family(wire)
    for kind in types_pb2.RelationType.values()[1:]:
        relation = types_pb2.Relation(type=kind, target_id=child.id, description="first")
        await wire("AddRelation", node_id=root.id, relation=relation)
        relation.description = "second"
        node = (await wire("AddRelation", node_id=root.id, relation=relation)).node
        assert list(node.relations) == [relation], "an equal one takes the new description"
        node = (await wire("RemoveRelation", node_id=root.id, type=kind, target_id=child.id[:6])).node
        assert not node.relations
        refusal = await wire.refused("RemoveRelation", node_id=root.id, type=kind, target_id=child.id)
        assert (refusal.code, refusal.reason) == ("NOT_FOUND", "RELATION_NOT_FOUND")


@pytest.mark.requirement("CANVAS-10", "CANVAS-13")
async def test_the_target_of_a_relation_to_remove_is_named_as_every_node_is(wire: Wire) -> None:
    root = await wire.create("Root")
    twins = [await wire.create(f"Twin {end}", node_id=f"abcd{end * 12}") for end in ("0", "1")]
    for twin in twins:
        await wire("AddRelation", node_id=root.id, relation=types_pb2.Relation(type=REFERENCES, target_id=twin.id))
    wanted = {"node_id": root.id, "type": REFERENCES}
    refusal = await wire.refused("RemoveRelation", target_id="abc", **wanted)
    assert (refusal.code, refusal.reason, refusal.fields) == ("INVALID_ARGUMENT", "INVALID_ID", ("target_id",))
    refusal = await wire.refused("RemoveRelation", target_id="abcd", **wanted)
    assert (refusal.code, refusal.reason, refusal.fields) == ("INVALID_ARGUMENT", "AMBIGUOUS_ID", ("target_id",))
    assert [node.id for node in refusal.nodes] == [twin.id for twin in twins]
    await wire("DeleteNode", node_id=twins[0].id)
    left = (await wire("RemoveRelation", target_id="abcd0", **wanted)).node.relations
    assert [relation.target_id for relation in left] == [twins[1].id], "the target may be gone"


@pytest.mark.requirement("CANVAS-10")
async def test_many_deletions_take_few_statements(world: World) -> None:
    nodes = world.nodes(60)
    child = world.node("Child", parent=nodes[7])
    commit = await world.put(*nodes, child)
    session = await world.open()
    with recorded() as statements:
        await world.stage(session, delete=nodes)
    assert len(statements) < 20
    async with world.store.database.connection() as conn:
        assert len(await staging.staged(conn, session)) == 60
        gone: dict[str, Entry | None] = {node.id: None for node in nodes}
        with recorded() as statements:
            verdict = await check_tree(Snapshot(conn, State(world.workspace, commit)), gone, set())
    assert len(statements) < 10
    assert [(conflict.node_id, conflict.theirs) for conflict in verdict.conflicts] == [
        (nodes[7].id, ChildValue(child.id))
    ]


@pytest.mark.requirement("USE-10")
async def test_the_pages_of_a_tree_are_the_tree(wire: Wire) -> None:
    top = await wire.create("Top")
    for number in range(3):
        child = await wire.create(f"Child {number}", parent_id=top.id)
        await wire.create(f"Below {number}", parent_id=child.id)
    whole = await wire("GetTree", revision=wire.session, node_id=top.id)
    paged: list[Any] = []
    token = ""
    while token or not paged:
        page = await wire("GetTree", revision=wire.session, node_id=top.id, page_size=2, page_token=token)
        assert len(page.nodes) <= 2
        paged += page.nodes
        token = page.next_page_token
    assert paged == list(whole.nodes)
    assert [one.last for one in paged] == [True, False, True, False, True, True, True]


# --- A batch of changes is made as a whole or not at all, and may use what it creates --------------------------------


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
