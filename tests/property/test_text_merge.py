"""Merged texts beside ``git merge-file``, and no edit of either side is lost."""

import shutil
import subprocess
from pathlib import Path

import pytest
from campaigns import effort
from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.model.text_merge import merge_texts

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="the git program is not installed")

NEW = [f"new {number}" for number in range(12)]


@st.composite
def sides(draw: st.DrawFn) -> tuple[list[str], list[str], list[str]]:
    """A text of distinct lines, and two edits of it; both may add the same lines."""
    base = [f"old {number}" for number in range(draw(st.integers(0, 12)))]
    return base, draw(edits(base)), draw(edits(base))


@st.composite
def edits(draw: st.DrawFn, base: list[str]) -> list[str]:
    lines = list(base)
    fresh = draw(st.permutations(NEW))
    for line in fresh[: draw(st.integers(0, 4))]:
        at = draw(st.integers(0, len(lines)))
        removed = draw(st.integers(0, min(2, len(lines) - at)))
        lines[at : at + removed] = [line] if draw(st.booleans()) else []
    return lines


def by_git(folder: Path, *texts: str) -> str | None:
    """What git makes of base, ours and theirs; ``None`` for a conflict."""
    names = [folder / name for name in ("base", "ours", "theirs")]
    for name, text in zip(names, texts, strict=True):
        name.write_text(f"{text}\n", encoding="utf-8")
    base, ours, theirs = names
    command = ["git", "merge-file", "-p", "-q", str(ours), str(base), str(theirs)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - git and our own files
    return ended.stdout.removesuffix("\n") if ended.returncode == 0 else None


@pytest.mark.requirement("GIT-6")
@effort(40)
@given(sides())
def test_what_git_merges_has_the_same_result_and_no_edit_is_lost(
    tmp_path: Path, texts: tuple[list[str], list[str], list[str]]
) -> None:
    base, ours, theirs = texts
    joined = ["\n".join(lines) for lines in texts]
    merged = merge_texts(*joined)
    assert merge_texts(joined[0], joined[2], joined[1]) == merged
    theirs_by_git = by_git(tmp_path, *joined)
    if theirs_by_git is not None:
        assert merged == theirs_by_git
    if merged is None:
        return
    result = merged.split("\n")
    for side in (ours, theirs):
        assert set(side) - set(base) <= set(result)
        assert not (set(base) - set(side)) & set(result)


@pytest.mark.requirement("GIT-6")
@given(*[st.text("ab.\n `|", max_size=14)] * 3)
def test_any_three_texts_merge_alike_from_both_sides(base: str, ours: str, theirs: str) -> None:
    assert merge_texts(base, ours, theirs) == merge_texts(base, theirs, ours)
    assert merge_texts(base, base, ours) == merge_texts(base, ours, ours) == ours
