"""A title counts beside the content only if it says more than the content does."""

import pytest
from memotree_storage.model.node import LEAF_TYPE
from memotree_storage.model.titles import own_title, titled


@pytest.mark.parametrize(
    ("title", "content", "says_more"),
    [
        ("Retries", "At most five.", True),
        ("Phone number of Anna", "0151 2345", True),
        ("Anna", "My sister is Anna.", True),
        ("Retries", "", True),
        ("Ann", "Annual leave is 30 days.", True),
        ("C++", "Cats are cute.", True),
        ("---", "Anything.", True),
        ("山", "川が流れる。", True),
        ("Retries", "Retries are limited to five.", False),
        ("Retries", "## Retries\n\nAt most five.", False),
        ("retries are…", "**Retries are** limited to five.", False),
        ("C++", "C++ is a language.", False),
        ("Cherish the moments -…", "Cherish the moments - they are the best!", False),
        ("山川", "山川草木", False),
        ("", "Anything.", False),
    ],
)
def test_the_title_of_a_note_is_its_own_unless_it_repeats_the_beginning(
    title: str, content: str, *, says_more: bool
) -> None:
    assert own_title(title, "note", content) == (title if says_more else "")


def test_the_title_of_a_leaf_comes_from_its_text_unless_somebody_changed_it() -> None:
    content = "## Camera\n\nTap the icon to take a picture of what is in front of you."
    assert own_title("Tap the icon to take a picture…", LEAF_TYPE, content) == ""
    assert own_title("Part 3", LEAF_TYPE, "---\n") == ""
    assert own_title("How to take pictures", LEAF_TYPE, content) == "How to take pictures"
    assert own_title("Pic", LEAF_TYPE, content) == "Pic"


def test_a_content_stands_behind_its_title() -> None:
    assert titled("Retries", "at most five") == "Retries: at most five"
    assert titled("Retries", "at most\nfive\n") == "Retries:\nat most\nfive\n"
    assert titled("", "at most five") == "at most five"


def test_no_regular_expression_is_compiled_for_a_title(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        pytest.fail("A regular expression was compiled: that takes longer than everything else of a title.")

    own_title("Warm", LEAF_TYPE, "What the module keeps.")
    monkeypatch.setattr("re._compiler.compile", refuse)
    assert own_title("Retries of the gateway", LEAF_TYPE, "The **retries of the gateway** are five.") == ""
    assert own_title("Retries of the gate", LEAF_TYPE, "The **retries of the gateway** are five.") != ""
    assert own_title("Limits of the gateway", "note", "## Limits of the gateway\n\nAt most five.") == ""
