"""The node tools as an agent uses them, over gRPC: levels and views, changes, search, commits, sessions, archives."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp
from integration.wires import Refusal, Wire
from memotree_storage.git.repository import GitRepository
from memotree_storage.node import new_id
from memotree_storage.tokens import count_tokens

from memotree.server.app import Server
from memotree.v1 import node_service_pb2 as pb
from memotree.v1 import session_service_pb2, types_pb2

TITLE = types_pb2.LEVEL_OF_DETAIL_TITLE
BRIEF = types_pb2.LEVEL_OF_DETAIL_BRIEF
SUMMARY = types_pb2.LEVEL_OF_DETAIL_SUMMARY
DETAIL = types_pb2.LEVEL_OF_DETAIL_DETAIL
REFERENCES = types_pb2.RELATION_TYPE_REFERENCES
EXTENDS = types_pb2.RELATION_TYPE_EXTENDS

requirement = pytest.mark.requirement


async def family(wire: Wire) -> tuple[types_pb2.Node, types_pb2.Node, types_pb2.Node]:
    """A root, a child and a grandchild."""
    root = await wire.create("Root", content="The root of all.", brief="root brief", summary="root summary")
    child = await wire.create("Child", parent_id=root.id, content="Child content.", brief="b", summary="child summary")
    leaf = await wire.create("Leaf", parent_id=child.id, content="Leaf content.", summary="leaf summary")
    return root, child, leaf


async def rendered(wire: Wire, **fields: Any) -> str:
    return str((await wire("RenderView", revision=wire.session, **fields)).markdown)


@pytest.fixture
def repository(wire: Wire, wire_server: Server) -> Callable[[], Any]:
    """Opens the workspace's repository beside the server."""

    async def open_it() -> GitRepository:
        path = (await wire("GetWorkspace")).workspace.repository
        return GitRepository.open(Path(wire_server._settings.data_folder) / path)

    return open_it


# --- Levels and views ------------------------------------------------------------------------------------------------


@requirement("CANVAS-1")
@pytest.mark.parametrize(
    ("level", "text"),
    [
        (TITLE, "Root"),
        (BRIEF, "Root\n\nroot brief"),
        (SUMMARY, "Root\n\nroot summary"),
        (DETAIL, "Root\n\nThe root of all."),
        (0, "Root\n\nThe root of all."),
    ],
)
async def test_expanding_gives_the_text_at_the_level_and_detail_by_default(wire: Wire, level: int, text: str) -> None:
    root, _, _ = await family(wire)
    found = await wire("ExpandNode", revision=wire.session, node_id=root.id, level=level)
    assert found.text == text
    assert found.node.level == (level or DETAIL)
    assert list(found.children) == []
    assert list(found.relations) == []
    assert found.usage.nodes_expanded == (level != TITLE)


@requirement("CANVAS-1")
async def test_a_node_carries_just_the_texts_of_its_level(wire: Wire) -> None:
    root, _, _ = await family(wire)
    seen = [await wire.get(root.id, level=level) for level in (TITLE, BRIEF, SUMMARY, DETAIL)]
    assert [bool(node.brief) for node in seen] == [False, True, True, True]
    assert [bool(node.summary) for node in seen] == [False, False, True, True]
    assert [bool(node.content) for node in seen] == [False, False, False, True]


@requirement("CANVAS-1")
async def test_children_come_into_the_view_at_title_or_at_the_level_they_had(wire: Wire) -> None:
    root, child, leaf = await family(wire)
    await wire("ExpandNode", revision=wire.session, node_id=child.id, level=BRIEF)
    await wire("CollapseNode", revision=wire.session, node_id=root.id)
    second = await wire.create("Second", parent_id=root.id, content="more")
    found = await wire("ExpandNode", revision=wire.session, node_id=root.id, include_children=True)
    assert [node.id for node in found.children] == [child.id, second.id]
    assert {node.level for node in found.children} == {TITLE}
    text = await rendered(wire)
    assert f"## Child [{child.id}] (+1)\n\nb\n" in text
    assert f"## Second [{second.id}]" in text
    assert "more" not in text
    assert leaf.id not in text


@requirement("CANVAS-1", "CANVAS-10")
async def test_expanding_with_relations_shows_both_directions(wire: Wire) -> None:
    root, child, leaf = await family(wire)
    out = types_pb2.Relation(type=REFERENCES, target_id=leaf.id, description="see there")
    await wire("AddRelation", node_id=child.id, relation=out)
    back = types_pb2.Relation(type=EXTENDS, target_id=child.id, description="goes on")
    await wire("AddRelation", node_id=root.id, relation=back)
    found = await wire("ExpandNode", revision=wire.session, node_id=child.id, include_relations=True)
    seen = {(item.outgoing, item.source_id, item.relation.description, item.node.title) for item in found.relations}
    assert seen == {(True, child.id, "see there", "Leaf"), (False, root.id, "goes on", "Root")}


@requirement("CANVAS-1", "CANVAS-11")
async def test_a_view_shows_roots_at_title_and_hides_what_nobody_brought_in(wire: Wire) -> None:
    root, _, _ = await family(wire)
    other = await wire.create("Other")
    assert await rendered(wire) == f"# Root [{root.id}] (+1)\n\n# Other [{other.id}]\n"


@requirement("CANVAS-2")
async def test_collapsing_goes_back_to_title_and_hides_the_children(wire: Wire) -> None:
    root, child, _ = await family(wire)
    await wire("ExpandNode", revision=wire.session, node_id=root.id, include_children=True)
    await wire("ExpandNode", revision=wire.session, node_id=child.id, include_children=True)
    found = await wire("CollapseNode", revision=wire.session, node_id=root.id)
    assert found.node.level == TITLE
    assert (found.usage.nodes_shown, found.usage.nodes_expanded) == (1, 0)
    assert await rendered(wire) == f"# Root [{root.id}] (+1)\n"
    again = await wire("ExpandNode", revision=wire.session, node_id=root.id, include_children=True)
    assert again.usage.nodes_expanded == 2, "the child has the level it had"


@requirement("CANVAS-2")
async def test_collapsing_recursively_forgets_the_levels_of_the_whole_subtree(wire: Wire) -> None:
    root, child, leaf = await family(wire)
    for node in (root, child, leaf):
        await wire("ExpandNode", revision=wire.session, node_id=node.id, include_children=True)
    await wire("CollapseNode", revision=wire.session, node_id=root.id, recursive=True)
    again = await wire("ExpandNode", revision=wire.session, node_id=root.id, include_children=True)
    assert again.usage.nodes_expanded == 1
    assert again.usage.nodes_shown == 2


@requirement("CANVAS-11")
async def test_a_budget_is_kept_by_collapsing_the_least_recently_used_first(wire: Wire) -> None:
    nodes = [await wire.create(f"Node {number}", content="word " * 60) for number in range(4)]
    for number in (2, 0, 3, 1):
        await wire("ExpandNode", revision=wire.session, node_id=nodes[number].id)
    full = await wire("RenderView", revision=wire.session)
    assert full.usage.tokens_used == count_tokens(full.markdown)
    assert full.usage.nodes_expanded == 4
    budget = full.usage.tokens_used // 2 + 20
    cut = await wire("RenderView", revision=wire.session, token_budget=budget)
    assert list(cut.collapsed_ids) == [nodes[2].id, nodes[0].id]
    assert cut.usage.tokens_used == count_tokens(cut.markdown) <= budget
    assert (cut.usage.token_budget, cut.usage.nodes_expanded, cut.usage.nodes_shown) == (budget, 2, 4)
    assert (await wire("RenderView", revision=wire.session)).markdown == full.markdown, "the view keeps its levels"
    tiny = await wire("RenderView", revision=wire.session, token_budget=1)
    assert tiny.usage.nodes_expanded == 0
    assert any("Not even the titles" in warning for warning in tiny.warnings)


@requirement("CANVAS-15", "CANVAS-1")
async def test_views_are_apart_by_name_and_session_and_can_be_listed_and_deleted(wire: Wire) -> None:
    root, _, _ = await family(wire)
    await wire.commit()
    await wire("ExpandNode", revision=wire.session, view_name="plans", node_id=root.id)
    await wire("ExpandNode", revision=wire.session, node_id=root.id, level=BRIEF)
    await wire("ExpandNode", revision="main", view_name="of the branch", node_id=root.id)
    assert "root brief" in await rendered(wire)
    assert "The root of all." in await rendered(wire, view_name="plans")
    listed = (await wire("ListViews", revision=wire.session)).views
    assert [(view.name, view.scope, view.nodes_expanded) for view in listed] == [
        ("default", wire.session, 1),
        ("plans", wire.session, 1),
    ]
    assert [view.name for view in (await wire("ListViews")).views] == ["of the branch"]
    await wire("DeleteView", revision=wire.session, view_name="plans")
    assert "The root of all." not in await rendered(wire, view_name="plans")
    assert (await wire.refused("DeleteView", revision=wire.session, view_name="plans")).reason == "VIEW_NOT_FOUND"


@requirement("CANVAS-11", "CANVAS-15")
async def test_a_node_of_a_view_that_died_is_told_and_not_shown(wire: Wire) -> None:
    _, child, leaf = await family(wire)
    await wire("ExpandNode", revision=wire.session, node_id=leaf.id)
    await wire("DeleteNode", node_id=child.id, recursive=True)
    found = await wire("RenderView", revision=wire.session)
    assert leaf.id not in found.markdown
    assert any(leaf.id in warning for warning in found.warnings)


@requirement("CANVAS-11")
async def test_the_tree_comes_parents_first_with_depths_and_counts_what_it_leaves_out(wire: Wire) -> None:
    root, child, _ = await family(wire)
    await wire.create("Second", parent_id=root.id)
    whole = [("Root", 0), ("Child", 1), ("Leaf", 2), ("Second", 1)]
    assert await wire.tree() == whole
    assert await wire.tree(node_id=child.id) == [("Child", 0), ("Leaf", 1)]
    assert await wire.tree(archive="notes", max_depth=1) == [("Root", 0)]
    assert await wire.tree(node_id=root.id, max_depth=1) == [("Root", 0), ("Child", 1), ("Second", 1)]
    found = await wire("GetTree", revision=wire.session, archive="notes", max_nodes=3)
    assert (len(found.nodes), found.truncated) == (3, 1)
    assert found.nodes[1].node.path == [root.id]
    assert found.nodes[0].node.child_count == 2


# --- Creating and updating -------------------------------------------------------------------------------------------


@requirement("CANVAS-3")
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


@requirement("CANVAS-3")
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


@requirement("CANVAS-3")
async def test_nothing_is_generated_when_it_is_switched_off_or_a_summary_is_given(wire: Wire) -> None:
    off = await wire.create("Off", content="Some text.", auto_generate_summary=False)
    given = await wire.create("Given", content="Some text.", summary="My own.")
    assert (off.brief, off.summary) == ("", "")
    assert (given.brief, given.summary) == ("", "My own.")


@requirement("CANVAS-3")
async def test_the_archive_comes_from_the_parent_and_is_needed_without_one(wire: Wire) -> None:
    root = await wire.create("Root")
    child = await wire.create("Child", parent_id=root.id)
    assert child.archive_id == root.archive_id
    refusal = await wire.refused("CreateNode", title="Nowhere")
    assert (refusal.code, refusal.fields) == ("INVALID_ARGUMENT", ("archive_id",))
    await wire("CreateArchive", name="plans")
    refusal = await wire.refused("CreateNode", title="Two homes", parent_id=root.id, archive_id="plans")
    assert (refusal.code, refusal.fields) == ("INVALID_ARGUMENT", ("archive_id",))


@requirement("CANVAS-3")
async def test_an_id_that_was_ever_used_is_refused(wire: Wire) -> None:
    node = await wire.create("Once")
    await wire.commit()
    await wire("DeleteNode", node_id=node.id)
    await wire.commit()
    refusal = await wire.refused("CreateNode", archive_id="notes", title="Twice", node_id=node.id)
    assert (refusal.code, refusal.reason) == ("ALREADY_EXISTS", "NODE_EXISTS")


@requirement("CANVAS-3", "CANVAS-10")
async def test_a_position_counts_the_siblings_before_it(wire: Wire) -> None:
    for title, place in (("c", None), ("a", 0), ("b", 1), ("d", 99), ("e", None)):
        await wire.create(title, position=place)
    assert [title for title, _ in await wire.tree()] == ["a", "b", "c", "d", "e"]


@requirement("CANVAS-4")
async def test_merge_replaces_what_is_given_unites_tags_and_merges_attributes(wire: Wire) -> None:
    node = await wire.create("Old", content="old", summary="s", tags=["a"], attributes={"x": "1", "y": "1"})
    found = await wire("UpdateNode", node_id=node.id, title="New", tags=["b"], attributes={"y": "2"})
    after = found.node
    assert (after.title, after.content, after.summary) == ("New", "old", "s")
    assert (list(after.tags), dict(after.attributes)) == (["a", "b"], {"x": "1", "y": "2"})
    assert after.etag != node.etag


@requirement("CANVAS-4")
async def test_replace_makes_tags_and_attributes_exactly_those_given(wire: Wire) -> None:
    node = await wire.create("Old", content="old", tags=["a"], attributes={"x": "1", "y": "1"})
    mode = pb.UPDATE_MODE_REPLACE
    after = (await wire("UpdateNode", node_id=node.id, mode=mode, tags=["b"], attributes={"y": "2"})).node
    assert (list(after.tags), dict(after.attributes), after.content) == (["b"], {"y": "2"}, "old")
    after = (await wire("UpdateNode", node_id=node.id, mode=mode, content="new")).node
    assert (list(after.tags), after.content) == (["b"], "new")


@requirement("CANVAS-4")
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


@requirement("CANVAS-4")
async def test_a_mask_tells_empty_from_absent(wire: Wire) -> None:
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


@requirement("CANVAS-4")
async def test_summaries_are_made_anew_on_demand_and_a_stale_one_is_told(wire: Wire) -> None:
    node = await wire.create("Old", content="Roses are red.")
    told = await wire("UpdateNode", node_id=node.id, content="Violets are blue.")
    assert told.node.summary == node.summary
    assert any("regenerate_summary" in warning for warning in told.warnings)
    after = (await wire("UpdateNode", node_id=node.id, regenerate_summary=True)).node
    assert "Violets" in after.summary
    assert "Violets" in after.brief


@requirement("CANVAS-4")
async def test_a_level_alone_changes_the_view_and_nothing_else(wire: Wire) -> None:
    node = await wire.create("Node", content="the text")
    await wire.commit()
    after = (await wire("UpdateNode", node_id=node.id, level=DETAIL)).node
    assert after.etag == node.etag
    assert not (await wire("ListChanges")).changes
    assert "the text" in await rendered(wire)


@requirement("CANVAS-4", "STORE-2")
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


# --- Batches, moves, deletions, splits, unions -----------------------------------------------------------------------


@requirement("CANVAS-9")
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


@requirement("CANVAS-9", "CANVAS-7")
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


@requirement("CANVAS-10")
async def test_a_node_with_children_goes_only_with_them_and_dangling_relations_are_told(wire: Wire) -> None:
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


@requirement("CANVAS-10")
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


@requirement("CANVAS-10")
async def test_a_move_to_another_archive_takes_all_below_along(wire: Wire) -> None:
    _, child, leaf = await family(wire)
    plans = (await wire("CreateArchive", name="plans")).archive
    await wire("MoveNode", node_id=child.id, parent_id="", archive_id="plans")
    assert (await wire.get(leaf.id)).archive_id == plans.id
    assert await wire.tree(archive="plans") == [("Child", 0), ("Leaf", 1)]
    assert await wire.tree(archive="notes") == [("Root", 0)]


@requirement("CANVAS-10")
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


@requirement("CANVAS-10")
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
    assert (list(union.tags), dict(union.attributes)) == (["a", "b"], {"k": "first", "m": "x"})
    assert [relation.target_id for relation in union.relations] == [leaf.id]
    assert await wire.children(one.id) == [below.id]
    assert [relation.target_id for relation in (await wire.get(child.id)).relations] == [one.id]
    refusal = await wire.refused("MergeNodes", node_ids=[leaf.id, root.id])
    assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "CYCLE")


@requirement("CANVAS-10")
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


# --- Search ----------------------------------------------------------------------------------------------------------


@requirement("CANVAS-5")
@pytest.mark.parametrize(
    "kind", [0, pb.SEARCH_TYPE_FULL_TEXT, pb.SEARCH_TYPE_SEMANTIC, pb.SEARCH_TYPE_HYBRID], ids=lambda kind: str(kind)
)
async def test_a_hit_has_a_score_a_marked_preview_and_a_reason(wire: Wire, kind: int) -> None:
    await wire.create("Roses", content="A rose needs water and much sunlight to grow.", tags=["garden"])
    await wire.create("Engines", content="A diesel engine burns fuel under pressure.")
    await wire.commit()
    found = await wire("SearchNodes", query="roses sunlight", search_type=kind)
    best = found.hits[0]
    assert best.node.title == "Roses"
    assert all(0 <= hit.score <= 1 for hit in found.hits)
    assert [hit.score for hit in found.hits] == sorted((hit.score for hit in found.hits), reverse=True)
    assert "**sunlight**" in best.preview
    assert set(best.matched_terms) >= {"rose", "sunlight"}
    assert best.reason
    assert (best.lexical_score > 0, best.semantic_score > 0) == (
        kind != pb.SEARCH_TYPE_SEMANTIC,
        kind in {pb.SEARCH_TYPE_SEMANTIC, pb.SEARCH_TYPE_HYBRID},
    )
    assert found.commit_id


@requirement("CANVAS-5")
async def test_previews_have_their_length_and_can_be_left_out(wire: Wire) -> None:
    await wire.create("Long", content="word " * 500 + "needle " + "word " * 500)
    short = (await wire("SearchNodes", revision=wire.session, query="needle", preview_length=50)).hits[0].preview
    usual = (await wire("SearchNodes", revision=wire.session, query="needle")).hits[0].preview
    none = (await wire("SearchNodes", revision=wire.session, query="needle", include_preview=False)).hits[0].preview
    assert "**needle**" in short
    assert len(short) <= 54
    assert 150 < len(usual) <= 204
    assert none == ""


@requirement("CANVAS-5")
async def test_filters_and_the_number_of_results_narrow_a_search(wire: Wire) -> None:
    await wire("CreateArchive", name="plans")
    for number in range(12):
        await wire.create(f"apple {number}", tags=["even", "x"] if number % 2 == 0 else ["odd"])
    await wire("CreateNode", archive_id="plans", title="apple of plans", type="plan")
    assert len(await wire.search("apple")) == 10
    assert len(await wire.search("apple", max_results=3)) == 3
    assert len(await wire.search("apple", max_results=100)) == 13
    assert await wire.search("apple", node_types=["plan", "code"]) == ["apple of plans"]
    assert len(await wire.search("apple", tags=["even", "x"])) == 6
    assert await wire.search("apple", tags=["even", "odd"]) == []
    assert await wire.search("apple", archives=["plans"]) == ["apple of plans"]


@requirement("CANVAS-5")
async def test_scopes_limit_a_search_to_a_subtree_a_view_or_related_nodes(wire: Wire) -> None:
    root, child, leaf = await family(wire)
    for node in (root, child, leaf):
        await wire("UpdateNode", node_id=node.id, content="apple")
    outside = await wire.create("Outside", content="apple")
    assert set(await wire.search("apple")) == {"Root", "Child", "Leaf", "Outside"}
    subtree = {"scope": pb.SEARCH_SCOPE_SUBTREE, "scope_node_id": child.id}
    assert set(await wire.search("apple", **subtree)) == {"Child", "Leaf"}
    view = {"scope": pb.SEARCH_SCOPE_CURRENT_VIEW, "view_name": "mine"}
    assert set(await wire.search("apple", **view)) == {"Root", "Outside"}
    await wire("ExpandNode", revision=wire.session, view_name="mine", node_id=leaf.id)
    assert set(await wire.search("apple", **view)) == {"Root", "Outside", "Leaf"}
    await wire("AddRelation", node_id=outside.id, relation=types_pb2.Relation(type=EXTENDS, target_id=leaf.id))
    await wire("AddRelation", node_id=leaf.id, relation=types_pb2.Relation(type=REFERENCES, target_id=root.id))
    related = {"scope": pb.SEARCH_SCOPE_RELATED, "scope_node_id": outside.id}
    assert set(await wire.search("apple", **related)) == {"Leaf", "Root"}
    assert await wire.search("apple", **related, max_depth=1) == ["Leaf"]
    assert await wire.search("apple", **related, relation_types=[REFERENCES]) == []


@requirement("CANVAS-5")
@pytest.mark.parametrize(
    ("scope", "field"),
    [
        (pb.SEARCH_SCOPE_CURRENT_VIEW, "view_name"),
        (pb.SEARCH_SCOPE_SUBTREE, "scope_node_id"),
        (pb.SEARCH_SCOPE_RELATED, "scope_node_id"),
    ],
)
async def test_a_scope_without_its_argument_is_refused(wire: Wire, scope: int, field: str) -> None:
    refusal = await wire.refused("SearchNodes", query="apple", scope=scope)
    assert (refusal.code, refusal.fields) == ("INVALID_ARGUMENT", (field,))


@requirement("CANVAS-12")
async def test_a_search_along_relations_shows_the_way_in_both_directions(wire: Wire) -> None:
    a, b, c, d = [await wire.create(title, content=f"{title} text") for title in ("alpha", "beta", "gamma", "delta")]
    for source, kind, aim in ((a, REFERENCES, b), (c, EXTENDS, b), (c, REFERENCES, d)):
        relation = types_pb2.Relation(type=kind, target_id=aim.id, description="d")
        await wire("AddRelation", node_id=source.id, relation=relation)
    kind = pb.SEARCH_TYPE_RELATION

    async def ways(**fields: Any) -> dict[str, list[tuple[bool, str]]]:
        found = await wire("SearchNodes", revision=wire.session, search_type=kind, **fields)
        assert all(0 <= hit.score <= 1 and hit.reason for hit in found.hits)
        return {hit.node.title: [(step.outgoing, step.node.title) for step in hit.relation_path] for hit in found.hits}

    two_steps = {"beta": [(True, "beta")], "gamma": [(True, "beta"), (False, "gamma")]}
    assert await ways(scope_node_id=a.id) == two_steps
    assert await ways(query="alpha") == two_steps
    three = await ways(scope_node_id=a.id, max_depth=3)
    assert three["delta"] == [(True, "beta"), (False, "gamma"), (True, "delta")]
    assert await ways(scope_node_id=a.id, relation_types=[REFERENCES]) == {"beta": [(True, "beta")]}
    assert await ways(scope_node_id=d.id, max_depth=1) == {"gamma": [(False, "gamma")]}


@requirement("CANVAS-14")
async def test_unspaced_text_is_found_down_to_a_single_character(wire: Wire) -> None:
    await wire.create("机器学习入门", content="深度学习是机器学习的一个分支。")
    await wire.create("東京の天気", content="今日はとても暑いです。")
    await wire.create("서울", content="한국어 문장입니다.")
    await wire.commit()
    for query, title in (
        ("学", "机器学习入门"),
        ("分支", "机器学习入门"),
        ("机器学习", "机器学习入门"),
        ("暑", "東京の天気"),
        ("天気", "東京の天気"),
        ("문장", "서울"),
    ):
        assert await wire.search(query, revision="") == [title], query
    assert await wire.search("猫", revision="") == []


@requirement("CANVAS-14")
async def test_a_node_of_the_greatest_size_is_found_by_its_last_word(wire: Wire) -> None:
    filler = " ".join(f"w{number}" for number in range(200_000))[: 2**20 - 12]
    node = await wire.create("Big", content=f"{filler} lastzebra")
    assert await wire.search("lastzebra") == ["Big"]
    await wire.commit()
    found = await wire("SearchNodes", query="lastzebra")
    assert [hit.node.id for hit in found.hits] == [node.id]
    assert "**lastzebra**" in found.hits[0].preview


@requirement("CANVAS-5", "STORE-5", "GIT-4")
async def test_a_search_sees_the_session_the_branch_and_old_commits_each_as_they_are(wire: Wire) -> None:
    node = await wire.create("Node", content="zebra", auto_generate_summary=False)
    first = await wire.commit()
    await wire("UpdateNode", node_id=node.id, content="giraffe")
    assert (await wire.search("zebra"), await wire.search("giraffe")) == ([], ["Node"])
    assert (await wire.search("zebra", ""), await wire.search("giraffe", "")) == (["Node"], [])
    await wire.commit()
    assert (await wire.search("zebra", ""), await wire.search("giraffe", "")) == ([], ["Node"])
    assert (await wire.search("zebra", first), await wire.search("giraffe", first)) == (["Node"], [])


# --- Ids -------------------------------------------------------------------------------------------------------------


@requirement("CANVAS-13")
async def test_a_unique_prefix_of_four_characters_names_a_node(wire: Wire) -> None:
    same = "abcd"
    one, two = [await wire.create(f"Twin {end}", node_id=f"{same}{end * 12}") for end in ("0", "1")]
    assert (await wire.get("abcd0")).id == one.id
    assert (await wire("MoveNode", node_id="abcd1", parent_id="abcd0")).node.parent_id == one.id
    refusal = await wire.refused("GetNode", revision=wire.session, node_id=same)
    assert (refusal.code, refusal.reason, refusal.fields) == ("INVALID_ARGUMENT", "AMBIGUOUS_ID", ("node_id",))
    assert [(node.id, node.title) for node in refusal.nodes] == [(one.id, "Twin 0"), (two.id, "Twin 1")]
    await wire("DeleteNode", node_id=two.id)
    assert (await wire.get(same)).id == one.id, "only alive nodes count"
    refusal = await wire.refused("GetNode", revision=wire.session, node_id="abc")
    assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "INVALID_ID")


# --- Commits ---------------------------------------------------------------------------------------------------------


@requirement("CANVAS-6", "GIT-2")
async def test_a_commit_has_author_time_message_reasons_trailers_and_tag(
    wire: Wire, repository: Callable[[], Any]
) -> None:
    node = await wire.create("The title", commit_message="I had an idea")
    await wire("UpdateNode", node_id=node.id, content="more", commit_message="It grew")
    when = datetime(2021, 5, 4, 3, 2, 1, tzinfo=UTC)
    stamp = Timestamp()
    stamp.FromDatetime(when)
    author = types_pb2.CommitAuthor(name="Ada", email="ada@example.org", timestamp=stamp)
    found = await wire(
        "CommitChanges",
        message="Say it\n\nIn more words.",
        author=author,
        create_tag=True,
        tag_name="v1",
        request_id="r-1",
    )
    assert (found.branch, found.tag_name, found.change_count, found.remaining_changes) == ("main", "v1", 1, 0)
    with await repository() as git:
        info = git.commit_info(found.commit_id)
        assert (info.author.name, info.author.email, info.author.when) == ("Ada", "ada@example.org", when)
        assert info.committer.name == "MemoTree"
        subject, *rest = info.message.split("\n")
        assert subject == "Say it"
        body = "\n".join(rest)
        for part in ("In more words.", "The title", node.id, "I had an idea", "It grew"):
            assert part in body
        assert f"MemoTree-Session: {wire.session}\n" in info.message
        assert "MemoTree-Agent: tester\n" in info.message
        assert "MemoTree-Request: r-1\n" in info.message
        tag = git.read_tag(git.refs()["refs/tags/v1"])
        assert tag is not None
        assert tag.name == "v1"
        assert git.refs()["refs/heads/main"] == found.commit_id
    assert (await wire.get(node.id, "v1")).commit_id == found.commit_id


@requirement("CANVAS-6")
async def test_the_agent_of_the_session_is_the_author_unless_one_is_named(
    wire: Wire, repository: Callable[[], Any]
) -> None:
    await wire.create()
    commit_id = await wire.commit()
    with await repository() as git:
        assert git.commit_info(commit_id).author.name == "tester"


@requirement("CANVAS-6")
async def test_an_empty_session_an_existing_tag_and_a_tag_without_a_name_are_refused(wire: Wire) -> None:
    refusal = await wire.refused("CommitChanges", message="Nothing")
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "NOTHING_TO_COMMIT")
    await wire.create()
    await wire.commit(create_tag=True, tag_name="v1")
    await wire.create()
    before = await wire.snapshot()
    refusal = await wire.refused("CommitChanges", message="Again", create_tag=True, tag_name="v1")
    assert (refusal.code, refusal.reason) == ("ALREADY_EXISTS", "TAG_EXISTS")
    refusal = await wire.refused("CommitChanges", message="Again", create_tag=True)
    assert (refusal.code, refusal.fields) == ("INVALID_ARGUMENT", ("tag_name",))
    assert await wire.snapshot() == before
    node = await wire.create("Undone")
    await wire("DeleteNode", node_id=node.id)
    assert len((await wire("ListChanges")).changes) == 1, "what was made and unmade is no change"


@requirement("CANVAS-6")
async def test_a_choice_of_nodes_is_committed_and_the_rest_stays_staged(wire: Wire) -> None:
    one, two = await wire.create("One"), await wire.create("Two")
    found = await wire("CommitChanges", message="One", specific_nodes=[one.id[:8]])
    assert (found.change_count, found.remaining_changes) == (1, 1)
    assert await wire.children(revision="") == [one.id]
    assert await wire.children() == [one.id, two.id]
    assert [change.node_id for change in (await wire("ListChanges")).changes] == [two.id]


@requirement("CANVAS-6")
async def test_a_choice_that_would_leave_an_orphan_names_the_nodes_that_are_missing(wire: Wire) -> None:
    root, child, leaf = await family(wire)
    refusal = await wire.refused("CommitChanges", message="Leaf", specific_nodes=[leaf.id])
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "INCOMPLETE_CHOICE")
    assert [(node.id, node.title) for node in refusal.nodes] == [(child.id, "Child")]
    await wire.commit()
    await wire("DeleteNode", node_id=root.id, recursive=True)
    refusal = await wire.refused("CommitChanges", message="Top only", specific_nodes=[root.id])
    assert (refusal.code, [node.id for node in refusal.nodes]) == ("FAILED_PRECONDITION", [child.id])
    refusal = await wire.refused("CommitChanges", message="Top only", specific_nodes=[root.id, child.id])
    assert [node.title for node in refusal.nodes] == ["Leaf"], "a deleted node is named by its last title"
    refusal = await wire.refused("CommitChanges", message="Unknown", specific_nodes=[new_id()])
    assert (refusal.code, refusal.reason) == ("NOT_FOUND", "CHANGE_NOT_FOUND")
    await wire.commit("All", specific_nodes=[root.id, child.id, leaf.id])
    assert await wire.tree("") == []


async def outcome(work: Any) -> Any:
    """The answer, or how it was refused."""
    try:
        return await work
    except grpc.aio.AioRpcError as error:
        return Refusal.of(error)


@requirement("STORE-2")
async def test_disjoint_edits_of_two_clients_at_once_both_land(wire: Wire) -> None:
    node, second = await wire.create("Node", content="c"), await wire.create("Second")
    await wire.commit()
    other = await wire.other()
    await wire("UpdateNode", node_id=node.id, content="changed here")
    await other("UpdateNode", node_id=node.id, title="Changed there")
    await other("UpdateNode", node_id=second.id, content="more")
    ids = await asyncio.gather(wire.commit("Here"), other.commit("There"))
    assert len(set(ids)) == 2
    found = await wire.get(node.id, "")
    assert (found.content, found.title) == ("changed here", "Changed there")
    assert (await wire.get(second.id, "")).content == "more"


@requirement("STORE-2", "CANVAS-7")
async def test_edits_of_one_field_by_two_clients_at_once_end_in_a_conflict_that_loses_nothing(wire: Wire) -> None:
    node = await wire.create("Node", content="base")
    await wire.commit()
    other = await wire.other()
    await wire("UpdateNode", node_id=node.id, content="mine")
    await other("UpdateNode", node_id=node.id, content="yours")
    answers = await asyncio.gather(outcome(wire.commit("Mine")), outcome(other.commit("Yours")))
    lost = [answer for answer in answers if isinstance(answer, Refusal)]
    assert len(lost) == 1
    assert (lost[0].code, lost[0].reason) == ("ABORTED", "CONFLICT")
    first_won = answers[1] is lost[0]
    loser = other if first_won else wire
    conflict = lost[0].conflicts[0]
    assert (conflict.node_id, conflict.field, conflict.base) == (node.id, "content", "base")
    assert [conflict.ours, conflict.theirs] == (["yours", "mine"] if first_won else ["mine", "yours"])
    assert (await loser.get(node.id)).content == conflict.ours, "it is still staged"
    refusal = await loser.refused("RebaseSession")
    assert (refusal.code, len(refusal.conflicts)) == ("ABORTED", 1)
    await loser("DiscardChanges", node_ids=[node.id])
    await loser("RebaseSession")
    await loser("UpdateNode", node_id=node.id, content="both")
    await loser.commit("Both")
    assert (await wire.get(node.id, "")).content == "both"


@requirement("STORE-2", "CANVAS-6")
async def test_the_same_request_id_gives_one_commit_also_at_once(wire: Wire) -> None:
    await wire.create("Node")
    again = [wire("CommitChanges", message="Once", request_id="one") for _ in range(4)]
    answers = await asyncio.gather(*again)
    assert len({answer.commit_id for answer in answers}) == 1
    await wire.create("More")
    assert (await wire("CommitChanges", message="Once", request_id="one")).commit_id == answers[0].commit_id
    assert len((await wire("ListCommits")).commits) == 3
    refusal = await wire.refused("CommitChanges", message="Another", request_id="one")
    assert (refusal.code, refusal.reason, refusal.fields) == (
        "INVALID_ARGUMENT",
        "REQUEST_ID_REUSED",
        ("request_id",),
    )


@requirement("STORE-2", "CANVAS-3")
async def test_a_repeated_change_with_its_request_id_happens_once(wire: Wire) -> None:
    fields: dict[str, Any] = {"archive_id": "notes", "title": "Once", "request_id": "a"}
    first, second = await asyncio.gather(wire("CreateNode", **fields), wire("CreateNode", **fields))
    assert first == second
    append = {"node_id": first.node.id, "mode": pb.UPDATE_MODE_APPEND, "content": "x", "request_id": "b"}
    for _ in range(3):
        await wire("UpdateNode", **append)
    assert (await wire.get(first.node.id)).content == "x"
    opened = [await wire("OpenSession", request_id="c") for _ in range(2)]
    assert opened[0] == opened[1]


# --- Sessions and archives -------------------------------------------------------------------------------------------


@requirement("CANVAS-15", "STORE-5")
async def test_staged_changes_are_seen_in_their_session_alone(wire: Wire) -> None:
    node = await wire.create("Secret", content="zebra")
    other = await wire.other()
    for revision in ("", other.session):
        assert (await wire.refused("GetNode", node_id=node.id, revision=revision)).code == "NOT_FOUND"
        assert await wire.search("zebra", revision) == []
        assert await wire.children(revision=revision) == []
    assert (await wire.get(node.id)).title == "Secret"


@requirement("CANVAS-15")
async def test_a_session_tells_what_it_has_changed(wire: Wire) -> None:
    kept, gone = await wire.create("Kept", content="c"), await wire.create("Gone")
    await wire.commit()
    await wire("UpdateNode", node_id=kept.id, title="Renamed", commit_message="first")
    await wire("MoveNode", node_id=kept.id, position=1, commit_message="second")
    await wire("DeleteNode", node_id=gone.id)
    new = await wire.create("New")
    changes = {change.node_id: change for change in (await wire("ListChanges")).changes}
    assert {key: change.kind for key, change in changes.items()} == {
        kept.id: types_pb2.CHANGE_KIND_UPDATED,
        gone.id: types_pb2.CHANGE_KIND_DELETED,
        new.id: types_pb2.CHANGE_KIND_CREATED,
    }
    assert list(changes[kept.id].fields) == ["title", "position"]
    assert list(changes[kept.id].commit_messages) == ["first", "second"]
    assert list(changes[kept.id].tools) == ["MoveNode", "UpdateNode"]
    assert changes[gone.id].title == "Gone"
    assert (await wire("GetSession")).session.change_count == 3
    pages, token = [], ""
    while True:
        page = await wire("ListChanges", page_size=1, page_token=token)
        pages += [change.node_id for change in page.changes]
        token = page.next_page_token
        if not token:
            break
    assert pages == sorted(changes)


@requirement("CANVAS-15")
async def test_some_changes_can_be_discarded_when_the_others_do_not_need_them(wire: Wire) -> None:
    root, child, leaf = await family(wire)
    refusal = await wire.refused("DiscardChanges", node_ids=[child.id])
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "INCOMPLETE_CHOICE")
    assert [node.id for node in refusal.nodes] == [child.id]
    refusal = await wire.refused("DiscardChanges", node_ids=[new_id()])
    assert (refusal.code, refusal.reason) == ("NOT_FOUND", "CHANGE_NOT_FOUND")
    found = await wire("DiscardChanges", node_ids=[child.id, leaf.id])
    assert found.session.change_count == 1
    assert await wire.children() == [root.id]


@requirement("CANVAS-15")
async def test_a_discarded_session_forgets_its_changes_and_takes_no_more(wire: Wire) -> None:
    await wire.create("Node")
    await wire("ExpandNode", revision=wire.session, node_id=(await wire.children())[0])
    found = await wire("DiscardSession")
    assert found.session.state == session_service_pb2.SESSION_STATE_DISCARDED
    assert found.session.change_count == 0
    refusal = await wire.refused("CreateNode", archive_id="notes", title="Late")
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "SESSION_CLOSED")
    assert (await wire.refused("CommitChanges", message="Late")).reason == "SESSION_CLOSED"
    assert wire.session not in [one.id for one in (await wire("ListSessions")).sessions]
    assert wire.session in [one.id for one in (await wire("ListSessions", include_closed=True)).sessions]


@requirement("CANVAS-15")
async def test_an_idle_session_expires_and_use_keeps_it_alive(wire: Wire) -> None:
    await wire.open(ttl=Duration(nanos=1_000_000))
    found = (await wire("GetSession")).session
    while found.state != session_service_pb2.SESSION_STATE_EXPIRED:
        found = (await wire("GetSession")).session
    refusal = await wire.refused("CreateNode", archive_id="notes", title="Late")
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "SESSION_CLOSED")
    assert "expired" in refusal.message
    await wire.open(ttl=Duration(seconds=1000))
    before = (await wire("GetSession")).session
    await wire.create()
    after = (await wire("GetSession")).session
    assert after.expire_time.ToDatetime() > before.expire_time.ToDatetime()
    assert (await wire.refused("OpenSession", ttl=Duration(seconds=0))).fields == ("ttl",)


@requirement("CANVAS-15", "STORE-2")
async def test_a_session_is_bound_to_its_branch_and_not_to_the_name(wire: Wire) -> None:
    await wire("CreateBranch", name="side")
    await wire.open(branch="side")
    node = await wire.create("On the side")
    await wire("DeleteBranch", name="side")
    await wire("CreateBranch", name="side")
    before = (await wire("ListBranches")).branches
    for method, fields in (("CommitChanges", {"message": "Late"}), ("CreateNode", {"title": "Late"})):
        assert (await wire.refused(method, **fields)).code == "FAILED_PRECONDITION"
    assert (await wire("ListBranches")).branches == before
    assert (await wire.get(node.id)).title == "On the side", "what was staged can still be read"


@requirement("CANVAS-15")
async def test_archives_are_created_read_renamed_and_deleted_with_their_nodes(wire: Wire) -> None:
    made = (await wire("CreateArchive", name="plans", model_id="model", description="What is to come.")).archive
    assert (await wire("GetArchive", revision=wire.session, archive=made.id[:5])).archive == made
    assert (await wire("GetArchive", revision=wire.session, archive="plans")).archive == made
    refusal = await wire.refused("CreateArchive", name="plans")
    assert (refusal.code, refusal.reason) == ("ALREADY_EXISTS", "ARCHIVE_EXISTS")
    root = (await wire("CreateNode", archive_id="plans", title="Root")).node
    await wire("CreateNode", parent_id=root.id, title="Child")
    renamed = (await wire("UpdateArchive", archive="plans", name="ideas")).archive
    assert (renamed.id, renamed.name, renamed.model_id) == (made.id, "ideas", "model")
    refusal = await wire.refused("UpdateArchive", archive="ideas", name="notes")
    assert refusal.reason == "ARCHIVE_EXISTS"
    refusal = await wire.refused("UpdateArchive", archive="ideas", description="d", etag=made.etag)
    assert (refusal.code, refusal.reason) == ("ABORTED", "STALE_ETAG")
    await wire.commit("Ideas")
    assert [archive.name for archive in (await wire("ListArchives")).archives] == ["ideas", "notes"]
    assert (await wire("DeleteArchive", archive="ideas")).deleted_nodes == 2
    await wire.commit("No ideas")
    assert [archive.name for archive in (await wire("ListArchives")).archives] == ["notes"]
    assert (await wire.refused("GetNode", node_id=root.id)).code == "NOT_FOUND"


@requirement("CANVAS-15")
async def test_workspaces_are_read_renamed_and_deleted_into_the_trash(wire: Wire, wire_server: Server) -> None:
    node = await wire.create("Node")
    await wire.commit()
    found = (await wire("GetWorkspace")).workspace
    assert (found.name, found.default_branch) == (wire.workspace, "main")
    assert wire.workspace in [one.name for one in (await wire("ListWorkspaces", page_size=1000)).workspaces]
    renamed = f"{wire.workspace}-2"
    await wire("UpdateWorkspace", name=renamed, description="Renamed.")
    assert (await wire.refused("GetWorkspace")).reason == "WORKSPACE_NOT_FOUND"
    again = (await wire("GetWorkspace", workspace=found.id)).workspace
    assert (again.id, again.name, again.description) == (found.id, renamed, "Renamed.")
    wire.workspace = renamed
    assert (await wire.get(node.id)).title == "Node"
    refusal = await wire.refused("DeleteWorkspace", confirm_name="something else")
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "NOT_CONFIRMED")
    trash = (await wire("DeleteWorkspace", confirm_name=renamed)).trash
    assert (Path(wire_server._settings.data_folder) / trash / "HEAD").is_file()
    assert (await wire.refused("GetNode", node_id=node.id)).code == "NOT_FOUND"


@requirement("CANVAS-7")
async def test_a_summary_nodes_content_is_made_and_not_edited(wire: Wire) -> None:
    node = await wire.create("Parent", type="summary_node")
    for method, fields in (
        ("UpdateNode", {"node_id": node.id, "content": "mine"}),
        ("CreateNode", {"archive_id": "notes", "title": "x", "type": "summary_node", "content": "mine"}),
        ("SplitNode", {"node_id": node.id, "parts": [pb.SplitPart(title="a"), pb.SplitPart(title="b")]}),
    ):
        refusal = await wire.refused(method, **fields)
        assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "DERIVED_CONTENT")
