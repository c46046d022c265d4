"""Small pieces of Markdown that the made pages share."""

import re
from collections.abc import Iterable, Sequence


def made_by(title: str, source: str) -> str:
    """The beginning of a page, with a comment that says where it comes from."""
    return f"# {title}\n\n<!-- Made by `python docs/pages` from {source}; do not edit. -->\n"


def prose(text: str) -> str:
    """A docstring or comment as Markdown: code in single backticks, and no character that would begin HTML."""
    pieces = re.split(r"(`+[^`]+`+)", text)
    return "".join(
        re.sub("`+", "`", piece) if piece.startswith("`") else piece.replace("<", "&lt;").replace("*", r"\*")
        for piece in pieces
    )


def cell(text: str) -> str:
    """The text for a cell of a table: one line, bars escaped."""
    return " ".join(text.split()).replace("|", r"\|")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, or nothing if it has no rows."""
    lines = [f"| {' | '.join(cell(each) for each in row)} |" for row in rows]
    if not lines:
        return ""
    return "\n".join([f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *lines]) + "\n"
