"""Packed leaves become passages and one Markdown text."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memotree.forest.recall.passages import FAR_BELOW, LEFT_OUT, PackedLeaf, joined, markdown

pytestmark = pytest.mark.requirement("FOREST-8")


def leaf(place: int, text: str, *, archive: str = "one", score: float = 0.5, **fields: object) -> PackedLeaf:
    return PackedLeaf(f"{archive}{place}", archive, place, score, 1, text, **fields)  # type: ignore[arg-type]


packed = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 20), st.sampled_from([0.1, 0.2, 0.3])),
    unique_by=lambda item: item[:2],
    min_size=1,
)


@given(packed)
def test_passages_are_the_longest_runs_of_neighbours_and_lose_no_leaf(found: list[tuple[str, int, float]]) -> None:
    leaves = [leaf(place, "x", archive=archive, score=score) for archive, place, score in found]
    passages = joined(leaves)
    assert sorted(each.node_id for one in passages for each in one.leaves) == sorted(each.node_id for each in leaves)
    for one in passages:
        places = [each.place for each in one.leaves]
        assert places == list(range(places[0], places[-1] + 1))
    for before, after in pairwise(passages):
        if before.archive_id == after.archive_id:
            assert before.leaves[-1].place + 1 < after.leaves[0].place
    best = {one.archive_id: max(each.score for each in leaves if each.archive_id == one.archive_id) for one in passages}
    order = list(dict.fromkeys(one.archive_id for one in passages))
    assert order == sorted(order, key=lambda archive: (-best[archive], archive))


IMITATION = st.text(st.sampled_from("#[]>. \n\r\u2028\x0b\x85")) | st.sampled_from(
    ["# one", "[one1]", LEFT_OUT, "(until May) x"]
)


@given(st.lists(st.lists(IMITATION, max_size=4).map("\n".join), min_size=2, max_size=2), st.sampled_from(["", "Told"]))
def test_no_line_of_a_stored_text_passes_for_one_of_the_answer(texts: list[str], title: str) -> None:
    leaves = [
        leaf(place, f"said {text}", title=title, headings=("Section",), former="(until May) x")
        for place, text in enumerate(texts)
    ]
    alone = {
        f"[{each.node_id}] {each.said}".rstrip() for each in leaves if len(each.said.strip("\n").splitlines()) == 1
    }
    frame = {"# one", "## Section", "(until May) x", "[one0]", "[one1]", ""}
    shown = markdown(joined(leaves), {"one": "one"}).splitlines()
    assert {line for line in shown if not line.startswith(">")} <= frame | alone


def test_notes_are_documents_of_their_own_and_the_best_comes_first() -> None:
    found = [
        leaf(0, "Lunch is at noon.", score=0.1, document=0),
        leaf(1, "The office is in Oslo.", score=0.9, document=1),
        leaf(2, "Ask Ann.", score=0.2, document=2, headings=("People",)),
        leaf(3, "Ask Ben.", score=0.15, document=3, headings=("People",)),
    ]
    passages = joined(found)
    assert [each.text for each in passages] == ["The office is in Oslo.", "Ask Ann.", "Ask Ben.", "Lunch is at noon."]
    people = "## People\n\n[one2] Ask Ann.\n\n[one3] Ask Ben."
    assert markdown(passages, {"one": "notes"}) == (
        f"# notes\n\n[one1] The office is in Oslo.\n\n{people}\n\n# notes\n\n[one0] Lunch is at noon."
    )


def test_what_is_far_below_the_best_stands_below_a_line_that_says_so() -> None:
    found = [
        leaf(0, "Lunch is at noon.", score=0.0005, document=0),
        leaf(1, "The office is in Oslo.", score=0.9, document=1),
        leaf(2, "Ask Ann.", score=0.001, document=2),
    ]
    assert markdown(joined(found), {"one": "notes"}) == (
        f"# notes\n\n[one1] The office is in Oslo.\n\n[one2] Ask Ann.\n\n{FAR_BELOW}\n\n[one0] Lunch is at noon."
    )


def test_pieces_of_one_text_are_joined_as_in_the_text_and_others_by_line_breaks() -> None:
    (one,) = joined([leaf(0, "a sen", span=(0, 5)), leaf(1, "tence", span=(5, 10)), leaf(2, "another", span=(12, 19))])
    assert one.text == "a sentence\nanother"
    (talk,) = joined([leaf(0, "Ann: Hi.\n"), leaf(1, "Ben: Ho.")])
    assert talk.text == "Ann: Hi.\nBen: Ho."


def test_the_text_has_documents_headings_ids_and_marks_where_something_is_left_out() -> None:
    found = [
        leaf(0, "Gloves.", headings=("Book", "Safety")),
        leaf(1, "## Start\n\nPress it.\n", headings=("Book", "Start")),
        leaf(7, "Call Zoe.", headings=("Book", "Repair", "Hard")),
        leaf(9, "Call Ann.", headings=("Book", "Repair", "Hard")),
        leaf(3, "Elsewhere.", archive="two", score=0.4),
    ]
    safety = "## Safety\n\n[one0] Gloves.\n\n[one1]\n> ## Start\n>\n> Press it."
    repair = "## Repair\n\n### Hard\n\n[one7] Call Zoe.\n\n[…]\n\n[one9] Call Ann."
    assert markdown(joined(found), {"one": "Book", "two": "Notes"}) == (
        f"# Book\n\n{safety}\n\n[…]\n\n{repair}\n\n# Notes\n\n[two3] Elsewhere."
    )
    assert (joined([]), markdown([], {})) == ([], "")
