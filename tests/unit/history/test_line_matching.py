"""The lines that two texts have in common, and the diffs that are made of them."""

import difflib
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from steps import LINEAR, growth

from memotree.history import line_matching
from memotree.history.line_matching import MOST_LINES, Match, matches
from memotree.history.text_diff import _differing, _grouped, _hunk, unified

FEW = st.lists(st.sampled_from("abc"), max_size=12)
SOME = st.lists(st.sampled_from("abcdefghijkl{}"), max_size=30)
TEXTS = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "d\n", "e\n", "\n"]), max_size=40)


def found(before: Sequence[str], after: Sequence[str]) -> list[Match]:
    common = matches(before, after)
    assert common is not None
    return common


def most_in_common(before: Sequence[str], after: Sequence[str]) -> int:
    """The length of the longest common subsequence, by the usual table."""
    row = [0] * (len(after) + 1)
    for one in before:
        last, row = row, [0]
        for at, other in enumerate(after):
            row.append(last[at] + 1 if one == other else max(last[at + 1], row[at]))
    return row[-1]


@given(SOME, SOME)
def test_what_both_have_is_found_in_order(before: list[str], after: list[str]) -> None:
    one = other = 0
    for match in found(before, after):
        assert match.count > 0
        assert match.before >= one
        assert match.after >= other
        assert (match.before, match.after) != (one, other) or (one, other) == (0, 0), "neighbours are one match"
        one, other = match.before + match.count, match.after + match.count
        assert before[match.before : one] == after[match.after : other]
    assert one <= len(before)
    assert other <= len(after)


@given(FEW, FEW)
def test_without_lines_that_are_special_as_many_as_possible_are_found(before: list[str], after: list[str]) -> None:
    one, other = ["<", *before * 2, ">"], ["(", *after * 2, ")"]
    assert sum(match.count for match in found(one, other)) == most_in_common(before * 2, after * 2)


@given(TEXTS, TEXTS)
@example(["a\n", *["b\n"] * 6, "a\n"], ["c\n", *["b\n"] * 6, "c\n"])
@example(["a\n", *["b\n"] * 7, "a\n"], ["c\n", *["b\n"] * 7, "c\n"])
def test_hunks_are_written_as_difflib_writes_them(before: list[str], after: list[str]) -> None:
    blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    common = [Match(*block) for block in blocks if block.size]
    hunks = [line for hunk in _grouped(_differing(before, after, common)) for line in _hunk(before, after, hunk)]
    assert hunks == list(difflib.unified_diff(before, after))[2:]


def test_what_is_special_is_aligned_and_not_what_is_frequent() -> None:
    assert found(["special", "}", "}", "}"], ["}", "}", "}", "special"]) == [Match(0, 3, 1)]
    before = "def one():\n    a\n\n\ndef two():\n    b\n\n\ndef three():\n    c\n"
    added = "def new():\n    x\n\n\n"
    after = before.replace("def two", f"{added}def two").replace("    b\n", "    b\n    d\n")
    assert [line for line in unified(before, after).splitlines() if line[0] in "+-"] == [
        *(f"+{line}" for line in added.splitlines()),
        "+    d",
    ]
    assert unified("a\n", "a\na\n") == "@@ -1 +1,2 @@\n a\n+a\n"
    assert unified("", "a") == "@@ -0,0 +1 @@\n+a\n\\ No newline at end of file\n"


def every_second(size: int) -> tuple[str, str]:
    """Every second line differs."""
    text = "".join(f"k{line}\nx{line}\n" for line in range(size))
    return text, text.replace("x", "y")


def all_alike(size: int) -> tuple[str, str]:
    """Nothing is special."""
    return "<\n" + "a\n" * size + ">\n", "(\n" + "a\nb\n" * (size // 2) + ")\n"


def turned(size: int) -> tuple[str, str]:
    """All lines are special, in the opposite order."""
    lines = [f"{line}\n" for line in range(size)]
    return "".join(lines), "".join(reversed(lines))


def anchored_one_by_one(size: int) -> tuple[str, str]:
    """A part has one line that is special, at its beginning, and dividing it there makes the next one so."""
    before = ["u", "first", "u"]
    for line in range(size // 4):
        before += [f"y{line + 1}", "u", f"y{line}", "u"]
    text = "".join(f"{line}\n" for line in before)
    return text, text.replace("u\n", "v\n")


@pytest.mark.requirement("GIT-5", "STORE-8", "STORE-9")
@pytest.mark.parametrize("made", [every_second, all_alike, turned, anchored_one_by_one])
def test_the_cost_of_a_diff_grows_with_the_texts_whatever_they_are(made: object) -> None:
    assert callable(made)
    assert growth(lambda size: unified(*made(size)), 1_000) < LINEAR
    assert unified(*made(9_000)).startswith("@@ -1")


@pytest.mark.requirement("STORE-8")
@pytest.mark.parametrize("made", [every_second, all_alike, turned, anchored_one_by_one])
def test_pairs_of_lines_are_compared_only_in_small_parts(made: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a bit costs cannot be counted in steps."""
    assert callable(made)
    pairs: list[int] = []
    exact = line_matching._common_subsequence

    def counted(old: Sequence[int], new: Sequence[int]) -> list[tuple[int, int]]:
        pairs.append(len(old) * len(new))
        return exact(old, new)

    monkeypatch.setattr(line_matching, "_common_subsequence", counted)
    monkeypatch.setattr(line_matching, "_MOST_PAIRS", 10_000)
    before, after = made(2_000)
    unified(before, after)
    assert max(pairs, default=0) <= 10_000
    assert sum(pairs) <= 2 * 100 * 4_000


@pytest.mark.requirement("STORE-8")
def test_texts_with_too_many_lines_are_not_compared() -> None:
    many = [f"{number}" for number in range(MOST_LINES)]
    assert matches(["a", *many], ["b", "c", *many]) == [Match(1, 2, MOST_LINES)]
    assert matches([*many, "a"], [*reversed(many), "b"]) is None
    assert matches([*many[1:], "a"], [*reversed(many[1:]), "b"]) is not None
    assert unified("a\n" * 30_000, "b\n" * 10).startswith("@@ too long to compare line by line: 60000 characters")
