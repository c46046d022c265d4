"""Which entries of a subtree, or of an archive, differ between two states.

What differs is read in order of the ids, and the way up from each entry tells whether it is in the subtree. So the cost
follows what differs, and not how large the subtree is. An entry is told if it is in the subtree at either state: what
was moved in or out differs there.
"""

from collections.abc import AsyncIterator, Collection
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
        last: The last difference that was looked at, if there may be more; otherwise empty.
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
    ids: list[str] = []
    kinds = [0, 0, 0]
    scanned = 0
    async for some, of_subtree in _batches(conn, old, new, top, after):
        before = await tree.versions(Snapshot(conn, old), of_subtree)
        now = await tree.versions(Snapshot(conn, new), of_subtree)
        for entry_id in of_subtree:
            kinds[0 if entry_id not in before else 1 if entry_id in now else 2] += 1
        ids += of_subtree
        scanned += len(some)
        if len(some) == _AT_ONCE and (scanned >= MOST_SCANNED or (len(ids) >= limit and not count)):
            return Found(ids[:limit], Counted(*kinds), some[-1])
    return Found(ids[:limit], Counted(*kinds), "")


async def _batches(
    conn: Connection, old: State, new: State, top: str, after: str
) -> AsyncIterator[tuple[list[str], list[str]]]:
    """Differences in order, some at a time, and those of them that are in the subtree."""
    while True:
        some = await history.differing(conn, old, new, after=after, limit=_AT_ONCE)
        inside = {top}
        for state in (old, new):
            inside |= await _inside(Snapshot(conn, state), top, some)
        yield some, [entry_id for entry_id in some if entry_id in inside]
        if len(some) < _AT_ONCE:
            return
        after = some[-1]


async def _inside(snapshot: Snapshot, top: str, ids: Collection[str]) -> set[str]:
    versions = await tree.versions(snapshot, ids)
    ways = await tree.ancestors(snapshot, versions)
    return {one for one, version in versions.items() if version.archive_id == top or top in ways[one]}
