"""Names that look like other names are told from those that only look unusual."""

import pytest
from memotree_storage.commit.refs import ConfusingNameError
from memotree_storage.model.hidden_characters import hidden_character
from memotree_storage.model.validation import InvalidNameError, check_name

from memotree.request.naming import check_branch_name

FILLERS = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180e\u2800\u3164\ufe00\ufe0f\uffa0\U000e0100\U000e0041"
FORMATS = "\u00ad\u061c\u200b\u200c\u200d\u200e\u202a\u202e\u2028\u2029\u2060\u2066\ufeff"


@pytest.mark.requirement("STORE-8", "GIT-3")
@pytest.mark.parametrize("hidden", FILLERS + FORMATS, ids=ascii)
@pytest.mark.parametrize("name", ["main{}", "ma{}in", "{}main", "a/{}", "主{}干"])
def test_a_name_with_a_character_that_cannot_be_seen_is_refused(name: str, hidden: str) -> None:
    given = name.format(hidden)
    assert hidden_character(given) == hidden
    with pytest.raises(ConfusingNameError):
        check_branch_name(given)
    with pytest.raises(InvalidNameError):
        check_name("name", given.replace("/", ""))


@pytest.mark.requirement("GIT-3")
def test_characters_that_change_how_their_neighbours_look_are_seen() -> None:
    persian, hindi = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0915\u094d\u200d\u0937"  # with joiners
    for name in ("main", "可读的名字", persian, hindi, "👩\u200d🚀", "fix/❤\ufe0f", "👩\u200d❤\ufe0f\u200d👨"):
        assert hidden_character(name) is None, ascii(name)
        check_branch_name(name)
