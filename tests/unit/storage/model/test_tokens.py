"""The token counter: its rule, and cutting to a budget."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.model.tokens import count_tokens, truncate_to_tokens
from steps import LINEAR, growth


@pytest.mark.requirement("CANVAS-11")
def test_unspaced_characters_count_one_and_four_others_count_one() -> None:
    counts = {"": 0, "a": 1, "abcd": 1, "abcde": 2, "中文": 2, "a中文b": 3, "ab中文ab": 3, "ab中文abc": 4, "    ": 1}
    counts |= {
        "\u3042\u30a2\uff71": 3,
        "\u0e01\u0e02": 2,
        "\uac00": 1,
        "\u3002": 1,
        "\U00020000" * 3: 3,
        "\U0001f600": 1,
    }
    assert {text: count_tokens(text) for text in counts} == counts


TEXTS = st.text(st.sampled_from("ab \n\u4e2d\u3042e\u0301\u200d\U0001f600"), max_size=60)


@given(TEXTS, TEXTS)
def test_a_longer_text_never_has_fewer_tokens(first: str, second: str) -> None:
    assert max(count_tokens(first), count_tokens(second)) <= count_tokens(first + second)
    assert count_tokens(first + second) <= count_tokens(first) + count_tokens(second)


@given(TEXTS, st.integers(-2, 40))
def test_a_cut_text_fits_its_budget_and_could_not_be_longer(text: str, budget: int) -> None:
    cut = truncate_to_tokens(text, budget)
    assert text.startswith(cut)
    assert count_tokens(cut) <= max(budget, 0)
    plain = "".join(character for character in text if character not in "\u0301\u200d")
    cut = truncate_to_tokens(plain, budget)
    assert cut == plain or count_tokens(plain[: len(cut) + 1]) > budget, "without marks, the longest that fits"


def test_a_cut_never_splits_a_character() -> None:
    family = "\U0001f468\u200d\U0001f469"
    assert truncate_to_tokens("e\u0301" * 4, 1) == "e\u0301" * 2
    assert truncate_to_tokens("abc" + "e\u0301", 1) == "abc"
    assert truncate_to_tokens("ab" + family, 1) == "ab"


def test_a_mebibyte_is_counted_and_cut_in_linear_steps() -> None:
    text = "word \u4e2d\u6587 " * 80_000
    assert count_tokens(truncate_to_tokens(text, 100_000)) <= 100_000
    assert growth(lambda size: count_tokens(truncate_to_tokens(text[: 10 * size], size)), 5_000) < LINEAR


def test_a_long_text_is_counted_in_parts_that_change_nothing() -> None:
    unit = "\u8bb0\u5fc6 tree \u0e44\u0e17\u0e22! "
    times = 20_000
    unspaced = 5 * times
    assert count_tokens(unit * times) == unspaced + (len(unit) * times - unspaced + 3) // 4
    assert count_tokens("a tree. " * times) == 2 * times
