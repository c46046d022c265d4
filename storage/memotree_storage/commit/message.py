"""Composes the message of a commit, which people read in ``git log``."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memotree_storage.model import trailers
from memotree_storage.model.changes import fields_changed
from memotree_storage.model.node import Archive, Entry

_MOST_LISTED: Final = 100


@dataclass(frozen=True, slots=True)
class ListedChange:
    """One change to list: the entry before and after (``None``: does not exist), and the notes about it."""

    before: Entry | None
    after: Entry | None
    notes: Sequence[str] = ()


def compose(message: str, changes: Iterable[ListedChange], found: Mapping[str, str]) -> str:
    """The whole message: subject and text as given, the changed nodes by title with their notes, and the trailers.

    Every note appears in full. Of the nodes without a note of their own, at most 100 per group are listed.
    """
    groups: dict[str, list[ListedChange]] = {"Created": [], "Changed": [], "Moved": [], "Deleted": []}
    for change in changes:
        groups[_group(change)].append(change)
    paragraphs = [message.strip()]
    told: set[str] = set()
    for title, group in groups.items():
        if group:
            paragraphs.append("\n".join([f"{title}:", *_lines(sorted(group, key=_heading), told)]))
    return trailers.with_trailers("\n\n".join(paragraphs), found)


def notes_of(message: str, entry_id: str) -> str:
    """The notes about an entry in a message that `compose` has made; "" if there are none, or they were cut off."""
    line = rf"^- .*\({re.escape(entry_id)}\)(?:: [a-z_, ]+)?\n"
    found = re.search(line + r"((?:(?:    .*|)\n)*    .*)", message, re.MULTILINE)
    return "" if found is None else textwrap.dedent(found[1])


def _lines(changes: Iterable[ListedChange], told: set[str]) -> Iterator[str]:
    listed = rest = 0
    for change in changes:
        notes = list(dict.fromkeys(note.strip() for note in change.notes if note.strip()))
        if listed >= _MOST_LISTED:
            notes = [note for note in notes if note not in told]
        if listed >= _MOST_LISTED and not notes:
            rest += 1
            continue
        listed += 1
        told.update(notes)
        yield _line(change)
        for note in notes:
            yield textwrap.indent("\n".join(note.splitlines()), "    ")
    if rest:
        yield f"  and {rest} more"


def _heading(change: ListedChange) -> tuple[int, str]:
    """Archives first, which are documents; the pieces of their text last, since their titles say least."""
    entry = change.after or change.before
    rank = 0 if isinstance(entry, Archive) else 1 + (entry is not None and entry.source is not None)
    return rank, _line(change).casefold()


def _group(change: ListedChange) -> str:
    if change.before is None:
        return "Created"
    if change.after is None:
        return "Deleted"
    moved = set(fields_changed(change.before, change.after)) <= {"parent", "position"}
    return "Moved" if moved else "Changed"


def _line(change: ListedChange) -> str:
    entry = change.after or change.before
    if entry is None:
        return ""
    title = f"archive {entry.name}" if isinstance(entry, Archive) else entry.title
    fields = fields_changed(change.before, change.after)
    told = f": {', '.join(fields)}" if fields else ""
    return f"- {title} ({entry.id}){told}"
