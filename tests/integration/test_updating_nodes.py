"""An update changes what is given, keeps the rest, and what was made from the content follows it."""

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from integration.wires import Wire, rendered
from memotree_storage.model.provenance import without_provenance

from memotree.v1 import node_service_pb2 as pb
from memotree.v1 import types_pb2

DETAIL = types_pb2.LEVEL_OF_DETAIL_DETAIL


@pytest.mark.requirement("CANVAS-4")
async def test_merge_adds_to_tags_and_attributes_and_replace_makes_them_exactly_those_given(wire: Wire) -> None:
    node = await wire.create("Old", content="old", summary="s", tags=["a"], attributes={"x": "1", "y": "1"})
    after = (await wire("UpdateNode", node_id=node.id, title="New", tags=["b"], attributes={"y": "2"})).node
    assert (after.title, after.content, after.summary) == ("New", "old", "s")
    assert (list(after.tags), dict(after.attributes)) == (["a", "b"], {"x": "1", "y": "2"})
    assert after.etag != node.etag
    mode = pb.UPDATE_MODE_REPLACE
    after = (await wire("UpdateNode", node_id=node.id, mode=mode, tags=["b"], attributes={"y": "2"})).node
    assert (list(after.tags), without_provenance(after.attributes), after.content) == (["b"], {"y": "2"}, "old")
    after = (await wire("UpdateNode", node_id=node.id, mode=mode, content="new")).node
    assert (list(after.tags), after.content) == (["b"], "new")


@pytest.mark.requirement("CANVAS-4")
async def test_text_joins_the_content_after_or_before_a_blank_line(wire: Wire) -> None:
    for mode, before, given, after in (
        (pb.UPDATE_MODE_APPEND, "old", "new", "old\n\nnew"),
        (pb.UPDATE_MODE_PREPEND, "old", "new", "new\n\nold"),
        (pb.UPDATE_MODE_APPEND, "", "new", "new"),
        (pb.UPDATE_MODE_PREPEND, "", "new", "new"),
        (pb.UPDATE_MODE_APPEND, "old", "", "old"),
        (pb.UPDATE_MODE_MERGE, "old", "", ""),
    ):
        node = await wire.create("Old", content=before, tags=["a"])
        found = (await wire("UpdateNode", node_id=node.id, mode=mode, content=given, tags=["b"])).node
        assert (found.content, list(found.tags)) == (after, ["a", "b"]), (mode, before, given)


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


@pytest.mark.requirement("USE-3")
async def test_a_brief_beside_a_given_summary_follows_the_content_and_a_given_brief_stays(wire: Wire) -> None:
    named = await wire.create("Call Ada")
    assert (named.brief, named.summary) == ("Call Ada", "Call Ada"), "without content they follow the title"
    named = (await wire("UpdateNode", node_id=named.id, title="Call Grace")).node
    assert (named.brief, named.summary) == ("Call Grace", "Call Grace")
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
    parts = [pb.SplitPart(title="a"), pb.SplitPart(title="b")]
    for method, fields in (("UpdateNode", {"content": "three"}), ("SplitNode", {"parts": parts})):
        refusal = await wire.refused(method, node_id=node.id, etag=node.etag, **fields)
        assert (refusal.code, refusal.reason) == ("ABORTED", "STALE_ETAG")
        assert fresh.etag in refusal.message
    assert (await wire.get(node.id)).content == "two"
    await wire("DeleteNode", node_id=node.id, etag=fresh.etag)
