"""A plain model of a session: rows over a base, their merge onto a head, and their rebase."""

from dataclasses import dataclass, field

from memotree_storage.model.merge import merge_entries
from memotree_storage.model.node import Entry
from property.trees import faults


@dataclass(frozen=True)
class Row:
    """A staged change: the entry it was derived from (``None``: created here) and its result (``None``: deleted)."""

    derived: Entry | None
    entry: Entry | None


@dataclass
class Session:
    """A session of the model."""

    id: str
    base: dict[str, Entry]
    rows: dict[str, Row] = field(default_factory=dict)

    @property
    def state(self) -> dict[str, Entry]:
        return overlaid(self.base, {key: row.entry for key, row in self.rows.items()})

    def put(self, entry_id: str, entry: Entry | None) -> None:
        """Stage a new value of an entry; a value equal to the derived one removes the change."""
        derived = self.rows[entry_id].derived if entry_id in self.rows else self.base.get(entry_id)
        self.rows[entry_id] = Row(derived, entry)
        if entry == derived:
            del self.rows[entry_id]


def overlaid(state: dict[str, Entry], changes: dict[str, Entry | None]) -> dict[str, Entry]:
    merged = {**state, **changes}
    return {key: entry for key, entry in merged.items() if entry is not None}


@dataclass(frozen=True)
class Verdict:
    """The result of merging rows onto a state: the new state, or why there is none."""

    changes: dict[str, Entry | None]
    state: dict[str, Entry]
    conflicts: bool
    broken: list[str]

    @property
    def refused(self) -> bool:
        return self.conflicts or bool(self.broken)


def merged(rows: dict[str, Row], head: dict[str, Entry]) -> Verdict:
    changes: dict[str, Entry | None] = {}
    conflicts = False
    for key, row in rows.items():
        result = merge_entries(row.derived, row.entry, head.get(key))
        changes[key] = result.entry
        conflicts |= bool(result.conflicts)
    state = overlaid(head, changes)
    return Verdict(changes, state, conflicts, faults(state))


def carried(rows: dict[str, Row], head: dict[str, Entry]) -> dict[str, Row]:
    """The rows after a rebase: merged if there is no conflict, unchanged otherwise."""
    kept: dict[str, Row] = {}
    for key, row in rows.items():
        theirs = head.get(key)
        result = merge_entries(row.derived, row.entry, theirs)
        moved = row if result.conflicts or theirs == row.derived else Row(theirs, result.entry)
        if moved.entry != moved.derived:
            kept[key] = moved
    return kept
