"""Titles of nodes: whether a title says more than the content does, and how a reader sees both together."""

import re
from typing import Final

from memotree_storage.model.node import LEAF_TYPE
from memotree_storage.model.tokens import UNSPACED

_LOOK: Final = 4000
"""How far into the content of a document's leaf its title is looked for, in characters."""

_MARKED: Final = 100
"""How many characters of markup may stand before and among the words of a title in the content of a note."""

_MARKUP: Final = re.compile(r"(?:^|(?<=\s))[#>*+=`_-]+|[*`_]+(?=\s|$)|\s+")
"""Marks of Markdown before and after words, and white space; not the signs within a word, such as those of ``C++``."""

_RUN: Final = re.compile(f"[{UNSPACED}]")
_NUMBERED: Final = re.compile(r"(?:.*, p|P)art \d+")
"""The title of a document's leaf that has no words: its number, after the heading of its section if it has one."""


def own_title(title: str, kind: str, content: str) -> str:
    """Return the title of a node of some type, or ``""`` if it only repeats the content.

    The title of a document's leaf is taken from its first words, unless somebody has changed it; that of a note may be
    the beginning of its text. Such a title tells a search or a reader nothing new.
    """
    words = title.removesuffix("…").strip()
    if words and content.startswith(words) and _ends_there(title, words, content[len(words) : len(words) + 1]):
        return ""  # most titles of leaves: without looking for marks of Markdown, which takes many times as long
    wanted = _plain(words)
    if not wanted or not content:
        return title
    if kind == LEAF_TYPE and _NUMBERED.fullmatch(words):
        return ""
    seen = _plain(content[:_LOOK] if kind == LEAF_TYPE else content[: 2 * len(words) + _MARKED])
    may_end_inside = _ends_there(title, wanted, "x")
    is_known = (
        _has(seen, wanted, may_end_inside=may_end_inside)
        if kind == LEAF_TYPE
        else _has_at(seen, wanted, 0, may_end_inside=may_end_inside)
    )
    return "" if is_known else title


def _has(text: str, words: str, *, may_end_inside: bool) -> bool:
    """Whether a text has the words, from the beginning of a word on.

    Not by a regular expression: to compile one for each title took a quarter of the time of an import.
    """
    start = text.find(words)
    while start >= 0:
        if _has_at(text, words, start, may_end_inside=may_end_inside):
            return True
        start = text.find(words, start + 1)
    return False


def _has_at(text: str, words: str, start: int, *, may_end_inside: bool) -> bool:
    """Whether a text has the words at an offset that begins a word; they may have to end one as well."""
    end = start + len(words)
    return (
        text.startswith(words, start)
        and not (start and _in_word(text[start - 1]))
        and (may_end_inside or not (end < len(text) and _in_word(text[end])))
    )


def _in_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _ends_there(title: str, words: str, following: str) -> bool:
    """Whether a title ends where a word of the content does; a shortened one may end within a word."""
    return title.endswith("…") or _RUN.fullmatch(words[-1]) is not None or not _in_word(following)


def titled(title: str, content: str) -> str:
    """Return a content with its title before it, as a reader sees a note: ``Retries: at most five``."""
    if not title:
        return content
    return f"{title}:\n{content}" if "\n" in content.strip() else f"{title}: {content}"


def _plain(text: str) -> str:
    return " ".join(_MARKUP.sub(" ", text).split()).casefold()
