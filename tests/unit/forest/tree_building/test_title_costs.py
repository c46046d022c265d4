"""Titles are made in steps in proportion to the text, whatever it is.

The steps are inside regular expressions, where they cannot be counted. So many titles are made at once: if one cost the
square of its 4,000 characters, this would not end.
"""

from functools import partial

import pytest

from memotree.forest.tree_building.titles import leaf_title, section_title

MANY = 3_000


@pytest.mark.requirement("STORE-8")
@pytest.mark.parametrize("is_code", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        " " * 4_000,
        "=" * 4_000,
        "**" * 2_000 + ".",
        "\x85" * 4_000,
        "a" + "*" * 3_999,
        "<b>" * 1_300 + "a",
        "<![CDATA[" + "<ul><li>" * 500 + "&nbsp",
        "<b>" + " " * 3_990 + "a",
        "<b>a" + " <!--" * 800,
    ],
    ids=lambda text: text[:8],
)
def test_a_long_line_of_markup_costs_no_more_than_its_length(text: str, *, is_code: bool) -> None:
    for make in (partial(leaf_title, fallback="Part 1", is_code=is_code), partial(section_title, "2.1")):
        for _ in range(MANY):
            make(text)
