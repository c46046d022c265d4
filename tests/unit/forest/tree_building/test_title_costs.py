"""Titles are made in steps in proportion to the text, whatever it is.

The steps are inside regular expressions, where they cannot be counted. So the text that is looked through is a hundred
times as long as usual: if a title cost the square of its characters, this would not end.
"""

import pytest

from memotree.forest.tree_building import titles
from memotree.forest.tree_building.titles import leaf_title, section_title

MANY = 400_000


@pytest.mark.requirement("STORE-8")
@pytest.mark.parametrize(
    "text",
    [
        " " * MANY,
        "=" * MANY,
        "**" * (MANY // 2) + ".",
        "\x85" * MANY,
        "a" + "*" * MANY,
        "<b>" * (MANY // 3) + "a",
        "<![CDATA[" + "<ul><li>" * (MANY // 8) + "&nbsp",
        "<b>" + " " * MANY + "a",
        "<b>a" + " <!--" * (MANY // 5),
    ],
    ids=lambda text: text[:8],
)
def test_a_long_line_of_markup_costs_no_more_than_its_length(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(titles, "_LOOK", len(text))
    for is_code in (False, True):
        leaf_title(text, "Part 1", is_code=is_code)
    section_title("2.1", text)
