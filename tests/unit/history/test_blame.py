"""GIT-5: the version that wrote each line."""

import random

import pytest
from memotree_storage.model.line_matching import MOST_LINES
from steps import LINEAR, growth

from memotree.history import blame
from memotree.history.blame import _Blamed, _folded


def _blamed(texts: list[str]) -> list[tuple[str, int]]:
    return _folded(_Blamed(), texts, 0).lines


@pytest.mark.requirement("GIT-5")
def test_each_line_is_attributed_to_the_version_that_wrote_it() -> None:
    texts = ["a\nb\nc", "a\nx\nc", "a\nx\nc\nd", "first\na\nx\nc\nd"]
    assert _blamed(texts) == [("first", 3), ("a", 0), ("x", 1), ("c", 0), ("d", 2)]


@pytest.mark.requirement("GIT-5")
def test_an_emptied_text_forgets_its_lines() -> None:
    assert _blamed(["a\nb", "", "a"]) == [("a", 2)]


@pytest.mark.requirement("GIT-5")
def test_versions_read_in_parts_give_the_same_lines() -> None:
    texts = ["a\nb\nc", "a\nx\nc", "c\nx\na", "c\nd\nx\na"]
    assert _folded(_folded(_Blamed(), texts[:2], 0), texts[2:], 2) == _folded(_Blamed(), texts, 0)


@pytest.mark.requirement("GIT-5", "STORE-9")
def test_versions_are_compared_within_a_bound_and_all_have_their_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blame, "MOST_COST", 2_000)
    texts = [f"{number}\n" + "same\nother\n" * 100 + f"{number}" for number in range(10)]
    texts = [f"{text}\nend" if number % 2 else f"new\n{text}" for number, text in enumerate(texts)]
    few, all_ = _folded(_Blamed(), texts[:5], 0), _folded(_Blamed(), texts, 0)
    assert (few.is_complete, all_.is_complete) == (True, False)
    assert few.cost <= 2_000 < all_.cost
    assert few.lines[2:-1] == [("same", 0), ("other", 0)] * 100
    assert [line for line, _ in all_.lines] == texts[-1].split("\n")
    assert blame._warnings(is_cut=False, is_complete=False)
    assert not blame._warnings(is_cut=False, is_complete=True)


@pytest.mark.requirement("GIT-5")
def test_a_version_with_too_many_lines_to_compare_is_credited_with_those_that_it_changed() -> None:
    one = "\n".join(["head", *(f"a{number}" for number in range(MOST_LINES + 1)), "tail"])
    blamed = _folded(_Blamed(), [one, one.replace("a", "b").replace("tbil", "tail").replace("hebd", "head")], 0)
    assert [number for _, number in blamed.lines] == [0, *[1] * (MOST_LINES + 1), 0]
    assert not blamed.is_complete


@pytest.mark.requirement("GIT-5")
def test_a_long_text_of_few_kinds_of_lines_keeps_those_that_it_had() -> None:
    lines = random.Random(1).choices("ab", k=9_000)
    changed = ["x", *lines[:4_500], "y", *lines[4_500:], "z"]
    blamed = _folded(_Blamed(), ["\n".join(lines), "\n".join(changed)], 0)
    assert [line for line, number in blamed.lines if number] == ["x", "y", "z"]
    assert blamed.is_complete


@pytest.mark.requirement("STORE-8", "STORE-9")
def test_the_cost_of_blame_grows_with_the_texts() -> None:
    def followed(size: int) -> None:
        text = "".join(f"k{line}\nx{line}\n" for line in range(size))
        _folded(_Blamed(), [text.replace("x", letter) for letter in "xyzw"], 0)

    assert growth(followed, 500) < LINEAR
