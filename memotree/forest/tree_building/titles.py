"""Makes titles for nodes without a heading, from the first words of their text."""

import re
from typing import Final

from memotree.forest.documents.canonical import one_line, shorten, title_or

LEAF_CHARS: Final = 80
END_CHARS: Final = 40

_MARKUP: Final = re.compile(r"^\s*(?:#{1,6}\s+|>+\s*|[-*+•]\s+|\d{1,3}[.)]\s+)*")
_FIRST_LINE: Final = re.compile(r"[^\r\n]*[^\s\-=~`*_#>+][^\r\n]*")
"""The first line that is more than markup: not the fence of front matter or code, nor a horizontal rule."""
_UNDERLINE: Final = re.compile(r"\r?\n[ \t]*[=\-~^*+#]{2,}[ \t]*(?=\r?\n|\Z)")
_LOOK: Final = 4000
"""How far to look for a first word, in characters."""


def leaf_title(text: str, fallback: str, heading: str = "") -> str:
    """Returns the first words of a leaf without the markup of headings, quotes and lists; ``fallback`` if it has none.

    Args:
        text: The text of the leaf.
        fallback: The title if the text has no words.
        heading: The heading of the leaf's section. If the leaf begins with it, the words after it make the title,
            because the section's node has the heading as its title already.
    """
    own = _first_words(text, LEAF_CHARS)
    if heading and own == shorten(one_line(heading), LEAF_CHARS):
        own = _first_words(_after_heading(text), LEAF_CHARS) or own
    return shorten(title_or(own, fallback), LEAF_CHARS)


def _after_heading(text: str) -> str:
    """Returns the text after the first line and the line of signs that underlines it."""
    first = _FIRST_LINE.search(text[:_LOOK])
    rest = text[first.end() :] if first else ""
    under = _UNDERLINE.match(rest)
    return rest[under.end() :] if under else rest


def merged_title(first: str, last: str, fallback: str) -> str:
    """Returns the first words of a node's first leaf and of its last one, joined by ``…``.

    Args:
        first: The text of the first leaf.
        last: The text of the last leaf.
        fallback: The title if neither has words.
    """
    begins, ends = _first_words(first, END_CHARS), _first_words(last, END_CHARS)
    if not begins or not ends or begins == ends:
        return shorten(title_or(begins or ends, fallback), LEAF_CHARS)
    return title_or(f"{begins.removesuffix('…')} … {ends}", fallback)


def _first_words(text: str, limit: int) -> str:
    found = _FIRST_LINE.search(text[:_LOOK])
    if found is None:
        return ""
    line = one_line(found[0])
    return shorten(_MARKUP.sub("", line) or line, limit)
