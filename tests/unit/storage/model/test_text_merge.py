"""Merging two texts that started from one, by lines and by sentences."""

import pytest
from memotree_storage.model.line_matching import MOST_LINES
from memotree_storage.model.text_merge import merge_texts


def merged(base: str, ours: str, theirs: str) -> str | None:
    """The result, which must not depend on which side is ours."""
    found = merge_texts(base, ours, theirs)
    assert merge_texts(base, theirs, ours) == found
    return found


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "both"),
    [
        ("a\nb\nc\nd", "A\nb\nc\nd", "a\nb\nc\nD", "A\nb\nc\nD"),
        ("a\nb\nc", "a\nb\nc\nd", "new\na\nb\nc", "new\na\nb\nc\nd"),
        ("a\nb\nc\nd\ne", "a\nc\nd\ne", "a\nb\nc\nd", "a\nc\nd"),
        ("a", "a", "b", "b"),
        ("a", "b", "b", "b"),
        ("", "", "", ""),
        ("a\nb\nc\nd\ne", "a\nX\nc\nd\nE", "a\nX\nc\nd\ne", "a\nX\nc\nd\nE"),  # the same change once
        ("a\nb\nc", "a\nX\nc", "a\nY\nc", None),  # two values of one line
        ("a\nb", "a\nb\none", "a\nb\nother", None),  # two ends: which of them comes first is not known
        ("a\nb\nc", "a\nc", "a\nB\nc", None),  # a removed line that the other side changed
        # A line beside an equal one is the second one; else the two additions would be at one place.
        ("g\ny\nq\ns", "g\ny\na\nq\ns", "g\ny\nq\nq\ns", "g\ny\na\nq\nq\ns"),
    ],
)
def test_lines_apart_merge_and_two_changes_of_one_place_conflict(
    base: str, ours: str, theirs: str, both: str | None
) -> None:
    assert merged(base, ours, theirs) == both


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "both"),
    [
        (
            "The boat is red. It sails at noon. Nobody steers.",
            "The boat is blue. It sails at noon. Nobody steers.",
            "The boat is red. It sails at noon. Anna steers.",
            "The boat is blue. It sails at noon. Anna steers.",
        ),
        (
            "The boat is red. It sails at noon.",
            "The boat is blue. It sails at noon.",
            "The boat is red. It sails at ten.",
            "The boat is blue. It sails at ten.",
        ),
        (
            "The boat is red. It sails.",
            "The boat is red. Built in 1990. It sails.",
            "The boat is red. It sails at ten.",
            "The boat is red. Built in 1990. It sails at ten.",
        ),
        ("船是红色的。中午开船。", "船是蓝色的。中午开船。", "船是红色的。十点开船。", "船是蓝色的。十点开船。"),
        ("- milk\n- bread", "- oat milk\n- bread", "- milk\n- rye bread", "- oat milk\n- rye bread"),
    ],
)
def test_sentences_of_one_passage_merge(base: str, ours: str, theirs: str, both: str) -> None:
    assert merged(base, ours, theirs) == both


def test_one_sentence_changed_twice_is_a_conflict() -> None:
    assert merged("The boat is red. It sails.", "The boat is blue. It sails.", "The boat is green. It sails.") is None
    assert merged("It is red. It sails.", "It is red. At noon. It sails.", "It is red. At ten. It sails.") is None


FENCED = ("```\n{}\n```", "~~~ sh\n{}\n~~~", "````\n```\n{}\n````", "```\n```py\n{}\n```")


@pytest.mark.parametrize("code", [*FENCED, "    {}", "| {} |", "{} | x"])
def test_code_and_tables_have_no_sentences(code: str) -> None:
    """Two statements that touch may depend on each other, though each was changed by one side only."""
    base, ours, theirs = ("run a. run b.", "run A. run b.", "run a. run B.")
    assert merged(base, ours, theirs) == "run A. run B."
    assert merged(*(code.format(text) for text in (base, ours, theirs))) is None
    after = "```\ncode\n```\n{}"
    assert merged(*(after.format(text) for text in (base, ours, theirs))) == after.format("run A. run B.")


def test_too_long_a_comparison_is_a_conflict() -> None:
    ours, theirs = ("\n".join(f"{side} {n}" for n in range(MOST_LINES + 1)) for side in ("our", "their"))
    assert merged("base", ours, theirs) is None


def test_a_long_run_of_marks_is_no_trap() -> None:
    """Looking for the end of a sentence from each of them would take days."""
    dots = "." * 2_000_000
    assert merged(f"a{dots} b. c", f"A{dots} b. c", f"a{dots} b. C") == f"A{dots} b. C"
