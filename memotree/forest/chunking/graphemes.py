"""Finds places where a text can be cut without splitting a grapheme, which a reader sees as one character.

Follows Unicode's extended grapheme clusters (UAX #29) as far as the character categories of the standard library allow:
a mark stays with its letter, joined emoji stay together, as do the two letters of a flag, CR and LF, and the parts of a
Korean syllable.
"""

import unicodedata
from typing import Final

_JOINER: Final = "\u200d"
_MARKS: Final = frozenset({"Mn", "Me", "Mc"})
_FURTHEST: Final = 64
"""How far to look for a place, in characters; longer clusters do not occur in real writing."""


def may_cut(text: str, at: int) -> bool:
    """Whether a grapheme ends before the character at ``at``."""
    if at <= 0 or at >= len(text):
        return True
    before, after = text[at - 1], text[at]
    if after < "\u0300":
        return not (before == "\r" and after == "\n") and before != _JOINER
    if before == _JOINER or _extends(after):
        return False
    if _is_flag_letter(after) and _is_flag_letter(before):
        return _flag_letters_before(text, at) % 2 == 0
    return not (_is_jamo(before) and "\u1160" <= after <= "\u11ff")


def cut_before(text: str, at: int, least: int = 0) -> int:
    """Returns the last place in ``(least, at]`` where the text may be cut; ``at`` if there is none near it."""
    lowest = max(least, at - _FURTHEST)
    for place in range(at, lowest, -1):
        if may_cut(text, place):
            return place
    return at


def _extends(character: str) -> bool:
    return (
        character == _JOINER
        or "\U0001f3fb" <= character <= "\U0001f3ff"  # skin tones
        or "\U000e0020" <= character <= "\U000e007f"  # tags of regional flags
        or unicodedata.category(character) in _MARKS
    )


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _flag_letters_before(text: str, at: int) -> int:
    start = at
    while start > max(0, at - _FURTHEST) and _is_flag_letter(text[start - 1]):
        start -= 1
    return at - start


def _is_jamo(character: str) -> bool:
    return "\u1100" <= character <= "\u11ff" or "\uac00" <= character <= "\ud7a3"
