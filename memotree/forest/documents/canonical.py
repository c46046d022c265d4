"""Canonical text: only characters that a node may hold. All offsets of a document refer to this form."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from memotree_storage.model.validation import InvalidTextError, check_text

TITLE_CHARS: Final = 500

_UNFIT: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_BREAKS: Final = "\x0b\x0c\x1c\x1d\x1e\x85"
_WORDS: Final = {"\n": "line feeds", " ": "blanks", "\ufffd": "U+FFFD"}
_MOST_NAMED: Final = 8
_GAP: Final = re.compile("[\\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_VISIBLE: Final = re.compile(
    "[^\\s\x00-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufeff\uffa0]"
)
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def canonical_text(text: str) -> str:
    """Returns the text with each character that a node may not hold replaced by one that it may.

    Each is replaced by exactly one character, so offsets stay valid. Control characters that break lines or pages
    (vertical tab, form feed, the separators U+001C to U+001E, next line) become line feeds, other control characters
    become blanks, and lone surrogates become U+FFFD. Tabs, line feeds and carriage returns stay.
    """
    return _UNFIT.sub(_replacement, text)


def unfit_characters(text: str) -> Counter[str]:
    """Counts the characters that `canonical_text` replaces."""
    return Counter(_UNFIT.findall(text))


def told_of_unfit(counts: Mapping[str, int]) -> tuple[str, ...]:
    """Returns the warning that names the characters that were replaced, what by, and how often; empty if none was."""
    if not counts:
        return ()
    found = sorted(counts.items())
    named = [f"U+{ord(one):04X} by {_WORDS[_instead_of(one)]} ({number} times)" for one, number in found[:_MOST_NAMED]]
    more = f" and {len(found) - _MOST_NAMED} other characters" if len(found) > _MOST_NAMED else ""
    return (f"Characters that no node can hold were replaced: {', '.join(named)}{more}.",)


def _replacement(found: re.Match[str]) -> str:
    return _instead_of(found[0])


def _instead_of(character: str) -> str:
    if character in _BREAKS:
        return "\n"
    return "\ufffd" if character >= "\ud800" else " "


def shows_something(text: str) -> bool:
    """Whether the text has at least one visible character."""
    return _VISIBLE.search(text) is not None


def one_line(text: str, limit: int = TITLE_CHARS) -> str:
    """Returns the text as one line without control characters, cut to ``limit`` characters and ``…``; may be ``""``."""
    # A title may be megabytes long. Cutting it first is cheap, and its end would not be shown anyway.
    line = _SURROGATES.sub("\ufffd", _GAP.sub(" ", text[: 8 * limit])).strip()
    return line if len(line) <= limit else shorten(line, limit)


def shorten(line: str, limit: int) -> str:
    """Returns the line cut to ``limit`` characters and ended with ``…``, at a blank if one is near.

    A line within the limit is returned unchanged; of any other, a limit below 1 leaves nothing.
    """
    if len(line) <= limit:
        return line
    if limit < 1:
        return ""
    head = line[: limit - 1]
    blank = head.rfind(" ", limit // 2)
    return (head[:blank] if blank > 0 else head).rstrip() + "…"


def title_or(text: str, fallback: str) -> str:
    """Returns the text as a title, or ``fallback`` if the title would have no visible character."""
    title = one_line(text)
    try:
        check_text("title", title, required=True)
    except InvalidTextError:
        return fallback
    return title
