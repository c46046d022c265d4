"""The message of a commit: what people read in ``git log``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memotree_storage import trailers
from memotree_storage.node import Archive, Entry

from memotree.changes import fields_changed

_MOST_LISTED: Final = 100
_MOST_NOTES: Final = 5


@dataclass(frozen=True, slots=True)
class ListedChange:
    """One change as the message tells it: before and after (``None``: not there), and why."""

    before: Entry | None
    after: Entry | None
    notes: Sequence[str] = ()


def compose(message: str, changes: Iterable[ListedChange], found: Mapping[str, str]) -> str:
    """The whole message: subject and text as given, the changed nodes by title, and the trailers."""
    groups: dict[str, list[str]] = {"Created": [], "Changed": [], "Moved": [], "Deleted": []}
    for change in changes:
        groups[_group(change)].append(_line(change))
    paragraphs = [message.strip()]
    for title, lines in groups.items():
        if lines:
            shown = sorted(lines, key=str.casefold)[:_MOST_LISTED]
            rest = len(lines) - len(shown)
            more = [f"  and {rest} more"] if rest else []
            paragraphs.append("\n".join([f"{title}:", *shown, *more]))
    return trailers.with_trailers("\n\n".join(paragraphs), found)


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
    notes = list(dict.fromkeys(note.strip().split("\n", 1)[0] for note in change.notes if note.strip()))
    lines = [f"- {title} ({entry.id}){told}"]
    lines += [f"    {note}" for note in notes[-_MOST_NOTES:]]
    return "\n".join(lines)
