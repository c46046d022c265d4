"""Levels of detail, views, rendering within a budget, and the tree."""

import pytest
from integration.wires import Wire, family, rendered
from memotree_storage.model.tokens import count_tokens

from memotree.canvas import view_rendering as shown_module
from memotree.v1 import types_pb2

TITLE = types_pb2.LEVEL_OF_DETAIL_TITLE
BRIEF = types_pb2.LEVEL_OF_DETAIL_BRIEF
SUMMARY = types_pb2.LEVEL_OF_DETAIL_SUMMARY
DETAIL = types_pb2.LEVEL_OF_DETAIL_DETAIL
REFERENCES = types_pb2.RELATION_TYPE_REFERENCES
EXTENDS = types_pb2.RELATION_TYPE_EXTENDS


@pytest.mark.requirement("CANVAS-1")
async def test_expanding_gives_the_text_at_the_level_and_detail_by_default(wire: Wire) -> None:
    root, _, _ = await family(wire)
    for level, text in (
        (TITLE, "Root"),
        (BRIEF, "Root\n\nroot brief"),
        (SUMMARY, "Root\n\nroot summary"),
        (DETAIL, "Root\n\nThe root of all."),
        (0, "Root\n\nThe root of all."),
    ):
        found = await wire("ExpandNode", revision=wire.session, node_id=root.id, level=level)
        assert (found.text, found.node.level) == (text, level or DETAIL)
        assert (list(found.children), list(found.relations)) == ([], [])
        assert found.usage.nodes_expanded == (level != TITLE)
    seen = [await wire.get(root.id, level=level) for level in (TITLE, BRIEF, SUMMARY, DETAIL)]
    assert [bool(node.brief) for node in seen] == [False, True, True, True]
    assert [bool(node.summary) for node in seen] == [False, False, True, True]
    assert [bool(node.content) for node in seen] == [False, False, False, True]


async def test_a_view_has_staged_nodes_whose_parent_others_deleted(wire: Wire) -> None:
    top = await wire.create("Top")
    await wire.commit()
    other = await wire.other()
    further = await wire.create("Another")
    child = await wire.create("Below", parent_id=top.id)
    leaf = await wire.create("Leaf", parent_id=child.id)
    for node in (child, leaf):
        await wire("ExpandNode", revision=wire.session, node_id=node.id)
    await other("DeleteNode", node_id=top.id)
    await other.commit("Theirs")
    await wire.commit("Another", specific_nodes=[further.id])
    text = await rendered(wire)
    assert "Below" in text
    assert "Leaf" in text


@pytest.mark.requirement("CANVAS-1")
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


@pytest.mark.requirement("CANVAS-1", "CANVAS-10")
async def test_expanding_with_relations_shows_both_directions(wire: Wire) -> None:
    root, child, leaf = await family(wire)
    out = types_pb2.Relation(type=REFERENCES, target_id=leaf.id, description="see there")
    await wire("AddRelation", node_id=child.id, relation=out)
    back = types_pb2.Relation(type=EXTENDS, target_id=child.id, description="goes on")
    await wire("AddRelation", node_id=root.id, relation=back)
    found = await wire("ExpandNode", revision=wire.session, node_id=child.id, include_relations=True)
    seen = {(item.outgoing, item.source_id, item.relation.description, item.node.title) for item in found.relations}
    assert seen == {(True, child.id, "see there", "Leaf"), (False, root.id, "goes on", "Root")}


@pytest.mark.requirement("CANVAS-2")
async def test_collapsing_hides_the_children_and_recursively_forgets_the_levels_of_the_subtree(wire: Wire) -> None:
    root, child, leaf = await family(wire)
    await wire("ExpandNode", revision=wire.session, node_id=root.id, include_children=True)
    await wire("ExpandNode", revision=wire.session, node_id=child.id, include_children=True)
    found = await wire("CollapseNode", revision=wire.session, node_id=root.id)
    assert found.node.level == TITLE
    assert (found.usage.nodes_shown, found.usage.nodes_expanded) == (1, 0)
    shown = await wire("RenderView", revision=wire.session)
    assert (shown.markdown, shown.usage) == (f"# Root [{root.id}] (+1)\n", found.usage)
    again = await wire("ExpandNode", revision=wire.session, node_id=root.id, include_children=True)
    assert again.usage.nodes_expanded == 2, "the child has the level it had"
    assert again.usage == (await wire("RenderView", revision=wire.session)).usage
    await wire("ExpandNode", revision=wire.session, node_id=leaf.id, include_children=True)
    await wire("CollapseNode", revision=wire.session, node_id=root.id, recursive=True)
    again = await wire("ExpandNode", revision=wire.session, node_id=root.id, include_children=True)
    assert again.usage.nodes_expanded == 1
    assert again.usage.nodes_shown == 2


@pytest.mark.requirement("CANVAS-11")
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


@pytest.mark.requirement("CANVAS-2", "CANVAS-11")
async def test_a_budget_that_collapsing_keeps_is_kept_among_many_roots(wire: Wire) -> None:
    roots = [await wire.create(f"Root {number}") for number in range(55)]
    for number in range(3):
        await wire.create(f"Child {number}", parent_id=roots[30].id)
    await wire("ExpandNode", revision=wire.session, node_id=roots[30].id, include_children=True)
    least = (await wire("CollapseNode", revision=wire.session, node_id=roots[30].id, recursive=True)).usage.tokens_used
    await wire("ExpandNode", revision=wire.session, node_id=roots[30].id, include_children=True)
    cut = await wire("RenderView", revision=wire.session, token_budget=least)
    assert (cut.usage.tokens_used, cut.usage.nodes_shown) == (least, 55)
    assert list(cut.collapsed_ids) == [roots[30].id]
    assert not cut.warnings
    (warning,) = (await wire("RenderView", revision=wire.session, token_budget=least - 1)).warnings
    assert "name one archive" in warning
    assert f"raise the budget to {least}" in warning
    alone = await wire("RenderView", revision=wire.session, token_budget=least - 1, archive="notes")
    assert "name one archive" not in alone.warnings[0]


@pytest.mark.requirement("CANVAS-15", "CANVAS-1")
async def test_views_are_separate_by_name_and_session_and_can_be_listed_and_deleted(wire: Wire) -> None:
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


@pytest.mark.requirement("CANVAS-11", "CANVAS-15")
async def test_a_deleted_node_and_roots_that_a_view_cannot_show_are_reported(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, child, leaf = await family(wire)
    await wire("ExpandNode", revision=wire.session, node_id=leaf.id)
    await wire("DeleteNode", node_id=child.id, recursive=True)
    monkeypatch.setattr(shown_module, "_MOST_NODES", 2)
    for number in range(2):
        await wire.create(f"Root {number}")
    found = await wire("RenderView", revision=wire.session)
    assert leaf.id not in found.markdown
    assert found.usage.nodes_shown == 2
    gone, cut = found.warnings
    assert leaf.id in gone
    assert "notes" in cut
    assert "2 roots" in cut


@pytest.mark.requirement("CANVAS-1", "CANVAS-11")
async def test_the_tree_comes_parents_first_with_depths_and_a_new_view_shows_its_roots_by_title(wire: Wire) -> None:
    root, child, _ = await family(wire)
    other = await wire.create("Other")
    assert await rendered(wire) == f"# Root [{root.id}] (+1)\n\n# Other [{other.id}]\n"
    await wire("DeleteNode", node_id=other.id)
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


@pytest.mark.requirement("CANVAS-1", "CANVAS-2")
async def test_what_is_expanded_below_a_collapsed_node_is_shown(wire: Wire) -> None:
    root, child, leaf = await family(wire)
    await wire("ExpandNode", revision=wire.session, node_id=root.id, include_children=True)
    await wire("ExpandNode", revision=wire.session, node_id=leaf.id)
    await wire("CollapseNode", revision=wire.session, node_id=root.id)
    assert leaf.id not in await rendered(wire), "it was used before its ancestor was hidden"
    await wire("ExpandNode", revision=wire.session, node_id=leaf.id)
    text = await rendered(wire)
    assert f"## Leaf [{leaf.id}]\n\nLeaf content.\n" in text
    assert child.id not in text
    fresh = await wire.create("Fresh", parent_id=child.id, summary="new here", view_name="default")
    assert f"## Fresh [{fresh.id}]\n\nnew here\n" in await rendered(wire)
