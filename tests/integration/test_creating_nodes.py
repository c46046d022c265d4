"""A new node: its defaults, its fields, its place and its id."""

import pytest
from integration.wires import Wire, rendered
from memotree_storage.model.node import new_id
from memotree_storage.model.tokens import count_tokens

from memotree.v1 import types_pb2

SUMMARY = types_pb2.LEVEL_OF_DETAIL_SUMMARY
DETAIL = types_pb2.LEVEL_OF_DETAIL_DETAIL
REFERENCES = types_pb2.RELATION_TYPE_REFERENCES


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
    off = await wire.create("Off", content="Some text.", auto_generate_summary=False)
    given = await wire.create("Given", content="Some text.", summary="My own.")
    assert (off.brief, off.summary, given.brief, given.summary) == ("", "", "", "My own."), "nothing is generated"


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
