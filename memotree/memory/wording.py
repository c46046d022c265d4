"""Titles for texts that are remembered without one."""

from typing import Final

from memotree.forest.tree_building.titles import leaf_title
from memotree.models.extractive import brief_of

_NO_WORDS: Final = "Note"


def title_of(text: str) -> str:
    """Returns a title made from a text: its heading or its first sentence, shortened to one line."""
    return leaf_title(brief_of("", text), "").removesuffix(".") or leaf_title(text, _NO_WORDS)
