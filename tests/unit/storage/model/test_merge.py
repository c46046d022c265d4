"""The three-way merge by example; the property tests compare it with a plain model."""

from dataclasses import replace

import pytest
from memotree_storage.conflicts import Absence, ArchiveValue, FieldValue, NodeValue, Place, RelationValue, SourceValue
from memotree_storage.model.attribute_names import SUMMARY_PENDING
from memotree_storage.model.merge import MergeResult, merge_entries
from memotree_storage.model.node import Archive, Node, Relation, Source
from memotree_storage.model.provenance import PENDING_CONTENT

ID = "7xk2m9qd4tnvw0ha"
A, B, C = "c41hz8rjy6ksm3pe", "0d9vq2fgw7bnx5tj", "5sc6yp1ewk8mz3rb"
BASE = Node(
    ID, A, B, "a1", title="T", content="old", tags=("x", "y"), attributes={"k": "1"}, relations=(Relation("ABOUT", C),)
)


def fields(result: MergeResult) -> list[str]:
    return [conflict.field for conflict in result.conflicts]


def sides(result: MergeResult, field: str | None = None) -> tuple[FieldValue | None, ...]:
    """The values of the only conflict, or of that about a field."""
    (found,) = (conflict for conflict in result.conflicts if field in (None, conflict.field))
    return found.base, found.ours, found.theirs


@pytest.mark.requirement("GIT-6")
def test_content_here_and_summary_there_merge() -> None:
    result = merge_entries(BASE, replace(BASE, content="new"), replace(BASE, summary="s", brief="b"))
    marked = {**BASE.attributes, SUMMARY_PENDING: PENDING_CONTENT}
    assert result == MergeResult(replace(BASE, content="new", summary="s", brief="b", attributes=marked))


@pytest.mark.requirement("GIT-6", "USE-12")
def test_an_end_here_and_a_later_beginning_there_conflict() -> None:
    ours = replace(BASE, attributes={**BASE.attributes, "valid_to": "2024-06-01"})
    theirs = replace(BASE, attributes={**BASE.attributes, "valid_from": "2024-07-01"})
    for both in ((ours, theirs), (theirs, ours)):
        assert fields(merge_entries(BASE, *both)) == ["attributes.valid_to"]
    sooner = replace(BASE, attributes={**BASE.attributes, "valid_from": "2024-05-01"})
    assert not merge_entries(BASE, ours, sooner).conflicts
    assert sides(merge_entries(BASE, ours, theirs)) == (Absence.NONE, "2024-06-01", Absence.NONE)


@pytest.mark.requirement("GIT-6")
def test_the_same_field_changed_twice_is_a_conflict_with_all_three_values() -> None:
    result = merge_entries(BASE, replace(BASE, content="ours"), replace(BASE, content="theirs", title="T2"))
    assert [(conflict.node_id, conflict.field) for conflict in result.conflicts] == [(ID, "content")]
    assert sides(result) == ("old", "ours", "theirs")
    assert result.entry == replace(BASE, content="ours", title="T2")


def test_the_same_change_on_both_sides_is_no_conflict() -> None:
    changed = replace(BASE, content="new")
    assert merge_entries(BASE, replace(changed, brief="b"), changed) == MergeResult(replace(changed, brief="b"))


def test_tags_added_and_removed_on_both_sides_are_kept() -> None:
    result = merge_entries(BASE, replace(BASE, tags=("x", "z")), replace(BASE, tags=("w", "x", "y")))
    assert result == MergeResult(replace(BASE, tags=("w", "x", "z")))


def test_attributes_merge_key_by_key() -> None:
    ours, theirs = replace(BASE, attributes={"k": "1", "a": "1"}), replace(BASE, attributes={"b": "2"})
    assert merge_entries(BASE, ours, theirs) == MergeResult(replace(BASE, attributes={"a": "1", "b": "2"}))
    clash = merge_entries(BASE, replace(BASE, attributes={"k": "2"}), replace(BASE, attributes={}))
    assert fields(clash) == ["attributes.k"]
    assert sides(clash) == ("1", "2", Absence.NONE)


def test_relations_merge_by_type_and_target() -> None:
    ours = replace(BASE, relations=(Relation("ABOUT", B), Relation("ABOUT", C)))
    theirs = replace(BASE, relations=(Relation("ABOUT", C, "why"),))
    assert merge_entries(BASE, ours, theirs) == MergeResult(
        replace(BASE, relations=(Relation("ABOUT", B), Relation("ABOUT", C, "why")))
    )
    clash = merge_entries(BASE, replace(BASE, relations=(Relation("ABOUT", C, "w"),)), theirs)
    assert fields(clash) == [f"relations.ABOUT.{C}"]
    assert sides(clash) == tuple(RelationValue("ABOUT", C, text) for text in ("", "w", "why"))
    gone = merge_entries(BASE, replace(BASE, relations=()), theirs)
    assert sides(gone) == (RelationValue("ABOUT", C), Absence.NONE, RelationValue("ABOUT", C, "why"))


@pytest.mark.requirement("CANVAS-10")
def test_a_move_includes_its_position() -> None:
    moved = replace(BASE, parent_id=C, position="a9")
    shifted = replace(BASE, position="a5", content="new")
    for result in (merge_entries(BASE, moved, shifted), merge_entries(BASE, shifted, moved)):
        assert result == MergeResult(replace(moved, content="new"))


def test_two_places_for_one_node_are_a_conflict() -> None:
    result = merge_entries(BASE, replace(BASE, parent_id=C), replace(BASE, parent_id=None, archive_id=B))
    assert fields(result) == ["parent"]
    assert sides(result) == (Place(A, B, "a1"), Place(A, C, "a1"), Place(B, "", "a1"))


def test_positions_never_conflict() -> None:
    ours, theirs = replace(BASE, parent_id=C, position="a2"), replace(BASE, parent_id=C, position="a3")
    assert merge_entries(BASE, ours, theirs) == MergeResult(ours)
    assert merge_entries(BASE, replace(BASE, position="a2"), replace(BASE, position="a3")).conflicts == ()
    assert merge_entries(BASE, BASE, replace(BASE, position="a3")) == MergeResult(replace(BASE, position="a3"))


@pytest.mark.requirement("GIT-6")
def test_a_deletion_against_a_change_is_a_conflict_about_the_whole_node() -> None:
    changed = replace(BASE, title="New title")
    for result, entry in ((merge_entries(BASE, None, changed), None), (merge_entries(BASE, changed, None), changed)):
        assert fields(result) == [""]
        assert result.entry == entry
    before, after = NodeValue(ID, A, B, "a1", "note", "T"), NodeValue(ID, A, B, "a1", "note", "New title")
    assert sides(merge_entries(BASE, None, changed)) == (before, Absence.DELETED, after)


def test_a_deletion_or_creation_by_one_side_or_both_is_taken() -> None:
    for base, ours, theirs in ((BASE, None, BASE), (BASE, BASE, None), (BASE, None, None), (None, None, None)):
        assert merge_entries(base, ours, theirs) == MergeResult(None)
    for ours, theirs in ((BASE, None), (None, BASE), (BASE, BASE)):
        assert merge_entries(None, ours, theirs) == MergeResult(BASE)


def test_two_creations_conflict_where_they_differ() -> None:
    other = replace(BASE, title="U", brief="b", tags=("z",), source=Source("d"))
    result = merge_entries(None, BASE, other)
    assert fields(result) == ["title", "brief", "source"]
    assert sides(result, "brief") == (Absence.NONE, "", "b")
    assert sides(result, "source") == (Absence.NONE, Absence.NONE, SourceValue("d"))
    assert isinstance(result.entry, Node)
    assert result.entry.tags == ("x", "y", "z")


def test_archives_merge_by_field() -> None:
    base = Archive(A, "name", "m", "d", {"a": "1", "b": "1", "c": "1"})
    ours = replace(base, name="n1", attributes={"a": "2", "b": "2", "c": "1"})
    theirs = replace(base, name="n2", description="e", attributes={"a": "1", "b": "3", "d": "1"})
    result = merge_entries(base, ours, theirs)
    assert fields(result) == ["name", "attributes.b"]
    assert result.entry == Archive(A, "n1", "m", "e", {"a": "2", "b": "2", "d": "1"})
    assert (sides(result, "name"), sides(result, "attributes.b")) == (("name", "n1", "n2"), ("1", "2", "3"))
    created = merge_entries(None, Archive(A, "notes", description="ours"), Archive(A, "notes", description="theirs"))
    assert (fields(created), sides(created)) == (["description"], (Absence.NONE, "ours", "theirs"))


def test_a_node_and_an_archive_of_one_id_are_a_conflict() -> None:
    result = merge_entries(None, BASE, Archive(ID, "name"))
    assert fields(result) == [""]
    assert sides(result) == (Absence.NONE, NodeValue(ID, A, B, "a1", "note", "T"), ArchiveValue(ID, "name"))
    assert result.entry == BASE
