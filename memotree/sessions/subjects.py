"""Subjects of commits that name what they change."""

from collections.abc import Sequence
from typing import Final

_SUBJECT_CHARS: Final = 72
"""The subject of a commit stays within the width that Git's own tools expect."""

_MOST_NAMED: Final = 3


def subject_of(verb: str, titles: Sequence[str], things: str) -> str:
    """Returns the subject of a commit, such as ``Remember: Retries``; of several changes it names the first ones.

    Args:
        verb: What is done, such as ``Remember``.
        titles: The titles of what is changed, at least one.
        things: What several of them are called, such as ``notes``.
    """
    if len(titles) == 1:
        return _cut(f"{verb}: {titles[0]}")
    named = ", ".join(titles[:_MOST_NAMED])
    return _cut(f"{verb} {len(titles)} {things}: {named}")


def _cut(line: str) -> str:
    return line if len(line) <= _SUBJECT_CHARS else line[: _SUBJECT_CHARS - 1].rstrip() + "…"
