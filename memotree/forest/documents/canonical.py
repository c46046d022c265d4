"""Text as nodes may hold it: the one form that the offsets of a document refer to."""

import re
from typing import Final

from memotree_storage.model.validation import InvalidTextError, check_text

TITLE_CHARS: Final = 500

_UNFIT: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_BREAKS: Final = "\x0b\x0c\x1c\x1d\x1e\x85"
_GAP: Final = re.compile("[\\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_VISIBLE: Final = re.compile(
    "[^\\s\x00-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufeff\uffa0]"
)
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def canonical_text(text: str) -> str:
    """The text with each character that no node may hold replaced, one for one, so that offsets stay.

    Line and page breaks that are control characters (vertical tab, form feed, the separators U+001C to U+001E, next
    line) become line feeds, other control characters blanks, halves of surrogate pairs U+FFFD. Tabs, line feeds and
    carriage returns stay.
    """
    return _UNFIT.sub(_replacement, text)


def _replacement(found: re.Match[str]) -> str:
    character = found[0]
    if character in _BREAKS:
        return "\n"
    return "\ufffd" if character >= "\ud800" else " "


def shows_something(text: str) -> bool:
    """Whether there is a character in the text that a reader would see."""
    return _VISIBLE.search(text) is not None


def one_line(text: str, limit: int = TITLE_CHARS) -> str:
    """The text as one line without control characters, cut to ``limit`` characters with ``…``; may be ``""``."""
    # A title of megabytes is cut first: what it has at its end will not be seen.
    line = _SURROGATES.sub("\ufffd", _GAP.sub(" ", text[: 8 * limit])).strip()
    return line if len(line) <= limit else shorten(line, limit)


def shorten(line: str, limit: int) -> str:
    """The line cut to ``limit`` characters, at a blank where one is near, with ``…`` at its end when cut."""
    if len(line) <= limit:
        return line
    head = line[: limit - 1]
    blank = head.rfind(" ", limit // 2)
    return (head[:blank] if blank > 0 else head).rstrip() + "…"


def title_or(text: str, fallback: str) -> str:
    """The text as a title, or ``fallback`` when it would show nothing."""
    title = one_line(text)
    try:
        check_text("title", title, required=True)
    except InvalidTextError:
        return fallback
    return title
