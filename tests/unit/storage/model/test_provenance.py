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
    is_older,
    summary_is_made,
    with_brief_by,
    with_provenance,
    without_provenance,
)

pytestmark = pytest.mark.requirement("FOREST-5")


def node(summary: str, made_of: str = "", pending: str = "", **fields: object) -> Node:
    attributes = with_provenance({"speaker": "Ada"}, "a model", made_of, pending) if made_of else {"speaker": "Ada"}
    return Node("0" * 16, "0" * 16, None, "a0", summary=summary, attributes=attributes, **fields)  # type: ignore[arg-type]


def test_hashes_differ_by_content_children_summaries_and_order() -> None:
    hashes = {
        hash_of_content(""),
        hash_of_content("a"),
        hash_of_children([]),
        hash_of_children([("a", "x"), ("b", "y")]),
        hash_of_children([("b", "y"), ("a", "x")]),
        hash_of_children([("a", "x")]),
        hash_of_children([("a", "x\nb y")]),
    }
    assert len(hashes) == 7 - (hash_of_content("") == hash_of_children([]))
    assert all(len(digest) == 16 for digest in hashes)


def test_provenance_is_set_and_removed_without_changing_other_attributes() -> None:
    told = with_provenance({"speaker": "Ada", SUMMARY_PENDING: PENDING_MODEL}, "x", "y")
    assert SUMMARY_PENDING not in told
    assert without_provenance(told) == {"speaker": "Ada"}


def test_two_generated_summaries_merge_to_the_same_one_from_both_sides() -> None:
    base, ours, theirs = node("s", "0"), node("by us", "1", brief="b1"), node("by them", "2", brief="b2")
    merged = [merge_entries(base, ours, theirs), merge_entries(base, theirs, ours)]
    assert merged[0] == merged[1]
    assert not merged[0].conflicts
    assert merged[0].entry == theirs


def test_a_summary_written_by_a_person_wins_over_a_generated_one() -> None:
    base, ours, theirs = node("s", "0"), node("my words"), node("made", "2")
    for result in (merge_entries(base, ours, theirs), merge_entries(base, theirs, ours)):
        assert not result.conflicts
        assert result.entry == ours


def test_summaries_written_by_two_people_conflict() -> None:
    base, ours, theirs = node("s", "0"), node("my words"), node("your words")
    assert [conflict.field for conflict in merge_entries(base, ours, theirs).conflicts] == ["summary"]


def test_a_changed_content_stays_marked_if_a_model_summary_is_merged() -> None:
    base = node("s", "0", PENDING_MODEL, content="a")
    ours, theirs = node("s", "0", PENDING_CONTENT, content="b"), node("finished", "0", content="a")
    for result in (merge_entries(base, ours, theirs), merge_entries(base, theirs, ours)):
        assert not result.conflicts
        assert isinstance(result.entry, Node)
        assert result.entry.content == "b"
        assert result.entry.attributes[SUMMARY_PENDING] == PENDING_CONTENT


def test_of_two_generated_summaries_that_of_the_changed_content_is_kept() -> None:
    """The base has none of the attributes yet, as a new note."""
    base = node("Old.", content="old", title="A")
    content, title = (
        node("New.", "1", content="new", title="A"),
        node("Made of the title.", "9", content="old", title="B"),
    )
    for result in (merge_entries(base, content, title), merge_entries(base, title, content)):
        assert not result.conflicts
        assert isinstance(result.entry, Node)
        assert (result.entry.title, result.entry.content, result.entry.summary) == ("B", "new", "New.")
        assert result.entry.attributes == content.attributes


def test_a_persons_summary_wins_over_one_that_follows_and_is_marked_as_older() -> None:
    base, ours, theirs = node("s", content="old"), node("made", "1", content="new"), node("my words", content="old")
    for result in (merge_entries(base, ours, theirs), merge_entries(base, theirs, ours)):
        assert not result.conflicts
        assert isinstance(result.entry, Node)
        assert (result.entry.summary, result.entry.content) == ("my words", "new")
        assert is_older(result.entry.attributes)


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
