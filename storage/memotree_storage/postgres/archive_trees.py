"""Whole archives at one state, read in one query for a search inside documents: every alive node, in tree order."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias

from psycopg.rows import class_row

from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.model.attribute_names import DOCUMENT_ID, SECTION, SPEAKER, TIME, VALID_FROM, VALID_TO
from memotree_storage.model.node import LEAF_TYPE, SUMMARY_TYPE
from memotree_storage.postgres.database import Connection, fetched
from memotree_storage.postgres.misplaced import smallest_of_cycles
from memotree_storage.postgres.tree import LINE, Snapshot, version_of

_MOST_COMPARED: Final = 50_000
"""With more changed entries than this, they are not compared one by one, and any archive may have changed."""


class TreeNode(NamedTuple):
    """One alive node of a tree. A tuple, since a search creates hundreds of thousands of them at once.

    Attributes:
        entry_id: The node.
        parent_id: Its parent; "" for a root, and for a node whose parent is not alive or in another archive.
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
        heading: Its title if that is a heading for the nodes below it, or ``None``: leaves of documents have none, and
            the titles of nodes that only join similar neighbours are generated.
        valid_from: Its attribute ``valid_from``, or ``None``.
        valid_to: Its attribute ``valid_to``, or ``None``.
        committed_at: When its version was committed; ``None`` while it is staged.
        depth: The number of its ancestors.
        is_misplaced: Whether it counts as a root although its file names a parent.
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
    heading: str | None
    valid_from: str | None
    valid_to: str | None
    committed_at: datetime | None
    depth: int
    is_misplaced: bool = False


MOST_ENTRIES: Final = 1000
"""With more changed entries than this, they are not named."""

_Text: TypeAlias = str | None
_Tags: TypeAlias = list[str] | None
_Time: TypeAlias = datetime | None
_Row: TypeAlias = tuple[
    str,
    str,
    str,
    str,
    str,
    int,
    int | None,
    str,
    _Tags,
    *tuple[_Text, _Text, _Text, _Text, _Text, _Text],
    _Time,
    int,
    bool,
    bool,
]
"""The fields of `TreeNode`, with the depth of its line instead of its own and ``None`` for no tags; then whether it is
an archive, and whether it is dead.

A plain tuple: most of hundreds of thousands of rows become a `TreeNode` immediately, and converting them to a named
tuple first would make the selection among them more than twice as slow.
"""

_ENTRY: Final = 0
_PARENT: Final = 1
_POSITION: Final = 2
_ARCHIVE: Final = 3
_TAGS: Final = 8
_DEPTH: Final = 16
_IS_ARCHIVE: Final = 17
_DEAD: Final = 18


def _heading(row: str) -> str:
    """The SQL of a row's heading (see `TreeNode`)."""
    return (
        f"case when {row}.type = '{LEAF_TYPE}' or {row}.type = '{SUMMARY_TYPE}' and {row}.source is not null"
        f" and not {row}.attributes ?| array['{SECTION}', '{DOCUMENT_ID}'] then null else {row}.title end"
    )


def _versions(lines: str, condition: str) -> str:
    """SQL: the versions that hold at the state on some lines, with the depth of the line."""
    return f"""
      select version.*, line.depth from {lines} join mirror.version on version.line_id = line.line_id
       where version.from_seq <= line.seq and (version.to_seq is null or version.to_seq > line.seq)
         and ({condition})"""  # noqa: S608


def _leaves(versions: str) -> str:
    """SQL: a row (see `_Row`) for each staged change and each of these versions."""
    return f"""
  with {LINE}
  select {_row("s", "null::bigint", "null::timestamptz", "-1")}
    from work.staged s where s.session_id = %(session)s
  union all
  select {_row("v", "v.version_id", "c.committed_at", "v.depth")}
    from ({versions}) v join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq"""  # noqa: S608


def _row(version: str, version_id: str, committed_at: str, depth: str) -> str:
    """SQL: the columns of a row (see `_Row`) of a version, given by its alias.

    Empty arrays are returned as null: reading an array costs more than the rest of a row, and most nodes have no tags.
    """
    columns = f"""
         @.entry_id, @.parent_id, @.position, @.archive_id, @.type, @.tokens, {version_id}, @.blob,
         nullif(@.tags, '{{}}'), @.attributes ->> '{TIME}', @.attributes ->> '{SPEAKER}', @.source ->> 'document_id',
         {_heading("@")}, @.attributes ->> '{VALID_FROM}', @.attributes ->> '{VALID_TO}',
         {committed_at}, {depth}, @.is_archive, @.dead"""
    return columns.replace("@.", f"{version}.").strip()


# A row on a line nearer than the farthest one can hide a node of the wanted archives by having moved it to another
# archive. So all rows of the nearer lines are read; these are the changes of branches and sessions, which are few.
_IS_NEARER: Final = "line.depth < (select max(depth) from line)"
_FARTHEST: Final = "(select * from line order by depth desc limit 1) line"
_IS_NODE: Final = "not version.dead and not version.is_archive"
_LEAVES_OF_ALL: Final = _leaves(_versions("line", f"{_IS_NEARER} or {_IS_NODE}"))
# The farthest line is a part of its own, so that its rows are read by the index of archives.
_LEAVES_OF_SOME: Final = _leaves(
    f"{_versions('line', _IS_NEARER)} union all "
    + _versions(_FARTHEST, f"{_IS_NODE} and version.archive_id = any(%(archives)s::text[])")
)

# The rows of some nodes at the state, like those of whole archives.
_SOME: Final = f"""
  with {LINE}
  select {_row("v", "w.version_id", "c.committed_at", "v.depth")}
    from unnest(%(ids)s::text[]) as wanted(id)
    cross join lateral {version_of("wanted.id")} v
    left join mirror.version w on w.line_id = v.line_id and w.entry_id = v.entry_id and w.from_seq = v.from_seq
    left join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq
   where not v.dead and not v.is_archive"""  # noqa: S608

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
      cross join lateral (
        select v.entry_id, v.archive_id from mirror.version v
         where v.line_id = newer.line_id and v.from_seq <= newer.seq and v.from_seq > 0
           and v.from_seq > case when newer.line_id = common.line_id then common.seq else 0 end offset 0) v
     limit %(limit)s)
  select exists (select from common) as is_on_the_way, (select count(*) from changed) as changed,
    array(select distinct entry_id from changed limit %(most_entries)s) as entry_ids, array(
    select archive_id from changed
    union
    select was.archive_id from (select distinct entry_id from changed) entry
     cross join lateral (
       select one.* from older cross join lateral (
         select v.archive_id from mirror.version v
          where v.line_id = older.line_id and v.entry_id = entry.entry_id and v.from_seq <= older.seq
          order by v.from_seq desc limit 1) one
        order by older.depth limit 1) was) as archive_ids"""


@dataclass(frozen=True, slots=True)
class _Changed:
    """Whether one commit is on the other's lineage, how many versions are between them, and in which archives."""

    is_on_the_way: bool
    changed: int
    entry_ids: list[str]
    archive_ids: list[str]


# For each staged entry, the archive that it is in now, and the one that it was in at the base.
_STAGED: Final = """
  with line as materialized (select * from mirror.lineage(%(workspace)s, %(commit)s)),
  staged as materialized (select entry_id, archive_id from work.staged where session_id = %(session)s)
  select array(select entry_id from staged limit %(most)s) as entry_ids, array(
    select archive_id from staged
    union
    select was.archive_id from staged cross join lateral (
      select one.archive_id from line cross join lateral (
        select v.archive_id from mirror.version v
         where v.line_id = line.line_id and v.entry_id = staged.entry_id and v.from_seq <= line.seq
         order by v.from_seq desc limit 1) one order by line.depth limit 1) was) as archive_ids"""

_IS_COUNTED: Final = """
       v.from_seq <= line.seq and (v.to_seq is null or v.to_seq > line.seq)
     and not v.dead and not v.is_archive and v.tokens > 0 and v.type <> %(summary)s"""
_LEAF_COUNTS: Final = f"""
  with line as materialized (select * from mirror.lineage(%(workspace)s, %(commit)s))
  select v.archive_id, count(*) from line join mirror.version v on v.line_id = line.line_id
   where {_IS_COUNTED}
     {{among}}
   group by v.archive_id"""  # noqa: S608
_COUNTS_OF_ALL: Final = _LEAF_COUNTS.replace("{among}", "")
_COUNTS_OF_SOME: Final = _LEAF_COUNTS.replace("{among}", "and v.archive_id = any(%(archives)s::text[])")

# Those of some entries that there are more at the newer of two states than at the older one.
_MORE_COUNTED: Final = f"""
  with line as materialized (
    select 1 as more, * from mirror.lineage(%(workspace)s, %(newer)s)
    union all select -1, * from mirror.lineage(%(workspace)s, %(older)s))
  select v.archive_id, sum(line.more) from line join mirror.version v on v.line_id = line.line_id
   where {_IS_COUNTED}
     and v.entry_id = any(%(entries)s::text[])
   group by v.archive_id"""  # noqa: S608


async def ordered_nodes(snapshot: Snapshot, archive_ids: Collection[str] | None = None) -> list[TreeNode]:
    """Return all alive nodes of some archives (``None``: of all) at a state, including a session's staged changes.

    They are in tree order: archive by archive, parents before children, siblings by position. A node whose parent is
    not alive or in another archive counts as a root, so that an archive reads the same whatever is read with it. The
    result has all nodes, not only leaves; leaves are those with their own content.
    """
    wanted = None if archive_ids is None else sorted(archive_ids)
    async with snapshot.conn.cursor(binary=True) as cursor:
        await cursor.execute(
            _LEAVES_OF_ALL if wanted is None else _LEAVES_OF_SOME, snapshot.state.arguments(archives=wanted)
        )
        rows = await fetched(cursor)
    return await in_store_thread(_arranged, rows, None if wanted is None else frozenset(wanted))


@dataclass(frozen=True, slots=True)
class Changes:
    """What may differ between two states: archives, and entries by id; ``None`` if there are very many entries."""

    archive_ids: frozenset[str]
    entry_ids: frozenset[str] | None


async def changes(conn: Connection, workspace_id: str, from_commit: str, to_commit: str) -> Changes | None:
    """Return what differs between two commits, one of which is an ancestor of the other.

    Returns ``None`` if finding out would be expensive: neither commit is on the other's lineage, or too much has
    changed. An archive whose own description changed is included; one that was changed and changed back may be too.
    """
    if from_commit == to_commit:
        return Changes(frozenset(), frozenset())
    for older, newer in ((from_commit, to_commit), (to_commit, from_commit)):
        async with conn.cursor(row_factory=class_row(_Changed)) as cursor:
            await cursor.execute(
                _CHANGED,
                {"workspace": workspace_id, "older": older, "newer": newer, "limit": _MOST_COMPARED + 1}
                | {"most_entries": MOST_ENTRIES + 1},
            )
            found = await cursor.fetchone()
        if found is not None and found.is_on_the_way:
            if found.changed > _MOST_COMPARED:
                return None
            entry_ids = frozenset(found.entry_ids) if len(found.entry_ids) <= MOST_ENTRIES else None
            return Changes(frozenset(found.archive_ids), entry_ids)
    return None


async def row_of(conn: Connection, workspace_id: str, commit_id: str) -> tuple[int, int] | None:
    """Return the line of a commit and its number there, or ``None`` without it; others after a rebuild of the rows."""
    cursor = await conn.execute(
        "select line_id, seq from mirror.commit where workspace_id = %s and commit_id = %s", (workspace_id, commit_id)
    )
    row = await cursor.fetchone()
    return None if row is None else (row[0], row[1])


async def some_nodes(snapshot: Snapshot, ids: Collection[str]) -> list[TreeNode]:
    """Return those of some nodes that are alive at a state, with the parents that their files name; depths are 0."""
    async with snapshot.conn.cursor(binary=True) as cursor:
        await cursor.execute(_SOME, snapshot.state.arguments(ids=list(ids)))
        rows = await fetched(cursor)
    return [_leaf(row, row[_PARENT], 0) for row in rows]


async def staged_changes(snapshot: Snapshot) -> Changes:
    """Return what a session's staged changes affect: their entries, and the archives of these now and before."""
    cursor = await snapshot.conn.execute(_STAGED, snapshot.state.arguments(most=MOST_ENTRIES + 1))
    row = await cursor.fetchone()
    entry_ids, archive_ids = row or ((), ())
    return Changes(frozenset(archive_ids), frozenset(entry_ids) if len(entry_ids) <= MOST_ENTRIES else None)


async def leaf_counts(snapshot: Snapshot, archive_ids: Collection[str] | None = None) -> dict[str, int]:
    """Return roughly how many nodes with their own content each archive (``None``: all) has, without staged ones.

    An entry that was changed on a nearer line counts once per line. Archives without such nodes are left out.
    """
    wanted = None if archive_ids is None else sorted(archive_ids)
    cursor = await snapshot.conn.execute(
        _COUNTS_OF_ALL if wanted is None else _COUNTS_OF_SOME,
        snapshot.state.arguments(archives=wanted, summary=SUMMARY_TYPE),
    )
    return {row[0]: row[1] for row in await cursor.fetchall()}


async def more_leaves(
    conn: Connection, workspace_id: str, older: str, newer: str, entry_ids: Collection[str]
) -> dict[str, int]:
    """Return by archive how many more of some nodes `leaf_counts` counts at one commit than at another."""
    cursor = await conn.execute(
        _MORE_COUNTED,
        {"workspace": workspace_id, "older": older, "newer": newer}
        | {"entries": list(entry_ids), "summary": SUMMARY_TYPE},
    )
    return {row[0]: int(row[1]) for row in await cursor.fetchall()}


def _arranged(rows: Sequence[_Row], wanted: frozenset[str] | None) -> list[TreeNode]:
    return list(_in_order(_nearest(rows, wanted)))


def _nearest(rows: Sequence[_Row], wanted: frozenset[str] | None) -> dict[str, _Row]:
    """The alive nodes; for each entry, the row of the nearest line decides."""
    nearest: dict[str, _Row] = {}
    for row in rows:
        known = nearest.get(row[_ENTRY])
        if known is None or row[_DEPTH] < known[_DEPTH]:
            nearest[row[_ENTRY]] = row
    return {
        entry_id: row
        for entry_id, row in nearest.items()
        if not row[_IS_ARCHIVE] and not row[_DEAD] and (wanted is None or row[_ARCHIVE] in wanted)
    }


def _in_order(alive: dict[str, _Row]) -> Iterator[TreeNode]:
    below: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    roots: list[tuple[str, str, str]] = []
    for entry_id, row in alive.items():
        above = alive.get(row[_PARENT])
        if above is not None and above[_ARCHIVE] == row[_ARCHIVE]:
            below[row[_PARENT]].append((row[_POSITION], entry_id))
        else:
            roots.append((row[_ARCHIVE], row[_POSITION], entry_id))
    for siblings in below.values():
        siblings.sort(reverse=True)
    roots.sort(reverse=True)
    tops = [entry_id for _, _, entry_id in roots]
    while alive:
        # Nodes that are each other's ancestors are below no root; a push to Git can create them.
        tops = tops or sorted(smallest_of_cycles({key: row[_PARENT] for key, row in alive.items()}), reverse=True)
        waiting = [(entry_id, "", 0) for entry_id in tops]
        while waiting:
            entry_id, parent_id, depth = waiting.pop()
            if entry_id not in alive:  # the top of a cycle, met again
                continue
            row = alive.pop(entry_id)
            yield _leaf(row, parent_id, depth)
            children = below.get(entry_id)
            if children:
                waiting += [(child, entry_id, depth + 1) for _, child in children]
        tops = []


def _leaf(row: _Row, parent_id: str, depth: int) -> TreeNode:
    entry_id, _, position, archive_id, kind, tokens, version_id, blob = row[:_TAGS]
    tags, when, speaker, document_id, heading, valid_from, valid_to, committed_at = row[_TAGS:_DEPTH]
    return TreeNode(
        entry_id,
        parent_id,
        position,
        archive_id,
        kind,
        tokens,
        version_id,
        blob,
        tags or (),
        when,
        speaker,
        document_id,
        heading,
        valid_from,
        valid_to,
        committed_at,
        depth,
        row[_PARENT] != parent_id,
    )
