"""Whole archives at one state, read in one query for a search inside documents: every alive node, in tree order."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias

from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.tree import LINE, Snapshot

_MOST_COMPARED: Final = 50_000
"""With more changed entries than this, they are not compared one by one, and any archive may have changed."""


class TreeNode(NamedTuple):
    """One alive node of a tree. A tuple, since a search creates hundreds of thousands of them at once.

    Attributes:
        entry_id: The node.
        parent_id: Its parent; "" for a root, and for a node whose parent is not alive.
        position: Its position among its siblings.
        archive_id: Its archive.
        type: Its type.
        tokens: The number of tokens of its own content.
        version_id: Its version, the key of its leaf features; ``None`` while it is staged.
        blob: The blob id of its file.
        tags: Its tags.
        time: Its attribute ``time``, or ``None``.
        speaker: Its attribute ``speaker``, or ``None``.
        document_id: The document that it was cut from, or ``None``.
        committed_at: When its version was committed; ``None`` while it is staged.
        depth: The number of its ancestors.
    """

    entry_id: str
    parent_id: str
    position: str
    archive_id: str
    type: str
    tokens: int
    version_id: int | None
    blob: str
    tags: Sequence[str]
    time: str | None
    speaker: str | None
    document_id: str | None
    committed_at: datetime | None
    depth: int


_Text: TypeAlias = str | None
_Tags: TypeAlias = list[str] | None
_Time: TypeAlias = datetime | None
_Row: TypeAlias = tuple[
    str, str, str, str, str, int, int | None, str, _Tags, _Text, _Text, _Text, _Time, int, bool, bool
]
"""The fields of `TreeNode`, with the depth of its line instead of its own and ``None`` for no tags; then whether it is
an archive, and whether it is dead."""

_DEPTH: Final = 13
_IS_ARCHIVE: Final = 14
_DEAD: Final = 15

# Empty arrays are returned as null: reading an array costs more than the rest of a row, and most nodes have no tags.
#
# A row on a line nearer than the farthest one can hide a node of the wanted archives by having moved it to another
# archive. So all rows of the nearer lines are read; these are the changes of branches and sessions, which are few.
_LEAVES: Final = f"""
  with {LINE}
  select s.entry_id, s.parent_id, s.position, s.archive_id, s.type, s.tokens, null::bigint, s.blob,
         nullif(s.tags, '{{}}'), s.attributes ->> 'time', s.attributes ->> 'speaker', s.source ->> 'document_id',
         null::timestamptz, -1, s.is_archive, s.dead
    from work.staged s where s.session_id = %(session)s
  union all
  select v.entry_id, v.parent_id, v.position, v.archive_id, v.type, v.tokens, v.version_id, v.blob,
         nullif(v.tags, '{{}}'), v.attributes ->> 'time', v.attributes ->> 'speaker', v.source ->> 'document_id',
         c.committed_at, line.depth, v.is_archive, v.dead
    from line join mirror.version v on v.line_id = line.line_id
    join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq
   where v.from_seq <= line.seq and (v.to_seq is null or v.to_seq > line.seq)
     and (line.depth < (select max(depth) from line)
          or (not v.dead and not v.is_archive
              and (%(archives)s::text[] is null or v.archive_id = any(%(archives)s::text[]))))"""  # noqa: S608

# The older state is on the newer one's lineage, so an entry differs only if it was changed on that lineage after the
# older state. An entry that was moved also counts as a change of the archive that it left. That archive is in the
# version before, on the same line or, for the first version on a line, on a line farther away.
_CHANGED: Final = """
  with newer as materialized (select * from mirror.lineage(%(workspace)s, %(newer)s)),
  older as materialized (select * from mirror.lineage(%(workspace)s, %(older)s)),
  common as (
    select newer.depth, newer.line_id, o.seq from older o join newer on newer.line_id = o.line_id
     where o.depth = 0 and o.seq <= newer.seq),
  changed as materialized (
    select v.entry_id, v.archive_id from common
      join newer on newer.depth <= common.depth
      join mirror.version v on v.line_id = newer.line_id and v.from_seq <= newer.seq
       and v.from_seq > case when newer.line_id = common.line_id then common.seq else 0 end
     limit %(limit)s)
  select exists (select from common), (select count(*) from changed), array(
    select archive_id from changed
    union
    select was.archive_id from (select distinct entry_id from changed) entry
     cross join lateral (
       select one.* from older cross join lateral (
         select v.archive_id from mirror.version v
          where v.line_id = older.line_id and v.entry_id = entry.entry_id and v.from_seq <= older.seq
          order by v.from_seq desc limit 1) one
        order by older.depth limit 1) was)"""


async def ordered_nodes(snapshot: Snapshot, archive_ids: Collection[str] | None = None) -> list[TreeNode]:
    """Return all alive nodes of some archives (``None``: of all) at a state, including a session's staged changes.

    They are in tree order: archive by archive, parents before children, siblings by position. A node whose parent is
    not alive counts as a root. The result has all nodes, not only leaves; leaves are those with their own content.
    """
    wanted = None if archive_ids is None else sorted(archive_ids)
    async with snapshot.conn.cursor(binary=True) as cursor:
        await cursor.execute(_LEAVES, snapshot.state.arguments(archives=wanted))
        rows = await cursor.fetchall()
    return await asyncio.to_thread(_arranged, rows, None if wanted is None else frozenset(wanted))


async def changed_archives(conn: Connection, workspace_id: str, from_commit: str, to_commit: str) -> set[str] | None:
    """Return the archives that differ between two commits, one of which is an ancestor of the other.

    Returns ``None`` if finding out would be expensive: neither commit is on the other's lineage, or too much has
    changed. An archive whose own description changed is included; one that was changed and changed back may be too.
    """
    if from_commit == to_commit:
        return set()
    for older, newer in ((from_commit, to_commit), (to_commit, from_commit)):
        cursor = await conn.execute(
            _CHANGED,
            {"workspace": workspace_id, "older": older, "newer": newer, "limit": _MOST_COMPARED + 1},
        )
        row = await cursor.fetchone()
        if row and row[0]:
            return set(row[2]) if row[1] <= _MOST_COMPARED else None
    return None


def _arranged(rows: Sequence[_Row], wanted: frozenset[str] | None) -> list[TreeNode]:
    return list(_in_order(_nearest(rows, wanted)))


def _nearest(rows: Sequence[_Row], wanted: frozenset[str] | None) -> dict[str, _Row]:
    """The alive nodes; for each entry, the row of the nearest line decides."""
    nearest: dict[str, _Row] = {}
    for row in rows:
        known = nearest.get(row[0])
        if known is None or row[_DEPTH] < known[_DEPTH]:
            nearest[row[0]] = row
    return {
        entry_id: row
        for entry_id, row in nearest.items()
        if not row[_IS_ARCHIVE] and not row[_DEAD] and (wanted is None or row[3] in wanted)
    }


def _in_order(alive: dict[str, _Row]) -> Iterator[TreeNode]:
    below: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    roots: list[tuple[str, str, str]] = []
    for entry_id, row in alive.items():
        if row[1] in alive:
            below[row[1]].append((row[2], entry_id))
        else:
            roots.append((row[3], row[2], entry_id))
    for siblings in below.values():
        siblings.sort(reverse=True)
    roots.sort(reverse=True)
    waiting = [(entry_id, "", 0) for _, _, entry_id in roots]
    while waiting:
        entry_id, parent_id, depth = waiting.pop()
        row = alive.pop(entry_id)
        yield _leaf(row, parent_id, depth)
        children = below.get(entry_id)
        if children:
            waiting += [(child, entry_id, depth + 1) for _, child in children]
    # Nodes that are each other's ancestors are below no root; a push to Git can create them.
    for _, row in sorted(alive.items()):
        yield _leaf(row, "", 0)


def _leaf(row: _Row, parent_id: str, depth: int) -> TreeNode:
    entry_id, _, position, archive_id, kind, tokens, version_id, blob, tags, *_ = row
    when, speaker, document_id, committed_at = row[9], row[10], row[11], row[12]
    return TreeNode(
        *(entry_id, parent_id, position, archive_id, kind, tokens, version_id, blob),
        *(tags or (), when, speaker, document_id, committed_at, depth),
    )
