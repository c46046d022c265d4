"""Titles for texts that are remembered without one, and the subjects of commits."""

from collections.abc import Sequence
from typing import Final

from memotree.forest.tree_building.titles import leaf_title
from memotree.models.extractive import brief_of

_NO_WORDS: Final = "Note"
_SUBJECT_CHARS: Final = 72
"""The subject of a commit stays within the width that Git's own tools expect."""

_MOST_NAMED: Final = 3


def title_of(text: str) -> str:
    """Returns a title made from a text: its heading or its first sentence, shortened to one line."""
    return leaf_title(brief_of("", text), "").removesuffix(".") or leaf_title(text, _NO_WORDS)


def subject_of(verb: str, titles: Sequence[str]) -> str:
    """Returns the subject of a commit, such as ``Remember: Retries``; of several changes it names the first ones.

    Args:
        verb: What is done, such as ``Remember``.
        titles: The titles of the changed notes, at least one.
    """
    if len(titles) == 1:
        return _cut(f"{verb}: {titles[0]}")
    named = ", ".join(titles[:_MOST_NAMED])
    return _cut(f"{verb} {len(titles)} notes: {named}")


def _cut(line: str) -> str:
    return line if len(line) <= _SUBJECT_CHARS else line[: _SUBJECT_CHARS - 1].rstrip() + "…"
