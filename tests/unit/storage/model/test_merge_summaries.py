"""Which side's brief and summary a merge takes; the answer is the same whichever side is ours."""

from dataclasses import replace

import pytest
from memotree_storage.model.attribute_names import SUMMARY_BY, SUMMARY_OF, SUMMARY_PENDING
from memotree_storage.model.merge import merge_entries
from memotree_storage.model.node import Node
from memotree_storage.model.provenance import PENDING_CONTENT, PENDING_MODEL, hash_of_content

pytestmark = pytest.mark.requirement("GIT-6", "USE-3")

BASE = Node("7xk2m9qd4tnvw0ha", "c41hz8rjy6ksm3pe", None, "a1", title="T", content="old")


def made(node: Node, summary: str, brief: str = "", **marks: str) -> Node:
    """The node with a summary and brief that were generated from its content."""
    attributes = {SUMMARY_BY: "a-model", SUMMARY_OF: hash_of_content(node.content), **marks}
    return replace(node, summary=summary, brief=brief or f"{summary}, in brief", attributes=attributes)


def given(node: Node, summary: str, **marks: str) -> Node:
    """The node with a summary and brief that a person wrote."""
    return replace(node, summary=summary, brief=f"{summary}, in brief", attributes=marks)


def merged(base: Node | None, one: Node, other: Node) -> Node:
    """The merge without conflicts about summaries, which is the same both ways."""
    found = []
    for ours, theirs in ((one, other), (other, one)):
        result = merge_entries(base, ours, theirs)
        assert not {conflict.field for conflict in result.conflicts} & {"summary", "brief"}
        assert isinstance(result.entry, Node)
        found.append(result.entry)
    one_way, other_way = ((entry.summary, entry.brief, entry.attributes) for entry in found)
    assert one_way == other_way
    return found[0]


def test_of_two_generated_summaries_that_of_the_changed_content_is_taken() -> None:
    new = made(replace(BASE, content="new"), "A: of the new")
    for base in (made(BASE, "Of the old"), BASE):  # the second one is as a new note: it has no summary yet
        entry = merged(base, new, made(BASE, "Z: of the old by another model"))
        assert (entry.summary, entry.brief) == ("A: of the new", "A: of the new, in brief")
        assert entry.attributes[SUMMARY_OF] == hash_of_content("new")


@pytest.mark.parametrize("base", [made(BASE, "First"), None], ids=["changed", "created"])
def test_of_two_generated_summaries_of_one_content_any_fixed_one_is_taken(base: Node | None) -> None:
    assert merged(base, made(BASE, "Second"), made(BASE, "Third")).summary == "Third"


def test_a_generated_summary_that_waits_for_renewal_keeps_its_mark() -> None:
    waiting = made(BASE, "A", **{SUMMARY_PENDING: PENDING_CONTENT})
    entry = merged(made(BASE, "First"), waiting, made(BASE, "Z"))
    assert (entry.summary, entry.attributes[SUMMARY_PENDING]) == ("A", PENDING_CONTENT)


def test_a_changed_content_stays_marked_if_a_summary_of_the_former_one_is_merged() -> None:
    base = made(BASE, "First", **{SUMMARY_PENDING: PENDING_MODEL})
    changed = replace(base, content="new", attributes={**base.attributes, SUMMARY_PENDING: PENDING_CONTENT})
    entry = merged(base, changed, made(BASE, "Finished"))
    assert (entry.content, entry.attributes[SUMMARY_PENDING]) == ("new", PENDING_CONTENT)


def test_a_persons_summary_wins_over_a_generated_one_and_is_marked_as_older() -> None:
    entry = merged(made(BASE, "First"), made(replace(BASE, content="new"), "Generated"), given(BASE, "A person's"))
    assert (entry.summary, entry.content) == ("A person's", "new")
    assert entry.attributes == {SUMMARY_PENDING: PENDING_CONTENT}


def test_a_persons_summary_that_was_only_marked_gives_way_to_a_new_one() -> None:
    base = given(BASE, "Given")
    marked = given(replace(BASE, content="new"), "Given", **{SUMMARY_PENDING: PENDING_CONTENT})
    assert merged(base, marked, given(BASE, "Given anew")).summary == "Given anew"
    assert merged(base, marked, made(BASE, "Generated on request")).summary == "Generated on request"


def test_a_persons_new_summary_wins_over_one_generated_from_a_given_one() -> None:
    assert merged(given(BASE, "Given"), given(BASE, "Given anew"), made(BASE, "Generated")).summary == "Given anew"


def test_two_different_summaries_by_persons_are_a_conflict() -> None:
    result = merge_entries(given(BASE, "Given"), given(BASE, "One"), given(BASE, "Other"))
    assert {conflict.field for conflict in result.conflicts} == {"brief", "summary"}


def test_one_summary_made_twice_is_that_of_the_changed_content() -> None:
    base = made(BASE, "First")
    new, old = made(replace(BASE, content="new"), "Same"), made(BASE, "Same")
    new = replace(new, attributes=old.attributes)  # as if both had been made of the same
    assert SUMMARY_PENDING not in merged(base, new, old).attributes
