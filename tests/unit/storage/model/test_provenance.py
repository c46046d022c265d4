"""The attributes with the provenance of a summary."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.model.attribute_names import SUMMARY_OF, SUMMARY_PENDING
from memotree_storage.model.merge import merge_entries
from memotree_storage.model.node import Node
from memotree_storage.model.provenance import (
    PENDING_CONTENT,
    PENDING_MODEL,
    PERSON,
    brief_is_made,
    hash_of_children,
    hash_of_content,
    summary_is_made,
    with_brief_by,
    with_provenance,
    without_provenance,
)

pytestmark = pytest.mark.requirement("FOREST-5")


def test_hashes_differ_by_content_children_summaries_and_order() -> None:
    one, other = ("a", "x"), ("b", "y")
    of_children = {hash_of_children(each) for each in ([], [one], [one, other], [other, one], [("a", "x\nb y")])}
    hashes = of_children | {hash_of_content(""), hash_of_content("a")}
    assert len(hashes) == 7 - (hash_of_content("") == hash_of_children([]))
    assert all(len(digest) == 16 for digest in hashes)


def test_provenance_is_set_and_removed_without_changing_other_attributes() -> None:
    told = with_provenance({"speaker": "Ada", SUMMARY_PENDING: PENDING_MODEL}, "x", "y")
    assert SUMMARY_PENDING not in told
    assert without_provenance(told) == {"speaker": "Ada"}


@given(st.data())
def test_briefs_and_summaries_conflict_only_between_persons_and_nothing_a_person_wrote_is_lost(
    data: st.DataObject,
) -> None:
    base, ours, theirs = (data.draw(texts_of_a_node()) for _ in range(3))
    result, mirrored = merge_entries(base, ours, theirs), merge_entries(base, theirs, ours)
    assert {conflict.field for conflict in result.conflicts} == {conflict.field for conflict in mirrored.conflicts}
    merged = result.entry
    assert isinstance(merged, Node)
    in_conflict = {conflict.field for conflict in result.conflicts}
    if not in_conflict:
        assert merged == mirrored.entry
    assert all(not conflict.field.startswith("attributes.") for conflict in result.conflicts)
    for field, is_made in (("summary", summary_is_made), ("brief", brief_is_made)):
        written = {
            getattr(side, field)
            for side in (ours, theirs)
            if not is_made(side.attributes)
            and (getattr(side, field) != getattr(base, field) or is_made(base.attributes))
        }
        assert (field in in_conflict) == (len(written) > 1)
        if len(written) == 1:
            assert getattr(merged, field) in written
            assert not is_made(merged.attributes)
    source = next((side for side in (ours, theirs) if side.content == merged.content), ours)
    if summary_is_made(merged.attributes) and "content" not in in_conflict:
        is_fresh = merged.attributes[SUMMARY_OF] == hash_of_content(merged.content)
        assert is_fresh or merged.attributes.get(SUMMARY_PENDING) == PENDING_CONTENT, source


@st.composite
def texts_of_a_node(draw: st.DrawFn) -> Node:
    """A node as the service leaves it: its summary, if it is generated, is of its content."""
    content = draw(st.sampled_from(["c1", "c2"]))
    made = draw(st.booleans())
    attributes = with_provenance({}, "x", hash_of_content(content)) if made else {}
    if draw(st.booleans()):
        attributes = with_brief_by(attributes, draw(st.sampled_from(["x", PERSON])))
    summary = f"of {content}" if made else draw(st.sampled_from(["mine", "yours"]))
    brief = f"brief of {content}" if brief_is_made(attributes) else draw(st.sampled_from(["my brief", "your brief"]))
    return Node("0" * 16, "1" * 16, None, "a0", brief=brief, summary=summary, content=content, attributes=attributes)
