"""GIT-5: who wrote which line."""

import pytest

from memotree.history.blame import _blamed


@pytest.mark.requirement("GIT-5")
def test_each_line_is_put_on_the_version_that_wrote_it() -> None:
    texts = ["a\nb\nc", "a\nx\nc", "a\nx\nc\nd", "first\na\nx\nc\nd"]
    assert _blamed(texts) == [("first", 3), ("a", 0), ("x", 1), ("c", 0), ("d", 2)]


@pytest.mark.requirement("GIT-5")
def test_an_emptied_text_forgets_its_lines() -> None:
    assert _blamed(["a\nb", "", "a"]) == [("a", 2)]
