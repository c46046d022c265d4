"""Moving, splitting, uniting, relating and deleting nodes keeps the tree whole, and its pages show all of it."""

from typing import Any

import pytest
from integration.statements import recorded
from integration.wires import Wire, family
from integration.worlds import World
from memotree_storage.conflicts import ChildValue
from memotree_storage.mirror.tree_check import check_tree
from memotree_storage.model.node import Entry
from memotree_storage.model.provenance import without_provenance
from memotree_storage.postgres import staging
from memotree_storage.postgres.tree import Snapshot, State

from memotree.v1 import node_service_pb2 as pb
from memotree.v1 import types_pb2

REFERENCES = types_pb2.RELATION_TYPE_REFERENCES


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
