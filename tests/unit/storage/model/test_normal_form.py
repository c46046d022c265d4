"""Normal forms: those of Unicode for all writing, and in linear time for any text."""

import re
import unicodedata
from pathlib import Path

import memotree_storage
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.model import normal_form
from memotree_storage.model.normal_form import MOST_MARKS, Form, character_class, normalized
from memotree_storage.model.paths import slug
from steps import sorted_marks

import memotree

FORMS: list[Form] = ["NFC", "NFD", "NFKC", "NFKD"]
MARKS = "\u0301\u0323\u0345\u05b0\u0e38\u0e48\u0f71\u1037\u3099\uff9e\U0001d165"


@given(
    st.lists(st.tuples(st.text(max_size=9), st.text(st.sampled_from(MARKS), max_size=12)).map("".join), max_size=40),
    st.sampled_from(FORMS),
)
def test_a_text_is_normalised_as_a_whole(pieces: list[str], form: Form) -> None:
    text = "".join(pieces)
    assert normalized(form, text) == unicodedata.normalize(form, text)


@pytest.mark.parametrize("form", FORMS)
def test_so_are_as_many_marks_as_are_sorted_together(form: Form) -> None:
    marked = ("a" + MARKS * 5 + "b" * 100, ("\u0e01" + MARKS * 5) * 100)
    for text in (*marked, "\u1112\u1161\u11ab" * 500, "e\u0301" * 500):
        assert normalized(form, text) == unicodedata.normalize(form, text)


@pytest.mark.requirement("STORE-8")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("marks", ["\u0323\u0301", "\u0301\u0323", "\u0e48\u0e38", "\uff9e\u0301", MARKS])
def test_of_more_marks_no_more_are_sorted_together(form: Form, marks: str) -> None:
    text = "a" + marks * 1_000
    with sorted_marks() as lengths:
        normalized(form, text)
        slug(text)
    assert max(lengths) <= 2 * MOST_MARKS


def test_every_character_that_is_sorted_counts_as_a_mark() -> None:
    for character in map(chr, range(0x110000)):
        if unicodedata.combining(unicodedata.normalize("NFKD", character)[0]):
            assert normal_form._marks().match(character), f"U+{ord(character):04X}"


def test_a_character_class_has_exactly_its_characters() -> None:
    chosen = "\u0300\u0301\u0302\u0304\U0001d165\U0001d166"
    assert "".join(re.findall(f"[{character_class(chosen)}]", "".join(map(chr, range(0x20000))))) == chosen


def test_nothing_else_normalises() -> None:
    """Every other call could get a text whose marks take the square of their number to sort.

    The client, which has no store, does so for names of files: it cuts them first.
    """
    folders = [Path(package.__file__ or "").parent for package in (memotree, memotree_storage)]
    calls = re.compile(r"unicodedata\.normalize\b|from unicodedata import .*\bnormalize\b")
    found = [
        path for folder in folders for path in folder.rglob("*.py") if calls.search(path.read_text(encoding="utf-8"))
    ]
    assert sorted(path.name for path in found) == ["file_names.py", "normal_form.py"]
