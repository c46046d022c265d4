"""GIT-5: the version that wrote each line."""

import pytest

from memotree.history import blame
from memotree.history.blame import _folded


def _blamed(texts: list[str]) -> list[tuple[str, int]]:
    return _folded([], texts, 0, 0)[0]


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
    lines, cost = _folded([], texts[:2], 0, 0)
    lines, cost = _folded(lines, texts[2:], 2, cost)
    assert (lines, cost) == _folded([], texts, 0, 0)


@pytest.mark.requirement("GIT-5")
def test_texts_of_many_equal_lines_are_matched_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blame, "MOST_COST", 20_000)
    texts = [f"{number}\n" + "same\nother\n" * 100 + f"{number}" for number in range(10)]
    lines, cost = _folded(
        [], [f"{text}\nend" if number % 2 else f"new\n{text}" for number, text in enumerate(texts)], 0, 0
    )
    assert cost > blame.MOST_COST
    assert "".join(f"{line}\n" for line, _ in lines) == f"{texts[-1]}\nend\n"
    assert blame._warnings(cut=False, cost=cost)
    assert not blame._warnings(cut=False, cost=0)
