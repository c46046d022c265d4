"""The attributes with the provenance of a summary."""

import pytest
from memotree_storage.model.attribute_names import SUMMARY_PENDING
from memotree_storage.model.merge import merge_entries
from memotree_storage.model.node import Node
from memotree_storage.model.provenance import (
    PENDING_CONTENT,
    PENDING_MODEL,
    hash_of_children,
    hash_of_content,
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


def test_a_persons_summary_and_one_that_follows_a_new_note_conflict() -> None:
    base, ours, theirs = node("s", content="old"), node("made", "1", content="new"), node("my words", content="old")
    assert [conflict.field for conflict in merge_entries(base, ours, theirs).conflicts] == ["summary"]
