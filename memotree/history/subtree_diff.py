"""Which entries of a subtree, or of an archive, differ between two states.

What differs is read in order of the ids, and the way up from each entry tells whether it is in the subtree. So the cost
follows what differs, and not how large the subtree is. An entry is told if it is in the subtree at either state: what
was moved in or out differs there.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from memotree_storage.postgres import history, tree
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.history import Counted
from memotree_storage.postgres.tree import Snapshot, State

MOST_SCANNED: Final = 10_000
"""The most differences that one call looks at; its page may end early, and its token goes on."""

_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True)
class Found:
    """Entries that differ.

    Attributes:
        ids: Their ids in order, as many as were asked for.
        counted: Of which kinds all are that were looked at; nothing if they were not counted.
        last: The last difference that was looked at, if there are more; otherwise empty.
    """

    ids: list[str]
    counted: Counted
    last: str


async def differing_below(
    conn: Connection, old: State, new: State, top: str, *, after: str, limit: int, count: bool
) -> Found:
    """The entries that differ in the subtree of ``top``, with ids above ``after``.

    With ``count``, all differences up to `MOST_SCANNED` are looked at; otherwise only until there are ``limit``.
    """
    snapshots = Snapshot(conn, old), Snapshot(conn, new)
    tops = [await tree.versions(snapshot, [top]) for snapshot in snapshots]
    is_archive = any(version.is_archive for found in tops for version in found.values())
    ids: list[str] = []
    kinds = [0, 0, 0]
    scanned, size = 0, _AT_ONCE if count else min(2 * limit, _AT_ONCE)
    while True:
        some = await history.differing(conn, old, new, after=after, limit=size + 1)
        looked_at, more = some[:size], len(some) > size
        before, now = [await _inside(snapshot, top, looked_at, is_archive=is_archive) for snapshot in snapshots]
        of_subtree = [entry_id for entry_id in looked_at if entry_id in before.inside or entry_id in now.inside]
        for entry_id in of_subtree:
            kinds[0 if entry_id not in before.alive else 1 if entry_id in now.alive else 2] += 1
        ids += of_subtree
        scanned += len(looked_at)
        if not more:
            return Found(ids[:limit], Counted(*kinds), "")
        after = looked_at[-1]
        if scanned >= MOST_SCANNED or (len(ids) >= limit and not count):
            return Found(ids[:limit], Counted(*kinds), after)
        size = min(2 * size, _AT_ONCE)


@dataclass(frozen=True, slots=True)
class _Side:
    """Which of some entries are alive at a state, and which of these are in the subtree there."""

    alive: Collection[str]
    inside: Collection[str]


async def _inside(snapshot: Snapshot, top: str, ids: Collection[str], *, is_archive: bool) -> _Side:
    versions = await tree.versions(snapshot, ids)
    ways = await tree.ancestors(snapshot, versions)
    if not is_archive:
        return _Side(versions, {one for one, way in ways.items() if one == top or top in way})
    roots = {one: way[0] if way else one for one, way in ways.items()}
    archives = await tree.root_archives(snapshot, set(roots.values()))  # where each is shown, whatever its file says
    return _Side(versions, {one for one, root in roots.items() if one == top or archives.get(root) == top})
