"""Finds places where a text can be cut without splitting a grapheme, which a reader sees as one character.

A grapheme is an extended grapheme cluster of Unicode (UAX #29): a letter with its marks, joined emoji, the two letters
of a flag, CR with LF, a Korean syllable. The library ``regex`` implements the rules.
"""

from typing import Final

import regex

_CLUSTER: Final = regex.compile(r"\X")
_FURTHEST: Final = 64
"""How far to look for a place, in characters; longer clusters do not occur in real writing."""

_CONTEXT: Final = 1 << 12
"""How much of the text before a place is looked at, in characters; a run of flags is counted from its first letter."""


def may_cut(text: str, at: int) -> bool:
    """Whether a grapheme ends before the character at ``at``."""
    if at <= 0 or at >= len(text):
        return True
    start = max(0, at - _CONTEXT)
    found = _CLUSTER.match(text[start : at + 1], at - 1 - start)
    return found is not None and found.end() == at - start


def cut_before(text: str, at: int, least: int = 0) -> int:
    """Returns the last place in ``(least, at]`` where the text may be cut; ``at`` if there is none near it."""
    lowest = max(least, at - _FURTHEST)
    return next((place for place in range(at, lowest, -1) if may_cut(text, place)), at)
