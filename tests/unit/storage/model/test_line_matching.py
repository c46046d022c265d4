"""The lines that two texts have in common, and the diffs that are made of them."""

import difflib
import random
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from memotree_storage.model.line_matching import MOST_LINES, Match, matches
from steps import LINEAR, growth
from unit.storage.git.judge import Judge

from memotree.history.text_diff import _hunk, differing, grouped, unified

Made = Callable[[int], tuple[str, str]]
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
    hunks = [line for hunk in grouped(differing(before, after, common)) for line in _hunk(before, after, hunk)]
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


def of_few_kinds(size: int) -> tuple[str, str]:
    """Nothing is special, and lines are inserted at the beginning, in the middle and at the end."""
    lines = random.Random(size).choices(["a\n", "b\n"], k=size)
    return "".join(lines), "".join(["x\n", *lines[: size // 2], "y\n", *lines[size // 2 :], "z\n"])


def shuffled(size: int) -> tuple[str, str]:
    """Each line is there twice, in any order."""
    lines = [f"{line // 2}\n" for line in range(size)]
    one, other = (random.Random(seed).sample(lines, size) for seed in (1, 2))
    return "".join(one), "".join(other)


BAD = (every_second, all_alike, turned, anchored_one_by_one, of_few_kinds, shuffled)
"""Texts that are costly to compare."""


@pytest.mark.requirement("GIT-5", "STORE-8", "STORE-9")
@pytest.mark.parametrize("made", BAD)
def test_the_cost_of_a_diff_grows_with_the_texts_whatever_they_are(made: Made) -> None:
    assert growth(lambda size: unified(*made(size)), 400) < LINEAR


@pytest.mark.requirement("GIT-5")
@pytest.mark.parametrize(
    ("made", "kept"),
    [(every_second, 9_000), (all_alike, 4_500), (turned, 1), (anchored_one_by_one, 4_501), (of_few_kinds, 9_000)],
)
def test_lines_of_long_texts_are_matched_whatever_they_are(made: Made, kept: int) -> None:
    before, after = (text.splitlines() for text in made(9_000))
    assert sum(match.count for match in found(before, after)) == kept


@pytest.mark.requirement("GIT-5")
def test_a_few_lines_inserted_into_a_long_text_of_few_kinds_are_the_whole_diff() -> None:
    changed = [line for line in unified(*of_few_kinds(9_000)).splitlines() if line[0] in "+-"]
    assert changed == ["+x", "+y", "+z"]


@pytest.mark.parametrize("seed", range(5))
def test_texts_of_few_kinds_of_lines_have_as_much_in_common_as_git_finds(tmp_path: Path, seed: int) -> None:
    judge = Judge(tmp_path)
    judge.run("init", "-q")
    before, after = (random.Random(f"{seed} {side}").choices("abc", k=300) for side in ("old", "new"))
    texts = ("\n".join([*lines, ""]).encode() for lines in (before, after))
    blobs = [judge.run("hash-object", "-w", "--stdin", stdin=text).strip() for text in texts]
    _added, removed, _name = judge.run("diff", "--minimal", "--numstat", *blobs).split("\t")
    assert sum(match.count for match in found(before, after)) == len(before) - int(removed)


@pytest.mark.requirement("STORE-8")
@pytest.mark.parametrize("made", BAD)
def test_texts_are_compared_in_little_memory_whatever_they_are(made: Made) -> None:
    lines = MOST_LINES - 10 if made is shuffled else MOST_LINES // 8  # of the shuffled ones, the longest need most
    before, after = (text.splitlines() for text in made(lines // 2 if made is every_second else lines))
    tracemalloc.start()
    try:
        found(before, after)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_500 * lines


@pytest.mark.requirement("STORE-8")
def test_texts_with_too_many_lines_are_not_compared() -> None:
    many = [f"{number}" for number in range(MOST_LINES)]
    assert matches(["a", *many], ["b", "c", *many]) == [Match(1, 2, MOST_LINES)]
    assert matches([*many, "a"], [*reversed(many), "b"]) is None
    assert matches([*many[1:], "a"], [*reversed(many[1:]), "b"]) is not None
    assert unified("a\n" * 30_000, "b\n" * 10).startswith("@@ too long to compare line by line: 60000 characters")
