"""Names from titles are allowed everywhere, tell siblings apart, and follow from titles and ids alone."""

import re
import unicodedata

import pytest
from entry_strategies import ids, titles
from hypothesis import given
from hypothesis import strategies as st

from memotree.client.markdown.file_names import file_name, names_in_folder, same_name_key, width_at

pytestmark = pytest.mark.requirement("GIT-11")

NOT_ALLOWED = re.compile(r'[<>:"/\\|?*#^\[\]\x00-\x1f]')
DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}


@given(st.one_of(titles, st.text(max_size=300)), st.sampled_from([12, 32, 80]))
def test_a_name_is_allowed_on_every_system(title: str, width: int) -> None:
    name = file_name(title, width)
    assert name
    assert len(name.encode()) <= width + 1
    assert not NOT_ALLOWED.search(name)
    assert name == name.strip(" .")
    assert name.partition(".")[0].casefold() not in DEVICES
    assert unicodedata.is_normalized("NFC", name)


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Why we chose Git", "Why we chose Git"),
        ("C#: what / why?", "C what - why"),
        ("...", "untitled"),
        (".git", "git"),
        ("con", "con_"),
        ("COM1.txt", "COM_1.txt"),
        ("a\u202etxt.exe", "atxt.exe"),
        ("👩\u200d🔬 notes", "👩\u200d🔬 notes"),
        ("日本語/中文", "日本語-中文"),
        ("word " * 40, "word " * 15 + "word"),
        ("e\u0301te\u0301", "été"),
    ],
)
def test_names_read_like_their_titles(title: str, name: str) -> None:
    assert file_name(title) == name


@given(
    st.dictionaries(
        ids, st.one_of(titles, st.sampled_from(["A", "a", "a.md", "A.MD", "A (000000)", "\uff41"])), max_size=12
    )
)
def test_no_file_system_takes_two_names_of_a_folder_for_one(named: dict[str, str]) -> None:
    names = names_in_folder(named, 80, ["a"])
    assert names.keys() == named.keys()
    used = [same_name_key(each) for name in names.values() for each in (name, f"{name}.md")]
    assert len(used) == len(set(used))
    assert "a" not in used
    assert names == names_in_folder(dict(reversed(named.items())), 80, ["a"])


def test_equal_titles_are_told_apart_by_their_ids_whatever_comes_later() -> None:
    two = {"4f8rjw2m6tq0x9ka": "Notes", "9d3kq7hm1c5wzx8r": "notes"}
    three = two | {"0000000000000000": "NOTES"}
    assert names_in_folder(two, 80) == {"4f8rjw2m6tq0x9ka": "Notes (4f8rjw)", "9d3kq7hm1c5wzx8r": "notes (9d3kq7)"}
    assert names_in_folder(three, 80).items() >= names_in_folder(two, 80).items()


def test_a_path_at_the_greatest_depth_is_no_longer_than_linux_allows() -> None:
    longest = sum(len(f"{file_name('x' * 500, width_at(depth))} (4f8rjw)/") for depth in range(129))
    assert longest < 3600
