"""Previews: the window, the marks, the length."""

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from memotree_storage.index import preview as module
from memotree_storage.index.preview import ELLIPSIS, MARK, Preview, PreviewMaker, make_preview
from memotree_storage.index.terms import count_terms, pieces_of, query_terms
from steps import LINEAR, growth

FILLER = "Lorem ipsum dolor sit amet. "


def preview(text: str, query: str, length: int = 200) -> Preview:
    return make_preview(text, query_terms(query), length)


@pytest.mark.requirement("CANVAS-5")
def test_matches_are_marked_in_the_densest_window() -> None:
    text = FILLER * 30 + "One task here. " + FILLER * 30 + "The tasks of\n\n an Agent." + FILLER * 30
    found = preview(text, "agent task", 60)
    assert "The **tasks** of an **Agent**." in found.text
    assert found.text.startswith(ELLIPSIS)
    assert found.text.endswith(ELLIPSIS)
    assert found.matched == ("agent", "task")


def test_a_short_text_is_shown_in_full_and_of_a_long_one_without_a_match_the_beginning() -> None:
    assert preview("A  short\n text", "short").text == "A **short** text"
    assert preview("", "x") == Preview("", ())
    assert preview("  \n ", "x").text == ""
    found = preview(FILLER * 30, "absent", 40)
    assert found == Preview("Lorem ipsum dolor sit amet. Lorem ipsum" + ELLIPSIS, ())
    assert preview("text", "").text == "text"


@pytest.mark.requirement("CANVAS-14")
def test_overlapping_pairs_of_unspaced_text_are_one_mark_and_the_part_of_an_identifier_is_one() -> None:
    assert preview("知识管理系统", "识管理").text == "知**识管理**系统"
    assert preview("call getUserName()", "name").text == "call getUser**Name**()"


@pytest.mark.requirement("CANVAS-14")
def test_the_last_word_of_a_mebibyte_is_shown() -> None:
    text = FILLER * 37_000 + "the policies needle"
    assert preview(text, "needle").text.endswith("**needle**")
    assert preview(text, "policy").text.endswith("**policies** needle")
    assert growth(lambda size: preview(FILLER * size + "the policies needle", "policy"), 1_000) < LINEAR
    assert preview(FILLER * 37_000 + "\uff4e\uff45\uff45\uff44\uff4c\uff45", "needle").matched == ("needle",)


UNSPACED = "\u8bb0\u5fc6\u6811\u7684\u68ee\u6797\u6ca1\u6709\u4eba\u77e5\u9053\u3002"
WORDS = ["zebra", "zebras", "Zebra", "Zébra", "os.path", "getUserName", "斑马", "马", "🚀", "policies"]


@given(
    st.lists(st.tuples(st.sampled_from([FILLER * 40, UNSPACED * 90, "x", "\n"]), st.sampled_from(WORDS)), max_size=24),
    st.lists(st.sampled_from([*WORDS, "policy", "path user", "absent"]), min_size=1, max_size=4).map(" ".join),
    st.sampled_from([40, 200, 2000]),
)
def test_the_preview_of_a_long_text_is_that_of_looking_at_all_its_words(
    pieces: list[tuple[str, str]], query: str, length: int
) -> None:
    text = " ".join(f"{filler} {word}" for filler, word in pieces)
    found = preview(text, query, length)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_SHORT", len(text))
        assert found == preview(text, query, length)


@pytest.mark.requirement("STORE-8", "STORE-9")
@pytest.mark.parametrize("filler", [FILLER * 9000, UNSPACED * 20_000, "a" * 250_000, "a\u0301" * 125_000])
def test_the_cost_of_a_preview_is_that_of_the_length_whatever_is_asked_for(filler: str) -> None:
    """Each part of the text is read once and is short; no expression is made of the terms, which would be tried all."""
    parts: list[int] = []

    def counted(part: str) -> Any:
        parts.append(len(part))
        return count_terms(part)

    text = filler + " zebra"
    asked = query_terms("zebra " + " ".join(f"w{number:03}" for number in range(255)))
    assert len(asked) == 256
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "count_terms", counted)
        patch.setattr(re, "compile", None)
        found = make_preview(text, asked)
    assert found.text.endswith("**zebra**")
    assert sum(parts) == len(text)
    assert max(parts) <= module._SHORT


@given(
    st.text(st.sampled_from("ab \n\u4e2d\u6587e\u0301.*_A"), max_size=120),
    st.text(st.sampled_from("ab \u4e2d\u6587A"), max_size=6),
    st.integers(-5, 40),
)
@example("AA_A", "A", 4)
def test_a_preview_is_a_window_of_the_text(text: str, query: str, length: int) -> None:
    found = preview(text, query, length)
    plain = " ".join(text.split())
    if MARK in plain:
        return
    bare = found.text.replace(MARK, "")
    assert len(bare) <= max(length, 0)
    assert bare.strip(ELLIPSIS) in plain
    assert found.text.count(MARK) % 2 == 0
    if found.matched and length > 12:
        assert MARK in found.text
    if len(plain) <= length:
        assert bare == plain


def test_a_match_longer_than_the_window_is_cut() -> None:
    found = preview("x " + "a" * 5000 + " y", "a" * 5000, 20)
    assert len(found.text.replace(MARK, "")) <= 20
    assert MARK + "a" in found.text


TEXTS = st.lists(
    st.sampled_from([*WORDS, FILLER, UNSPACED * 900, FILLER * 400, "  \n\n ", " " * 500, "e\u0301"]), max_size=9
)


@given(st.lists(TEXTS.map(" ".join), min_size=1, max_size=4), st.lists(st.sampled_from(WORDS), min_size=1, max_size=4))
def test_previews_of_many_texts_are_those_of_each_alone(texts: list[str], words: list[str]) -> None:
    asked = query_terms(" ".join(words))
    left_out = {term.term for term in asked[::2]}
    others = [term for term in asked if term.term not in left_out]
    maker = PreviewMaker(asked)
    for text in texts:
        assert maker.make(text) == make_preview(text, asked)
        assert maker.make(text, without=left_out) == make_preview(text, others)


@given(TEXTS.map(" ".join), st.sampled_from([1, 2, 3, 24, 200, 1000]))
def test_a_preview_ends_with_an_ellipsis_only_if_something_follows(text: str, length: int) -> None:
    whole = " ".join(text.split())
    found = preview(text, "absent", length).text
    assert found == whole if len(whole) <= length else found.endswith(ELLIPSIS)
    assert len(found) <= length


def test_a_word_of_several_texts_is_split_into_terms_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def counted(token: str) -> Any:
        read.append(token)
        return pieces_of(token)

    monkeypatch.setattr(module, "pieces_of", counted)
    maker = PreviewMaker(query_terms("zebra"))
    read.clear()
    for _ in range(10):
        maker.make(FILLER * 5 + "zebra \u00e9")
    assert sorted(read) == sorted({*re.findall(r"\w+", FILLER), "zebra", "\u00e9"})


PLAIN = [
    "cat", "cats", "Cat", "cities", "city", "boxes", "boxe", "bus", "glass", "a", "s", "ies", "port", "airport", "7s"
]  # fmt: skip
MIXED = [*PLAIN, "CATS", "wildCat", "cat_port", "cat.port", "caf\u00e9"]


@given(
    st.lists(st.tuples(st.sampled_from(PLAIN), st.sampled_from([" ", "\n", ". ", "-", "'"])), max_size=30)
    | st.lists(st.tuples(st.sampled_from(MIXED), st.sampled_from([" ", ".", ", "])), max_size=30),
    st.lists(st.sampled_from(MIXED), min_size=1, max_size=5).map(" ".join),
)
def test_plain_words_are_found_where_splitting_the_text_finds_them(pieces: list[tuple[str, str]], query: str) -> None:
    text = "".join(word + gap for word, gap in pieces)
    found = preview(text, query)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_FEW_TERMS", 0)
        assert found == preview(text, query)
