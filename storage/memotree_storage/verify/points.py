"""Compares the index with the mirror: each version of a node has one point with the right line and seqs; no others.

Points of lines that are noted as removed wait for their deletion, so they are no difference.

The first pass does not delay commits, so what it finds wrong may only be new. Then a second pass runs while the
workspace is locked, and only what is wrong in that pass is reported.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from memotree_storage.index.model_index import ModelIndex
from memotree_storage.index.points import point_id
from memotree_storage.ports import IndexEntry, Override
from memotree_storage.postgres import projector, registry
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.outbox import OVERRIDES
from memotree_storage.store import Store
from memotree_storage.verify.report import Difference, Step, in_qdrant

_BATCH: Final = 1000
_MOST_NAMED: Final = 10_000
"""Points that are reported individually; the rest is reported as a number."""

_VERSIONS: Final = f"""
  select k.number, v.version_id, v.to_seq, v.blob, c.commit_id, {OVERRIDES}, exists (
           select from mirror.outbox o where o.version_id = v.version_id and o.index_number = %(index)s
              and o.changed and not o.applied)
    from unnest(%(lines)s::bigint[], %(seqs)s::bigint[], %(entries)s::text[]) with ordinality
      as k (line, seq, entry, number)
    join mirror.version v on v.line_id = k.line and v.entry_id = k.entry and v.from_seq = k.seq
    join mirror.line l on l.line_id = v.line_id
    join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq
   where l.workspace_id = %(workspace)s and not v.dead and not v.is_archive"""  # noqa: S608 - a constant of outbox.py

_INDEXED: Final = """
  select v.version_id from mirror.version v join mirror.line l using (line_id)
   where l.workspace_id = %(workspace)s and not v.dead and not v.is_archive and v.version_id > %(after)s
   order by v.version_id limit %(limit)s"""

_NAMED: Final = """
  select v.entry_id, v.blob, c.commit_id, v.line_id, v.from_seq, v.to_seq
    from mirror.version v join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq
   where v.version_id = any(%(ids)s)"""


@dataclass(slots=True)
class _PointCheck:
    """The findings of a pass over all points; ``lines`` has the numbers of all lines, ``gone`` ids of removed ones."""

    seen: list[NDArray[np.int64]] = field(default_factory=list)
    wrong_ends: list[Difference] = field(default_factory=list)
    lines: frozenset[int] = frozenset()
    gone: frozenset[int] = frozenset()
    odd: dict[str, IndexEntry] = field(default_factory=dict)
    missing: list[int] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (self.wrong_ends or self.odd or self.missing)


async def check_index(store: Store, workspace_id: str) -> AsyncIterator[Difference | Step]:
    """Compare the index of a workspace with its mirror.

    Raises:
        IndexUnavailableError: The index does not answer.
    """
    index = store.current
    with index.in_use():
        total = await index.points.count(workspace_id)
        yield Step("index", 0, total)
        await index.indexer.current(workspace_id, meaning=False)
        look = _PointCheck()
        async with store.database.connection() as conn:
            async for done in _scan(conn, index, workspace_id, look):
                yield Step("index", done, max(total, done))
            await _find_missing(conn, workspace_id, look)
        if look.clean:
            return
        # It yields nothing in here: a slow reader must not hold the lock.
        async with store.locks.workspaces.of(workspace_id), store.database.transaction() as conn:
            await registry.lock_workspace(conn, workspace_id)
            await index.indexer.current(workspace_id, meaning=False)
            look = _PointCheck()
            async for _ in _scan(conn, index, workspace_id, look):
                pass
            await _find_missing(conn, workspace_id, look)
            found = [difference async for difference in _reported(conn, workspace_id, look)]
        for difference in found:
            yield difference


async def _scan(conn: Connection, index: ModelIndex, workspace_id: str, look: _PointCheck) -> AsyncIterator[int]:
    """Check all points; yield how many have been checked so far."""
    done = 0
    cursor = await conn.execute("select number from mirror.line where workspace_id = %s", (workspace_id,))
    look.lines = frozenset(row[0] for row in await cursor.fetchall())
    look.gone = frozenset((await projector.gone_lines(conn, workspace_id)).get(workspace_id, []))
    batch: list[IndexEntry] = []
    async for entry in index.points.scan(workspace_id):
        batch.append(entry)
        if len(batch) == _BATCH:
            await _compare(conn, index.number, workspace_id, batch, look)
            done += len(batch)
            batch = []
            yield done
    await _compare(conn, index.number, workspace_id, batch, look)
    yield done + len(batch)


async def _compare(
    conn: Connection, index: int, workspace_id: str, batch: Sequence[IndexEntry], look: _PointCheck
) -> None:
    cursor = await conn.execute(
        _VERSIONS,
        {
            "workspace": workspace_id,
            "index": index,
            "lines": [entry.line_id for entry in batch],
            "seqs": [entry.from_seq for entry in batch],
            "entries": [entry.node_id for entry in batch],
        },
    )
    found: dict[int, tuple[Any, ...]] = {row[0] - 1: row[1:] for row in await cursor.fetchall()}
    seen = []
    for number, entry in enumerate(batch):
        version_id, to_seq, blob, commit_id, overrides, waits = found.get(number, (None, None, "", "", [], False))
        if version_id is None or entry.point_id != point_id(workspace_id, entry.node_id, blob, commit_id):
            if entry.line_id not in look.gone:
                look.odd[entry.point_id] = entry
            continue
        seen.append(version_id)
        if entry.to_seq != to_seq and not (waits and entry.to_seq is None):
            sentence = f"The point of {entry.node_id} at commit {commit_id} {_ends(entry.to_seq)}"
            sentence = f"{sentence}, and its row {_ends(to_seq)}."
            look.wrong_ends.append(in_qdrant(sentence, commit_id=commit_id, node_id=entry.node_id))
        # The numbers of lines that were collected may stay in a point: no search is on them.
        point = {override for override in entry.overrides if override.line_number in look.lines}
        row = {Override(*pair) for pair in overrides}
        if point != row and not (waits and point < row):
            sentence = f"The point of {entry.node_id} at commit {commit_id} says that {_lines(point)} override it, and "
            sentence = f"{sentence}its rows say that {_lines(row)} do."
            look.wrong_ends.append(in_qdrant(sentence, commit_id=commit_id, node_id=entry.node_id))
    look.seen.append(np.array(seen, dtype=np.int64))


async def _find_missing(conn: Connection, workspace_id: str, look: _PointCheck) -> None:
    """Find the versions whose points were not seen."""
    seen = np.concatenate([np.empty(0, dtype=np.int64), *look.seen])
    after = 0
    while True:
        cursor = await conn.execute(_INDEXED, {"workspace": workspace_id, "after": after, "limit": 50 * _BATCH})
        ids = np.array([row[0] for row in await cursor.fetchall()], dtype=np.int64)
        if not len(ids):
            return
        look.missing += ids[np.isin(ids, seen, assume_unique=True, invert=True)].tolist()
        after = int(ids[-1])


async def _reported(conn: Connection, workspace_id: str, look: _PointCheck) -> AsyncIterator[Difference]:
    """Describe what is wrong; a point with the right id and wrong fields is one difference, not two."""
    for difference in look.wrong_ends[:_MOST_NAMED]:
        yield difference
    for ids in _pages(look.missing[:_MOST_NAMED]):
        cursor = await conn.execute(_NAMED, {"ids": ids})
        for entry_id, blob, commit_id, line_id, from_seq, to_seq in await cursor.fetchall():
            odd = look.odd.pop(point_id(workspace_id, entry_id, blob, commit_id), None)
            if odd is None:
                sentence = f"{entry_id} at commit {commit_id} has no point."
            else:
                sentence = (
                    f"The point of {entry_id} at commit {commit_id} is of node {odd.node_id}, line {odd.line_id}, from "
                    f"{odd.from_seq}, {_ends(odd.to_seq)}; it should be of line {line_id}, from {from_seq}, "
                    f"{_ends(to_seq)}."
                )
            yield in_qdrant(sentence, commit_id=commit_id, node_id=entry_id)
    for odd in list(look.odd.values())[:_MOST_NAMED]:
        sentence = f"Point {odd.point_id} of {odd.node_id} belongs to no existing version."
        yield in_qdrant(sentence, node_id=odd.node_id)
    rest = sum(max(0, len(one) - _MOST_NAMED) for one in (look.wrong_ends, look.missing, look.odd))
    if rest:
        yield in_qdrant(f"{rest} more points are wrong.")


def _ends(seq: int | None) -> str:
    return "has not ended" if seq is None else f"ends at {seq}"


def _lines(overrides: Iterable[Override]) -> str:
    return ", ".join(f"line {one.line_number} from {one.seq}" for one in sorted(overrides)) or "no lines"


def _pages(ids: list[int]) -> Iterator[list[int]]:
    return (ids[start : start + _BATCH] for start in range(0, len(ids), _BATCH))
