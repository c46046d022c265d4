"""Creating, updating, moving, splitting and uniting nodes, alone and in batches."""

import threading
from typing import Any

import psycopg
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from integration.wires import Wire, family, rendered
from integration.worlds import World
from memotree_storage.commit.tree_check import check_tree
from memotree_storage.model.node import Entry, new_id
from memotree_storage.model.provenance import without_provenance
from memotree_storage.model.tokens import count_tokens
from memotree_storage.postgres import staging
from memotree_storage.postgres.tree import Snapshot, State

from memotree.canvas import summaries
from memotree.v1 import node_service_pb2 as pb
from memotree.v1 import types_pb2

SUMMARY = types_pb2.LEVEL_OF_DETAIL_SUMMARY
DETAIL = types_pb2.LEVEL_OF_DETAIL_DETAIL
REFERENCES = types_pb2.RELATION_TYPE_REFERENCES
EXTENDS = types_pb2.RELATION_TYPE_EXTENDS


@pytest.mark.requirement("CANVAS-3")
async def test_a_created_node_has_the_defaults_of_the_contract(wire: Wire) -> None:
    content = "Gardens need water. They need light as well. " * 10
    node = await wire.create("Gardens", content=content)
    assert (node.type, node.level, node.commit_id, node.parent_id) == ("note", DETAIL, "", "")
    assert node.content == content
    assert node.brief
    assert "\n" not in node.brief
    assert node.summary
    assert len(node.etag) == 40
    assert node.content_tokens == count_tokens(content)
    assert not (await wire("ListViews", revision=wire.session)).views


@pytest.mark.requirement("CANVAS-3")
async def test_a_created_node_keeps_every_field_that_is_given(wire: Wire) -> None:
    target = await wire.create("Target")
    source = types_pb2.Source(document_id="doc", start=3, end=9, page=2, heading="A > B", sha256="0" * 64)
    node_id = new_id()
    node = await wire.create(
        "All",
        node_id=node_id,
        parent_id=target.id,
        type="plan",
        content="text",
        brief="",
        summary="given",
        tags=["b", "a", "b"],
        attributes={"k": "v"},
        relations=[types_pb2.Relation(type=REFERENCES, target_id=target.id, description="why")],
        source=source,
        view_name="default",
        commit_message="because",
    )
    assert (node.id, node.type, node.parent_id, list(node.path)) == (node_id, "plan", target.id, [target.id])
    assert (node.brief, node.summary, list(node.tags)) == ("", "given", ["a", "b"])
    assert (dict(node.attributes), node.source) == ({"k": "v"}, source)
    assert [(r.type, r.target_id, r.description) for r in node.relations] == [(REFERENCES, target.id, "why")]
    assert await wire.get(node_id) == node
    assert f"[{node_id}]\n\ngiven" in await rendered(wire), "a new node stands in the view at SUMMARY"


@pytest.mark.requirement("CANVAS-3")
async def test_nothing_is_generated_when_it_is_switched_off_or_a_summary_is_given(wire: Wire) -> None:
    off = await wire.create("Off", content="Some text.", auto_generate_summary=False)
    given = await wire.create("Given", content="Some text.", summary="My own.")
    assert (off.brief, off.summary) == ("", "")
    assert (given.brief, given.summary) == ("", "My own.")


@pytest.mark.requirement("CANVAS-3")
async def test_the_archive_comes_from_the_parent_and_is_needed_without_one(wire: Wire) -> None:
    root = await wire.create("Root")
    child = await wire.create("Child", parent_id=root.id)
    assert child.archive_id == root.archive_id
    refusal = await wire.refused("CreateNode", title="Nowhere")
    assert (refusal.code, refusal.fields) == ("INVALID_ARGUMENT", ("archive_id",))
    await wire("CreateArchive", name="plans")
    refusal = await wire.refused("CreateNode", title="Two homes", parent_id=root.id, archive_id="plans")
    assert (refusal.code, refusal.fields) == ("INVALID_ARGUMENT", ("archive_id",))


@pytest.mark.requirement("CANVAS-3")
async def test_an_id_that_was_ever_used_is_refused(wire: Wire) -> None:
    node = await wire.create("Once")
    await wire.commit()
    await wire("DeleteNode", node_id=node.id)
    await wire.commit()
    refusal = await wire.refused("CreateNode", archive_id="notes", title="Twice", node_id=node.id)
    assert (refusal.code, refusal.reason) == ("ALREADY_EXISTS", "NODE_EXISTS")


@pytest.mark.requirement("CANVAS-3", "CANVAS-10")
async def test_a_position_counts_the_siblings_before_it(wire: Wire) -> None:
    for title, place in (("c", None), ("a", 0), ("b", 1), ("d", 99), ("e", None)):
        await wire.create(title, position=place)
    assert [title for title, _ in await wire.tree()] == ["a", "b", "c", "d", "e"]


@pytest.mark.requirement("CANVAS-4")
async def test_merge_replaces_what_is_given_unites_tags_and_merges_attributes(wire: Wire) -> None:
    node = await wire.create("Old", content="old", summary="s", tags=["a"], attributes={"x": "1", "y": "1"})
    found = await wire("UpdateNode", node_id=node.id, title="New", tags=["b"], attributes={"y": "2"})
    after = found.node
    assert (after.title, after.content, after.summary) == ("New", "old", "s")
    assert (list(after.tags), dict(after.attributes)) == (["a", "b"], {"x": "1", "y": "2"})
    assert after.etag != node.etag


@pytest.mark.requirement("CANVAS-4")
async def test_replace_makes_tags_and_attributes_exactly_those_given(wire: Wire) -> None:
    node = await wire.create("Old", content="old", tags=["a"], attributes={"x": "1", "y": "1"})
    mode = pb.UPDATE_MODE_REPLACE
    after = (await wire("UpdateNode", node_id=node.id, mode=mode, tags=["b"], attributes={"y": "2"})).node
    assert (list(after.tags), without_provenance(after.attributes), after.content) == (["b"], {"y": "2"}, "old")
    after = (await wire("UpdateNode", node_id=node.id, mode=mode, content="new")).node
    assert (list(after.tags), after.content) == (["b"], "new")


@pytest.mark.requirement("CANVAS-4")
@pytest.mark.parametrize(
    ("mode", "before", "given", "after"),
    [
        (pb.UPDATE_MODE_APPEND, "old", "new", "old\n\nnew"),
        (pb.UPDATE_MODE_PREPEND, "old", "new", "new\n\nold"),
        (pb.UPDATE_MODE_APPEND, "", "new", "new"),
        (pb.UPDATE_MODE_PREPEND, "", "new", "new"),
        (pb.UPDATE_MODE_APPEND, "old", "", "old"),
        (pb.UPDATE_MODE_MERGE, "old", "", ""),
    ],
)
async def test_text_joins_the_content_after_or_before_a_blank_line(
    wire: Wire, mode: int, before: str, given: str, after: str
) -> None:
    node = await wire.create("Old", content=before, tags=["a"])
    found = (await wire("UpdateNode", node_id=node.id, mode=mode, content=given, tags=["b"])).node
    assert found.content == after
    assert list(found.tags) == ["a", "b"]


@pytest.mark.requirement("CANVAS-4")
async def test_a_mask_distinguishes_empty_from_absent(wire: Wire) -> None:
    node = await wire.create(
        "Old", content="old", brief="b", summary="s", tags=["a"], attributes={"x": "1"}, type="plan"
    )
    mask = FieldMask(paths=["brief", "tags", "attributes"])
    after = (await wire("UpdateNode", node_id=node.id, title="not in the mask", update_mask=mask)).node
    assert (after.brief, list(after.tags), dict(after.attributes)) == ("", [], {})
    assert (after.title, after.content, after.summary, after.type) == ("Old", "old", "s", "plan")
    after = (await wire("UpdateNode", node_id=node.id, content="", summary="")).node
    assert (after.content, after.summary, after.title) == ("", "", "Old"), "a text that is present may be empty"
    refusal = await wire.refused("UpdateNode", node_id=node.id, update_mask=FieldMask(paths=["position"]))
    assert (refusal.code, refusal.fields) == ("INVALID_ARGUMENT", ("update_mask",))
    refusal = await wire.refused("UpdateNode", node_id=node.id)
    assert (refusal.code, refusal.fields) == ("INVALID_ARGUMENT", ("update_mask",))


@pytest.mark.requirement("CANVAS-4", "USE-3")
async def test_brief_and_summary_that_were_made_follow_the_content_at_once(wire: Wire) -> None:
    node = await wire.create("Budget", content="The budget is 40k a year.")
    told = await wire("UpdateNode", node_id=node.id, content="The budget is 45k a year.")
    assert (told.node.summary, told.node.brief) == ("The budget is 45k a year.",) * 2
    assert not told.warnings
    await wire.commit()
    for word, hits in (("40k", 0), ("45k", 1)):
        assert len((await wire("SearchNodes", query=word)).hits) == hits
    await wire("UpdateNode", node_id=node.id, content="The budget is 50k a year.")
    await wire("UpdateNode", node_id=node.id, content="The budget is 45k a year.")
    assert not (await wire("ListChanges")).changes, "an edit that is taken back leaves nothing staged"


@pytest.mark.requirement("CANVAS-4", "USE-3")
async def test_a_summary_that_was_given_stays_and_says_that_it_is_older_than_the_content(wire: Wire) -> None:
    node = await wire.create("Budget", content="It is 40k a year.", summary="What we may spend.", brief="Our limit.")
    assert not node.summary_older
    told = await wire("UpdateNode", node_id=node.id, content="It is 45k a year.")
    assert (told.node.summary, told.node.brief, told.node.summary_older) == ("What we may spend.", "Our limit.", True)
    assert any("regenerate_summary" in warning for warning in told.warnings)
    await wire.commit()
    assert (await wire("GetNode", node_id=node.id)).node.summary_older
    assert (await wire("SearchNodes", query="spend")).hits[0].node.summary_older
    given = (await wire("UpdateNode", node_id=node.id, summary="What we may spend now.")).node
    assert not given.summary_older
    again = await wire("UpdateNode", node_id=node.id, content="It is 50k a year.")
    assert again.node.summary_older
    made = (await wire("UpdateNode", node_id=node.id, regenerate_summary=True)).node
    assert (made.summary, made.summary_older) == ("It is 50k a year.", False)


@pytest.mark.requirement("CANVAS-4", "USE-3", "STORE-2")
async def test_sessions_that_change_other_fields_of_a_note_do_not_conflict_in_what_was_made(wire: Wire) -> None:
    changes: list[tuple[dict[str, Any], tuple[str, str, bool]]] = [
        ({"title": "Our budget"}, ("It is 45k a year.", "It is 45k a year.", False)),
        ({"brief": "My brief."}, ("My brief.", "It is 45k a year.", False)),
        ({"summary": "My summary."}, ("It is 45k a year.", "My summary.", True)),
        ({"tags": ["money"]}, ("It is 45k a year.", "It is 45k a year.", False)),
    ]
    for fields, expected in changes:
        node = await wire.create("Budget", content="It is 40k a year.")
        await wire.commit()
        ours = await wire.open()
        await wire("UpdateNode", node_id=node.id, content="It is 45k a year.")
        await wire.open()
        await wire("UpdateNode", node_id=node.id, **fields)
        await wire.commit()
        wire.session = ours
        await wire.commit()
        merged = await wire.get(node.id)
        assert (merged.brief, merged.summary, merged.summary_older) == expected, fields
        assert merged.content == "It is 45k a year."


@pytest.mark.requirement("USE-3")
async def test_a_new_title_is_in_the_brief_and_summary_of_a_note_without_content(wire: Wire) -> None:
    node = await wire.create("Call Ada")
    assert (node.brief, node.summary) == ("Call Ada", "Call Ada")
    node = (await wire("UpdateNode", node_id=node.id, title="Call Grace")).node
    assert (node.brief, node.summary) == ("Call Grace", "Call Grace")


@pytest.mark.requirement("USE-3")
async def test_a_brief_beside_a_given_summary_follows_the_content_and_a_given_brief_stays(wire: Wire) -> None:
    node = await wire.create("Budget", content="It is 40k a year.")
    node = (await wire("UpdateNode", node_id=node.id, summary="What we may spend.")).node
    node = (await wire("UpdateNode", node_id=node.id, content="It is 45k a year.")).node
    assert (node.brief, node.summary, node.summary_older) == ("It is 45k a year.", "What we may spend.", True)
    node = (await wire("UpdateNode", node_id=node.id, title="Our budget")).node
    assert node.summary_older, "another title does not make it fit"
    other = await wire.create("Budget", content="It is 40k a year.", brief="Our limit.")
    other = (await wire("UpdateNode", node_id=other.id, content="It is 45k a year.")).node
    assert (other.brief, other.summary) == ("Our limit.", "It is 45k a year.")


@pytest.mark.requirement("CANVAS-4")
async def test_a_level_alone_changes_the_view_and_nothing_else(wire: Wire) -> None:
    node = await wire.create("Node", content="the text")
    await wire.commit()
    after = (await wire("UpdateNode", node_id=node.id, level=DETAIL)).node
    assert after.etag == node.etag
    assert not (await wire("ListChanges")).changes
    assert "the text" in await rendered(wire)


@pytest.mark.requirement("CANVAS-4", "STORE-2")
async def test_a_stale_etag_is_refused_and_a_fresh_one_is_not(wire: Wire) -> None:
    node = await wire.create("Node", content="one")
    fresh = (await wire("UpdateNode", node_id=node.id, content="two", etag=node.etag)).node
    changes: list[tuple[str, dict[str, Any]]] = [
        ("UpdateNode", {"content": "three"}),
        ("MoveNode", {"position": 0}),
        ("DeleteNode", {}),
        ("SplitNode", {"parts": [pb.SplitPart(title="a"), pb.SplitPart(title="b")]}),
    ]
    for method, fields in changes:
        refusal = await wire.refused(method, node_id=node.id, etag=node.etag, **fields)
        assert (refusal.code, refusal.reason) == ("ABORTED", "STALE_ETAG")
        assert fresh.etag in refusal.message
    assert (await wire.get(node.id)).content == "two"
    await wire("DeleteNode", node_id=node.id, etag=fresh.etag)


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
    _, child, leaf = await family(wire)
    plans = (await wire("CreateArchive", name="plans")).archive
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
@pytest.mark.parametrize("kind", list(types_pb2.RelationType.values())[1:])
async def test_every_type_of_relation_can_be_added_described_and_removed(wire: Wire, kind: int) -> None:
    root, child, _ = await family(wire)
    relation = types_pb2.Relation(type=kind, target_id=child.id, description="first")  # type: ignore[arg-type]
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
async def test_a_move_below_a_parent_of_another_archive_than_the_named_one_is_refused(wire: Wire) -> None:
    root, child, leaf = await family(wire)
    await wire("CreateArchive", name="plans")
    refusal = await wire.refused("MoveNode", node_id=leaf.id, parent_id=root.id, archive_id="plans")
    assert (refusal.code, refusal.fields) == ("INVALID_ARGUMENT", ("archive_id",))
    assert await wire.children(child.id) == [leaf.id]
    moved = (await wire("MoveNode", node_id=leaf.id, parent_id=root.id, archive_id="notes")).node
    assert moved.parent_id == root.id


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


@pytest.mark.requirement("CANVAS-10")
async def test_many_deletions_take_few_statements(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = world.nodes(60)
    child = world.node("Child", parent=nodes[7])
    commit = await world.put(*nodes, child)
    session = await world.open()
    statements: list[Any] = []
    for name in ("execute", "executemany"):
        run = getattr(psycopg.AsyncCursor, name)

        async def counted(self: Any, *args: Any, run: Any = run, **fields: Any) -> Any:
            statements.append(args)
            return await run(self, *args, **fields)

        monkeypatch.setattr(psycopg.AsyncCursor, name, counted)
    await world.stage(session, delete=nodes)
    assert len(statements) < 20
    statements.clear()
    async with world.store.database.connection() as conn:
        assert len(await staging.staged(conn, session)) == 60
        gone: dict[str, Entry | None] = {node.id: None for node in nodes}
        verdict = await check_tree(Snapshot(conn, State(world.workspace, commit)), gone, set())
    assert len(statements) < 10
    assert [(conflict.node_id, conflict.theirs) for conflict in verdict.conflicts] == [
        (nodes[7].id, f"has {child.id} below it")
    ]


@pytest.mark.requirement("CANVAS-3")
@pytest.mark.parametrize("is_large", [False, True])
async def test_only_large_contents_are_worked_on_in_a_thread(
    world: World, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    threads: list[bool] = []
    encode_entry, brief_of = staging.encode_entry, summaries.brief_of

    def encoded(entry: Entry) -> bytes:
        threads.append(threading.current_thread() is not threading.main_thread())
        return encode_entry(entry)

    def brief(title: str, content: str) -> str:
        threads.append(threading.current_thread() is not threading.main_thread())
        return brief_of(title, content)

    monkeypatch.setattr(staging, "encode_entry", encoded)
    monkeypatch.setattr(summaries, "brief_of", brief)
    content = "word " * (20_000 if is_large else 20)
    await world.stage(await world.open(), world.node("Node", content=content))
    await summaries.summarise("Node", content)
    assert threads == [is_large, is_large]


@pytest.mark.requirement("USE-10")
async def test_a_node_is_found_by_id_title_and_path_as_the_session_has_it(wire: Wire) -> None:
    top = await wire.create("Gardens")
    water = await wire.create("Water", parent_id=top.id)
    light = await wire.create("Light", parent_id=top.id)

    async def named(name: str, **options: Any) -> list[str]:
        found = await wire("ResolveNode", revision=wire.session, name=name, **options)
        return [one.node.id for one in found.candidates]

    assert await named("Water") == [water.id]
    assert await named(water.id) == [water.id]
    assert await named("Gardens/Light") == [light.id]
    assert await named("Wat", prefix=True) == [water.id]
    await wire("UpdateNode", node_id=light.id, title="Water", session_id=wire.session)
    assert sorted(await named("Gardens/Water")) == sorted([water.id, light.id])
    assert await named("Light") == []
    assert not (await wire("ResolveNode", name="Water")).candidates


@pytest.mark.requirement("USE-10")
async def test_a_title_that_reads_like_an_id_is_taken_as_the_id_with_a_warning(wire: Wire) -> None:
    meant = await wire.create("Meant")
    other = await wire.create(meant.id)
    found = await wire("ResolveNode", revision=wire.session, name=meant.id)
    assert [one.node.id for one in found.candidates] == [meant.id]
    assert list(found.warnings) == [f"{meant.id!r} is taken as an id; a node with this title is {other.id}."]


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
