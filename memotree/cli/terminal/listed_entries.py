"""Reads the lists of changed entries in a commit's message, which MemoTree writes for people who use Git."""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_SIGNS: Final = {"Created:": "+", "Changed:": "~", "Moved:": "~", "Deleted:": "-"}
"""The sign of each list's heading."""
# Texts, which `re` compiles at their first use: few commands show a message.
_PARAGRAPHS: Final = r"\n\n(?=\S)"
_LISTED: Final = r"(?m)^- (.*?) \(([^()\s]+)\)(?:: [\w, ]+)?\n((?:    .*\n|\n+(?=    ))*)"
"""An entry in the message of a commit: its title, its id, and the indented lines with the reason."""
_UNLISTED: Final = r"(?:  and (\d+) more\n)?\n*"
"""The only other text that may be in such a list."""


@dataclass(frozen=True, slots=True)
class ListedEntry:
    """An entry in a list, with the reason given for its change, or an empty text."""

    title: str
    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of a commit's message.

    Attributes:
        text: As it is.
        sign: ``+``, ``~`` or ``-`` if it is a list of entries and nothing else; otherwise empty.
        entries: The listed entries.
        more: How many entries it counts without listing them.
    """

    text: str
    sign: str = ""
    entries: tuple[ListedEntry, ...] = ()
    more: int = 0


def paragraphs(message: str) -> Iterator[Paragraph]:
    """The paragraphs of a commit's message."""
    for text in re.split(_PARAGRAPHS, message):
        heading, _, rest = text.partition("\n")
        listed = re.findall(_LISTED, f"{rest}\n") if heading in _SIGNS else []
        beside = re.fullmatch(_UNLISTED, re.sub(_LISTED, "", f"{rest}\n"))
        if listed and beside:
            entries = tuple(ListedEntry(title, each, textwrap.dedent(why).rstrip("\n")) for title, each, why in listed)
            yield Paragraph(text, _SIGNS[heading], entries, int(beside[1] or 0))
        else:
            yield Paragraph(text)


def counts(message: str) -> str:
    """How many entries the message says were created, changed and deleted: ``+2 ~1 -1``; empty if it lists none."""
    found = dict.fromkeys(_SIGNS.values(), 0)
    for each in paragraphs(message):
        if each.sign:
            found[each.sign] += len(each.entries) + each.more
    return " ".join(f"{sign}{count:,}" for sign, count in found.items() if count)
