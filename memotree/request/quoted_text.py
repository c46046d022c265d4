"""Quotes what is stored in a text that a language model reads, so that no part of it passes for the text around it.

A stored text may imitate a heading, the id of a node or the last line of an answer. Each line of a quotation begins
with a mark, as in Markdown; no line of what is around it does.
"""

from typing import Final

_MARK: Final = "> "


def quoted(text: str) -> str:
    """The text as a quotation, with a mark before each line."""
    return "\n".join(f"{_MARK}{line}".rstrip() for line in text.strip("\n").splitlines())


def has_lines(text: str) -> bool:
    """Whether a reader sees several lines, whatever divides them."""
    return len(text.strip("\n").splitlines()) > 1
