"""The known name that somebody probably meant, and a name that somebody has sent as it may stand in a message.

A name may be as long as a whole request. Comparing two texts takes the product of their lengths, and the answer repeats
the name; so no more than its beginning is compared or shown.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

LONGEST_NAME: Final = 64
"""Characters of a name that are compared and shown; no name of a tool has more."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most similar to one that somebody has sent; empty if none is similar."""
    found = get_close_matches(name[:LONGEST_NAME], list(known), n=1)
    return found[0] if found else ""


def nearest_or_all(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the name that was probably meant, or else all that there are."""
    names = list(known)
    near = nearest(name, names)
    if near:
        return f"; did you mean {near}?"
    return f"; there are {', '.join(names)}." if names else "."


def shown(name: str) -> str:
    """The beginning of a name that somebody has sent, as valid text."""
    return name[:LONGEST_NAME].encode("utf-8", "backslashreplace").decode()
