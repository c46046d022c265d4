"""Which leaves of the old version of a document the new version keeps."""

import random
from itertools import pairwise

import pytest
from campaigns import effort
from hypothesis import given
from hypothesis import strategies as st
from steps import LINEAR, growth

from memotree.forest.chunking.splitting import split, stretches
from memotree.forest.documents import SpokenTurn, conversation, read_document
from memotree.forest.documents.document import Document
from memotree.forest.ingestion.leaf_alignment import THIN, Kept, OldLeaf, align
from memotree.forest.ingestion.shared_text import common_prefix, longest_ascent

VOCABULARY = [
    f"{one}{two}" for one in ("ba", "do", "ki", "lu", "mo", "re") for two in ("n", "sta", "rim", "vel", "quo")
]


def leaves_of(document: Document, size: int) -> list[OldLeaf]:
    leaves = []
    for number, piece in enumerate(split(document, size)):
        turn = None if piece.turn is None else document.turns[piece.turn]
        text = document.text[piece.start : piece.end]
        leaves.append(OldLeaf(f"n{number}", text, turn.speaker if turn else "", turn.id if turn else ""))
    return leaves


def check(old: list[OldLeaf], document: Document, found: list[Kept]) -> None:
    """Check that kept leaves are exact, disjoint, in order and within bounds."""
    by_id = {leaf.id: leaf for leaf in old}
    order = {leaf.id: number for number, leaf in enumerate(old)}
    bounds = [stretch.start for stretch in stretches(document)] if document.text else []
    for kept in found:
        assert kept.start < kept.end
        assert document.text[kept.start : kept.end] == by_id[kept.id].text
        assert not any(kept.start < bound < kept.end for bound in bounds)
    for before, after in pairwise(found):
        assert before.end <= after.start
        assert order[before.id] < order[after.id]


def removed(old: list[OldLeaf], found: list[Kept]) -> list[str]:
    kept = {each.id for each in found}
    return [leaf.id for leaf in old if leaf.id not in kept]


def prose(seed: int, length: int) -> str:
    rand = random.Random(seed)
    paragraphs = []
    total = 0
    while total < length:
        words = " ".join(rand.choice(VOCABULARY) + str(rand.randrange(1000)) for _ in range(rand.randint(20, 120)))
        paragraphs.append(words.capitalize() + ".")
        total += len(words) + 3
    return "\n\n".join(paragraphs) + "\n"


words = st.sampled_from(["alpha ", "beta ", "gamma. ", "\n", "\n\n", "# A\n", "## B\n\n", "ok\n", "中文。", "xyz", " "])
texts = st.lists(words, max_size=80).map("".join)
edits = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 30), texts), max_size=4)


def edited(text: str, changes: list[tuple[int, int, str]]) -> str:
    for start, length, new in changes:
        text = text[:start] + new + text[start + length :]
    return text


@pytest.mark.requirement("FOREST-5")
@effort(80)
@given(texts, edits, st.integers(5, 80))
def test_kept_leaves_are_exact_ascending_and_within_sections(
    text: str, changes: list[tuple[int, int, str]], size: int
) -> None:
    if not text.strip():
        return
    old = leaves_of(read_document(text, name="a.md"), size)
    new = edited(text, changes)
    document = read_document(new, name="a.md") if new.strip() else Document(new)
    check(old, document, align(old, document))


@pytest.mark.requirement("FOREST-5")
@effort(8)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 39), min_size=1, max_size=6, unique=True))
def test_edited_and_new_paragraphs_cost_their_own_leaves_only(seed: int, chosen: list[int]) -> None:
    paragraphs = prose(seed, 40_000).split("\n\n")
    document = Document("\n\n".join(paragraphs))
    old = leaves_of(document, 500)
    for number in chosen:
        if number % 2:
            paragraphs.insert(number, "An entirely new paragraph that nobody has seen before.")
            continue
        middle = len(paragraphs[number]) // 2
        paragraphs[number] = paragraphs[number][:middle] + " changed " + paragraphs[number][middle:]
    new = Document("\n\n".join(paragraphs))
    found = align(old, new)
    check(old, new, found)
    assert len(found) >= len(old) - len(chosen)


@pytest.mark.requirement("FOREST-5")
def test_text_between_two_edits_is_kept_and_moved_text_is_new() -> None:
    text = prose(2, 200_000)
    old = leaves_of(Document(text), 800)
    third = len(text) // 3
    changed = "In front of it all there is more now.\n\n" + text[: third * 2] + "\n\nAnd here.\n\n" + text[third * 2 :]
    found = align(old, Document(changed))
    check(old, Document(changed), found)
    assert len(found) >= len(old) - 1
    swapped = Document(text[third:] + text[:third])
    found = align(old, swapped)
    check(old, swapped, found)
    assert len(found) > len(old) // 2


def test_a_small_gap_is_cut_again_together_with_the_leaf_beside_it() -> None:
    old = [OldLeaf("a", "First paragraph of it.\n\n"), OldLeaf("b", "Second paragraph of it.\n\n")]
    for put, torn in (("\n", "a"), ("Well, ", "b"), ("Short.\n\n", "a")):
        assert len(put) < THIN
        found = align(old, Document(old[0].text + put + old[1].text))
        assert removed(old, found) == [torn]
    long = "A paragraph that can stand on its own feet.\n\n"
    assert removed(old, align(old, Document(old[0].text + long + old[1].text))) == []


@pytest.mark.requirement("FOREST-3")
def test_a_leaf_that_would_reach_over_a_new_heading_is_dropped() -> None:
    old = [OldLeaf("a", "# One\n\nwords about one\n\n"), OldLeaf("b", "Two\n---\n\nwords about two\n")]
    text = "".join(leaf.text for leaf in old)
    assert [kept.id for kept in align(old, read_document(text, name="a.md"))] == ["a", "b"]
    joined = [OldLeaf("c", text)]
    assert align(joined, read_document(text, name="a.md")) == []


@pytest.mark.requirement("FOREST-5")
def test_turns_are_distinguished_by_speaker_and_id() -> None:
    turns = [SpokenTurn("Ann" if number % 2 else "Bob", "ok", "", f"t{number}") for number in range(40)]
    old = leaves_of(conversation(turns), 100)
    changed = [*turns[:7], SpokenTurn("Ann", "ok", "", "new"), *turns[7:20], *turns[23:]]
    document = conversation(changed)
    found = align(old, document)
    check(old, document, found)
    assert removed(old, found) == ["n20", "n21", "n22"]
    at = {kept.id: (kept.start, kept.end) for kept in found}
    assert document.text[at["n6"][1] : at["n7"][0]] == "Ann: ok\n"
    assert at["n19"][1] == at["n23"][0]
    without_ids = conversation([SpokenTurn("Eve", turn.text) for turn in turns])
    assert align(old, without_ids) == []


REPETITIVE = {
    "lines": "ok\n" * 300_000,
    "letters": "a" * 1_000_000,
    "two lines": "ab\n" * 1000 + "cd\n" * 300_000,
    "a period": "".join(f"line {number % 7}\n" for number in range(120_000)),
}


@pytest.mark.parametrize("what", REPETITIVE)
def test_the_alignment_of_repetitive_text_takes_linear_steps(what: str) -> None:
    text = REPETITIVE[what]
    assert growth(lambda size: align(*_changed(text[:size])), 50_000) < LINEAR
    old, new = _changed(text)
    found = align(old, new)
    check(old[:0], Document(""), align([], Document("")))
    assert all(new.text[kept.start : kept.end] == old[int(kept.id[1:])].text for kept in found)


def _changed(text: str) -> tuple[list[OldLeaf], Document]:
    """The leaves of a text, and the text with something new at its beginning and after each third."""
    third = len(text) // 3
    new = Document("x\n" + text[:third] + "y" + text[third : 2 * third] + "z" * 100 + text[2 * third :])
    return leaves_of(Document(text), 1000), new


# --- The parts -------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 50), max_size=60))
def test_the_longest_ascent_is_ascending_and_as_long_as_any(numbers: list[int]) -> None:
    chosen = longest_ascent(numbers)
    assert all(one < two for one, two in pairwise(chosen))
    assert all(one < two for one, two in pairwise(numbers[index] for index in chosen))
    lengths: list[int] = []
    for index, number in enumerate(numbers):
        lengths.append(1 + max((lengths[before] for before in range(index) if numbers[before] < number), default=0))
    assert len(chosen) == max(lengths, default=0)


@given(st.text("ab", max_size=300), st.text("abc", max_size=300), st.text("ab", max_size=500))
def test_a_common_prefix_is_as_long_as_it_can_be(one: str, two: str, shared: str) -> None:
    length = common_prefix("x" + shared + one, 1, "yy" + shared + two, 2)
    assert length >= len(shared)
    rest, other = one[length - len(shared) :], two[length - len(shared) :]
    assert (shared + one)[:length] == (shared + two)[:length]
    assert not rest or not other or rest[0] != other[0]
