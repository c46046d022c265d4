"""Finds the names of RPCs and request fields in the server's messages; each interface has its own words for them.

The server names what its contract names. The terminal says `memotree branch list` for ``ListBranches``
(``memotree.cli.wording``), Python says `workspace.branches()` (``memotree.client.wording``).
"""

import re
from collections.abc import Callable, Iterable
from typing import Final

_QUOTED: Final = r"""(?<!\w)'(?:[^'\\\n]|\\.)*'(?!\w)|(?<!\w)"(?:[^"\\\n]|\\.)*"(?!\w)"""
"""Quoted text, which is from the user; an apostrophe within a word begins none."""


def finder(names: Iterable[str]) -> re.Pattern[str]:
    """The pattern for `replaced`: it matches quoted text, and each of ``names`` as a whole word."""
    longest_first = sorted(names, key=len, reverse=True)
    return re.compile(rf"{_QUOTED}|(?<![\w'\".-])(?P<name>{'|'.join(map(re.escape, longest_first))})(?!['\"\w])")


def replaced(pattern: re.Pattern[str], word: Callable[[str], str], sentence: str) -> str:
    """``sentence`` with each name replaced by its word; quoted text stays as it is."""
    return pattern.sub(lambda found: word(found["name"]) if found["name"] else found[0], sentence)
