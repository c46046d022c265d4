"""GIT-5: differences by words."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from steps import LINEAR, growth

from memotree.history.text_diff import MOST_CHARS
from memotree.history.word_diff import Kind, Part, by_words

pytestmark = pytest.mark.requirement("GIT-5")

_MARKS = {Kind.KEPT: "{}", Kind.REMOVED: "[-{}-]", Kind.ADDED: "{{+{}+}}", Kind.OMITTED: "<{}>"}


def marked(old: str, new: str) -> str:
    return "".join(_MARKS[part.kind].format(part.text) for part in by_words(old, new))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("The price is 3.5 today.", "The price is 3.7 today.", "The price is [-3.5-]{+3.7+} today."),
        ("Bake at five.", "Bake at half past five.", "Bake at {+half past +}five."),
        ("Bake at five, then cool it.", "Bake at six, now cool it.", "Bake at [-five, then-]{+six, now+} cool it."),
        ("Alpha beta.", "Gamma delta!", "[-Alpha beta.-]{+Gamma delta!+}"),
        ("甲是一个城", "甲是两个城", "甲是[-一-]{+两+}个城"),
        ("यह हिन्दी है अब यहाँ", "यह हिन्दू है अब यहाँ", "यह [-हिन्दी-]{+हिन्दू+} है अब यहाँ"),
        ("the cafe is open", "the cafe\u0301 is open", "the [-cafe-]{+cafe\u0301+} is open"),
        ("", "new", "{+new+}"),
        ("old\n", "", "[-old\n-]"),
        ("same", "same", ""),
    ],
)
def test_changed_words_are_marked_in_their_sentence(old: str, new: str, expected: str) -> None:
    assert marked(old, new) == expected


def test_lines_far_from_the_changes_are_omitted() -> None:
    old = "\n".join(f"Line {number} is here." for number in range(20))
    assert marked(old, old.replace("10 is here", "10 was here")) == (
        "<7 equal lines>Line 7 is here.\nLine 8 is here.\nLine 9 is here.\nLine 10 [-is-]{+was+} here.\n"
        "Line 11 is here.\nLine 12 is here.\nLine 13 is here.\n<6 equal lines>"
    )


WORDS = st.sampled_from(["a", "b", "c", " ", ".", "\n", "don't", "\u4e00", "\u0301"])
TEXTS = st.lists(WORDS, max_size=20).map("".join)


@given(TEXTS, TEXTS)
def test_the_parts_make_both_texts(old: str, new: str) -> None:
    parts = by_words(old, new)
    if old != new and all(part.kind is not Kind.OMITTED for part in parts):  # lines far from a change are left out
        assert "".join(part.text for part in parts if part.kind is not Kind.ADDED) == old
        assert "".join(part.text for part in parts if part.kind is not Kind.REMOVED) == new
    assert all(part.text for part in parts)
    assert all(one.kind is not other.kind for one, other in pairwise(parts))


@pytest.mark.requirement("STORE-8")
def test_an_answer_has_a_bound() -> None:
    old, new = "a b " * MOST_CHARS, "b a " * MOST_CHARS
    half = MOST_CHARS // 2
    assert by_words(old, new) == [
        Part(Kind.REMOVED, old[:half]),
        Part(Kind.ADDED, new[:half]),
        Part(Kind.OMITTED, f"{len(old) + len(new) - MOST_CHARS} more characters"),
    ]
    assert by_words("x" * MOST_CHARS, "y" * 10) == [
        Part(Kind.REMOVED, "x" * (MOST_CHARS - 10)),
        Part(Kind.ADDED, "y" * 10),
        Part(Kind.OMITTED, "10 more characters"),
    ]
    many = by_words("a\n" * 30_000, "b\n" * 30_000)
    assert [part.kind for part in many] == [Kind.OMITTED]
    assert "too long to compare" in many[0].text


@pytest.mark.requirement("STORE-8", "STORE-9")
def test_the_cost_grows_with_the_texts() -> None:
    def compared(size: int) -> None:
        by_words(" ".join(f"k{word} x" for word in range(size)), " ".join(f"k{word} y" for word in range(size)))

    assert growth(compared, 500) < LINEAR
