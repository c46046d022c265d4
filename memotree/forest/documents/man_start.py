"""Recognises the source of man pages by its beginning."""

import re
from typing import Final

_STARTS: Final = re.compile(rb"\s*(?:[.'](?:\\\"|[ \t]*[A-Za-z]{1,3}\b))")
_TITLED: Final = re.compile(rb"^\.(?:TH|Dd)[ \t]", re.MULTILINE)


def looks_like_man_page(head: bytes, *, has_section: bool) -> bool:
    """Whether a file is the source of a man page.

    Args:
        head: Its first bytes.
        has_section: Whether its name ends with the number of a section, such as ``.1``.
    """
    return _STARTS.match(head) is not None and (has_section or _TITLED.search(head) is not None)
