"""GIT-5: the version that wrote each line."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.model.line_matching import MOST_LINES
from memotree_storage.postgres.history import CommitRow, Revision
from memotree_storage.postgres.rows import Version
from steps import LINEAR, growth

from memotree.history import blame
from memotree.history.blame import _Blaming, _Step, _steps


def _row(name: str, second: int) -> Revision:
    when = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
    version = Version("n", False, False, name, "a", "", "m", "note", "", "", "", [], {}, [], None, 0)  # noqa: FBT003
    return Revision(version, CommitRow(name, [], "ada", "", when, when, name, None, []))


def _folded(texts: list[str]) -> _Blaming:
    """Blame texts of which each one replaced the one before."""
    return _merged([([number - 1] if number else [], text) for number, text in enumerate(texts)])


def _merged(versions: list[tuple[list[int], str | None]], *, by_sentences: bool = False) -> _Blaming:
    steps = [_Step(number, before, text) for number, (before, text) in enumerate(versions)]
    blaming = _Blaming(steps, by_sentences=by_sentences)
    blaming.add(steps)
    return blaming


@pytest.mark.requirement("GIT-5")
@pytest.mark.parametrize(
    ("versions", "lines"),
    [
        (
            [([], "a b c"), ([0], "a x c"), ([1], "a x c d"), ([2], "first a x c d")],
            [("first", 3), ("a", 0), ("x", 1), ("c", 0), ("d", 2)],
        ),
        ([([], "a b"), ([0], ""), ([1], "a")], [("a", 2)]),
        (
            [([], "a b c"), ([0], "a ours c"), ([0], "a b c theirs"), ([1, 2], "a ours c theirs merge")],
            [("a", 0), ("ours", 1), ("c", 0), ("theirs", 2), ("merge", 3)],
        ),
        ([([], "a"), ([0], "a x"), ([0], "a x"), ([2, 1], "a x")], [("a", 0), ("x", 2)]),
        ([([], "a"), ([0], "a b"), ([1], None), ([2], "a b c")], [("a", 0), ("b", 1), ("c", 3)]),
        ([([], "a"), ([0], "a b"), ([0], "a x y"), ([1, 2], None), ([3], "a x y")], [("a", 0), ("x", 2), ("y", 2)]),
    ],
    ids=[
        "in turn",
        "emptied",
        "merged",
        "line of both parents",
        "restored",
        "restored after a merge that deleted both",
    ],
)
def test_each_line_is_attributed_to_the_version_that_wrote_it(
    versions: list[tuple[list[int], str | None]], lines: list[tuple[str, int]]
) -> None:
    steps = [(before, None if text is None else text.replace(" ", "\n")) for before, text in versions]
    assert _merged(steps).lines == lines


@pytest.mark.requirement("GIT-5")
def test_each_sentence_of_prose_is_attributed_and_code_stays_whole() -> None:
    before = "One is first. Two is second.\n\n```\nx = 1. y = 2.\n```"
    after = "One is first. Two is other. Three is new.\n\n```\nx = 1. y = 3.\n```"
    blaming = _merged([([], before), ([0], after)], by_sentences=True)
    prose = [("One is first.", 0), ("Two is other.", 1), ("Three is new.", 1), ("", 0)]
    assert blaming.lines == [*prose, ("```", 0), ("x = 1. y = 3.", 1), ("```", 0)]
    assert blaming.places == [1, 1, 1, 2, 3, 4, 5]
    numbered = _merged([([], "1. Weigh it. Bake it.\n- 2. Sell it.")], by_sentences=True)
    assert [text for text, _ in numbered.lines] == ["1. Weigh it.", "Bake it.", "- 2. Sell it."]
    chinese = _merged([([], "甲是一。乙是二。"), ([0], "甲是一。乙是三。")], by_sentences=True)
    assert chinese.lines == [("甲是一。", 0), ("乙是三。", 1)]


@pytest.mark.requirement("STORE-8")
def test_few_lines_wait_for_a_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blame, "MOST_KEPT", 3 * (10 * blame._BYTES_OF_LINE + 60) + 100)
    steps: list[tuple[list[int], str | None]] = [([], f"text {number}\n" * 9) for number in range(5)]
    blaming = _merged([*steps, ([0, 1, 2, 3, 4], "text 0\ntext 4\n")])
    assert not blaming.is_complete
    assert [number == 5 for _, number in blaming.lines].count(True) <= 1
    assert blaming.lines[1] == ("text 4", 4)


@pytest.mark.requirement("STORE-8")
def test_many_branches_of_one_base_keep_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each branch comes right before its merge, so three versions are kept at a time."""
    base = [f"line {number}" for number in range(50)]
    rows = [_row("base", 0)]
    before: dict[str, list[str]] = {"base": []}
    tip = "base"
    for number in range(20):
        side, merge = f"side {number}", f"merge {number}"
        before |= {side: ["base"], merge: [tip, side]}
        rows += [_row(side, 1), _row(merge, 2 + number)]
        tip = merge
    steps = _steps(rows, before, tip)
    numbers = [rows[step.number].commit.commit_id for step in steps]
    assert numbers[:5] == ["base", "side 0", "merge 0", "side 1", "merge 1"]
    monkeypatch.setattr(blame, "MOST_KEPT", 4 * 50 * (blame._BYTES_OF_LINE + 10))
    texts = {"base": list(base)}
    merged = list(base)
    for number in range(20):
        texts[f"side {number}"] = [*base[:number], f"of {number}", *base[number + 1 :]]
        merged = [*merged[:number], f"of {number}", *merged[number + 1 :]]
        texts[f"merge {number}"] = list(merged)
    blaming = _Blaming(steps)
    blaming.add(replace(step, text="\n".join(texts[name])) for step, name in zip(steps, numbers, strict=True))
    credited = [rows[number].commit.commit_id for _, number in blaming.lines]
    assert credited == [*(f"side {number}" for number in range(20)), *["base"] * 30]
    assert blaming.is_complete


@pytest.mark.requirement("STORE-8")
def test_long_texts_of_many_versions_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blame, "MOST_DIVIDED", 500)
    texts = ["same\n" * 100 + str(number) for number in range(20)]
    blaming = _folded(texts)
    assert blaming.divided < 1_000
    assert [text for text, _ in blaming.lines] == texts[-1].split("\n")
    assert blaming.lines[:100] == [("same", 0)] * 100
    assert blaming.lines[-1] == ("19", 19)
    assert not blaming.is_complete


@pytest.mark.requirement("GIT-5")
@given(st.data())
def test_blame_of_merges_credits_each_line_to_a_version_that_has_it(data: st.DataObject) -> None:
    """Compares with the plain rule: a line that no version before has is new, and no other is."""
    line = st.sampled_from("abcdef")
    steps: list[tuple[list[int], str | None]] = [([], data.draw(st.lists(line, max_size=6).map("\n".join)))]
    for number in range(1, data.draw(st.integers(1, 6))):
        before = data.draw(st.lists(st.integers(0, number - 1), min_size=1, max_size=2, unique=True))
        steps.append((before, data.draw(st.lists(line, max_size=6).map("\n".join))))
    blaming = _merged(steps)
    own = (steps[-1][1] or "").split("\n") if steps[-1][1] else []
    assert [text for text, _ in blaming.lines] == own
    for text, number in blaming.lines:
        assert text in (steps[number][1] or "").split("\n")
        if all(text not in (steps[one][1] or "").split("\n") for one in steps[-1][0]):
            assert number == len(steps) - 1


@pytest.mark.requirement("GIT-5", "STORE-9")
def test_versions_are_compared_within_a_bound_and_all_have_their_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blame, "MOST_COST", 2_000)
    texts = [f"{number}\n" + "same\nother\n" * 100 + f"{number}" for number in range(10)]
    texts = [f"{text}\nend" if number % 2 else f"new\n{text}" for number, text in enumerate(texts)]
    few, all_ = _folded(texts[:5]), _folded(texts)
    assert (few.is_complete, all_.is_complete) == (True, False)
    assert few.cost <= 2_000 < all_.cost
    assert few.lines[2:-1] == [("same", 0), ("other", 0)] * 100
    assert [line for line, _ in all_.lines] == texts[-1].split("\n")
    assert blame._warnings(is_cut=False, is_complete=False)
    assert not blame._warnings(is_cut=False, is_complete=True)


@pytest.mark.requirement("GIT-5")
def test_a_version_with_too_many_lines_to_compare_is_credited_with_those_that_it_changed() -> None:
    one = "\n".join(["head", *(f"a{number}" for number in range(MOST_LINES + 1)), "tail"])
    blamed = _folded([one, one.replace("a", "b").replace("tbil", "tail").replace("hebd", "head")])
    assert [number for _, number in blamed.lines] == [0, *[1] * (MOST_LINES + 1), 0]
    assert not blamed.is_complete


@pytest.mark.requirement("GIT-5")
def test_a_long_text_of_few_kinds_of_lines_keeps_those_that_it_had() -> None:
    lines = random.Random(1).choices("ab", k=9_000)
    changed = ["x", *lines[:4_500], "y", *lines[4_500:], "z"]
    blamed = _folded(["\n".join(lines), "\n".join(changed)])
    assert [line for line, number in blamed.lines if number] == ["x", "y", "z"]
    assert blamed.is_complete


@pytest.mark.requirement("STORE-8", "STORE-9")
def test_the_cost_of_blame_grows_with_the_texts() -> None:
    def followed(size: int) -> None:
        text = "".join(f"k{line}\nx{line}\n" for line in range(size))
        _folded([text.replace("x", letter) for letter in "xyzw"])

    assert growth(followed, 500) < LINEAR
