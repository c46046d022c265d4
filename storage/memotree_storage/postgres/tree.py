"""Reading the tree at one state: a commit, resolved along its lineage, plus the staged changes of a session.

An entry's version on a line is its newest row at or before the line's seq, and the nearest line that has one decides;
staged rows are nearer than any line. Every statement resolves the lineage itself, so that its result belongs to one
state even if lines are collected or rebuilt meanwhile. An entry's home is the node or archive that it is placed under:
its parent, or the archive if it is a root.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from psycopg.rows import args_row

from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.rows import FIELDS, ArchiveVersion, Version


@dataclass(frozen=True, slots=True)
class State:
    """One state of a tree: a commit, or a session's changes over its base commit."""

    workspace_id: str
    commit_id: str
    session_id: str | None = None

    def arguments(self, **more: object) -> dict[str, object]:
        """Return the parameters that every statement of this module takes."""
        return {"workspace": self.workspace_id, "commit": self.commit_id, "session": self.session_id, **more}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One state of a tree and the connection to read it with; every read of the mirror takes one.

    Reads are consistent with each other if the connection is in a repeatable-read transaction, or if the state is a
    commit, which never changes.
    """

    conn: Connection
    state: State


@dataclass(frozen=True, slots=True)
class Branching:
    """An entry of a subtree, and its depth below the top of the subtree."""

    entry_id: str
    depth: int


class Child(NamedTuple):
    """A child of a node, or a root of an archive. A tuple, since lists of them are long."""

    entry_id: str
    position: str


class PlacedVersion(NamedTuple):
    """A version, the ids of its ancestors (root first), and the number of its children."""

    version: Version
    path: list[str]
    child_count: int


class ParentVersion(NamedTuple):
    """The version of a future parent, its ancestors' ids (root first), and its children's last position, if any."""

    version: Version
    path: list[str]
    last_position: str | None


LINE: Final = (
    "line as materialized (select * from mirror.lineage(%(workspace)s, coalesce("
    "(select base_commit from work.session where session_id = %(session)s), %(commit)s)))"
)
"""SQL: the lineage of a state. The statement itself reads a session's base, together with the staged rows, since a
commit changes both at the same time."""

_COLUMNS: Final = ", ".join(f"v.{name}" for name in FIELDS)


def version_of(entry: str, columns: str = _COLUMNS) -> str:
    """SQL: the version of an entry, given by an expression for its id; one row or none; it may be dead."""
    return f"""(
      select * from (
        select -1 as depth, {columns}, null::bigint as line_id, null::bigint as from_seq
          from work.staged v where v.session_id = %(session)s and v.entry_id = {entry}
        union all
        select line.depth, one.* from line cross join lateral (
          select {columns}, v.line_id, v.from_seq from mirror.version v
           where v.line_id = line.line_id and v.entry_id = {entry} and v.from_seq <= line.seq
           order by v.from_seq desc limit 1) one
      ) any_version order by depth limit 1)"""  # noqa: S608 - expressions of this module


def placement_of(entry: str) -> str:
    """SQL: the placement of an entry, given by an expression for its id; one row or none; it may be dead."""
    return f"""(
      select * from (
        select -1 as depth, s.parent_id, s.archive_id, s.position, s.dead
          from work.staged s where s.session_id = %(session)s and s.entry_id = {entry}
        union all
        select line.depth, one.* from line cross join lateral (
          select p.parent_id, p.archive_id, p.position, p.dead from mirror.placement p
           where p.line_id = line.line_id and p.entry_id = {entry} and p.from_seq <= line.seq
           order by p.from_seq desc limit 1) one
      ) any_placement order by depth limit 1)"""  # noqa: S608 - expressions of this module


def _children_of(home: str) -> str:
    """SQL: id and position of the nodes in a home (a node, or an archive for its roots), given by an expression."""
    return f"""(
      select s.entry_id, s.position from work.staged s where s.session_id = %(session)s and {_staged_at(home)}
      union all
      select p.entry_id, p.position from line join mirror.placement p on p.line_id = line.line_id
       where {_placed_at(home)}
    )"""  # noqa: S608 - expressions of this module


def _staged_at(home: str) -> str:
    """SQL: whether the staged row ``s`` is an alive node in a home."""
    return f"s.home = {home} and not s.dead and not s.is_archive"


def _placed_at(home: str) -> str:
    """SQL: whether the placement ``p`` is valid at its line's seq, in a home, and no nearer line places its entry.

    The "offset 0" makes both subqueries for nearer rows one index probe each. As joins, they were planned while the
    tables were small, and then read all staged rows of the session for each child.
    """
    return f"""p.home = {home} and not p.dead and p.from_seq <= line.seq
         and (p.to_seq is null or p.to_seq > line.seq)
         and not exists (select from line near join mirror.placement q on q.line_id = near.line_id
                          where near.depth < line.depth and q.entry_id = p.entry_id and q.from_seq <= near.seq
                         offset 0)
         and not exists (select from work.staged s where s.session_id = %(session)s and s.entry_id = p.entry_id
                         offset 0)"""  # noqa: S608


def in_order(home: str, limit: str, direction: str = "", after: str = "true") -> str:
    """SQL: the first nodes in a home by position and id; each line reads at most ``limit`` from its index."""
    order = f"order by position {direction}, entry_id {direction} limit {limit}"
    return f"""(
      select entry_id, position from (
        (select s.entry_id, s.position from work.staged s
          where s.session_id = %(session)s and {_staged_at(home)} and {after} {order})
        union all
        select one.* from line cross join lateral (
          select p.entry_id, p.position from mirror.placement p
           where p.line_id = line.line_id and {_placed_at(home)} and {after} {order}) one
      ) any_child {order}
    )"""  # noqa: S608 - expressions of this module


_VERSIONS: Final = f"""
  with {LINE}
  select {_COLUMNS}, c.commit_id, c.committed_at, v.line_id, v.from_seq
    from unnest(%(ids)s::text[]) as wanted(id)
    cross join lateral {version_of("wanted.id")} v
    left join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq
   where %(dead)s or not v.dead"""  # noqa: S608

_AFTER: Final = '(position, entry_id) > (%(after_position)s::text collate "C", %(after_id)s::text collate "C")'

_CHILDREN: Final = f"""
  with {LINE}
  select entry_id, position from {in_order("%(home)s", "%(limit)s", after=_AFTER)} child"""  # noqa: S608

_BELOW: Final = f"""
  with {LINE}
  select wanted.id, child.entry_id from unnest(%(ids)s::text[]) as wanted(id)
   cross join lateral {_children_of("wanted.id")} child order by child.position, child.entry_id"""  # noqa: S608

_LAST: Final = f"""
  with {LINE}
  select position from {in_order("%(home)s", "1", "desc")} child"""  # noqa: S608

_COUNTS: Final = f"""
  with {LINE}
  select wanted.id, (select count(*) from {_children_of("wanted.id")} child)
    from unnest(%(ids)s::text[]) as wanted(id)"""  # noqa: S608

_TREE: Final = f"""
  with recursive {LINE},
  tree (entry_id, depth, route) as (
    select top.entry_id collate "C", 0, array[(top.position || ' ' || top.entry_id) collate "C"] from {{top}} top
    union all
    select child.entry_id, tree.depth + 1, tree.route || (child.position || ' ' || child.entry_id)
      from tree cross join lateral {_children_of("tree.entry_id")} child
     where tree.depth < %(max_depth)s
  ) cycle entry_id set looped using seen
  select entry_id, depth from tree where not looped order by route collate "C" limit %(limit)s"""  # noqa: S608

_TREE_OF_NODES: Final = _TREE.format(top="(select id as entry_id, '' as position from unnest(%(ids)s::text[]) id)")
_TREE_OF_ARCHIVE: Final = _TREE.format(top=_children_of("%(archive)s"))

_WAYS: Final = f"""
  with recursive {LINE},
  up (id, entry_id, height) as (
    select wanted.id, p.parent_id, 1 from unnest(%(ids)s::text[]) as wanted(id)
     cross join lateral {placement_of("wanted.id")} p where not p.dead and p.parent_id <> ''
    union all
    select up.id, p.parent_id, up.height + 1 from up
     cross join lateral {placement_of("up.entry_id")} p where not p.dead and p.parent_id <> ''
  ) cycle id, entry_id set looped using seen
  select id, array_agg(entry_id order by height desc) from up where not looped group by id"""  # noqa: S608

_PLACED: Final = f"""
  with recursive {LINE},
  up (entry_id, height) as (
    select p.parent_id, 1 from {placement_of("%(id)s")} p where not p.dead and p.parent_id <> ''
    union all
    select p.parent_id, up.height + 1 from up
     cross join lateral {placement_of("up.entry_id")} p where not p.dead and p.parent_id <> ''
  ) cycle entry_id set looped using seen
  select {_COLUMNS}, c.commit_id, c.committed_at, v.line_id, v.from_seq,
         (select array_agg(entry_id order by height desc) from up where not looped),
         {{more}}
    from {version_of("%(id)s")} v
    left join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq
   where not v.dead"""  # noqa: S608

_WITH_COUNT: Final = _PLACED.format(more=f"(select count(*) from {_children_of('%(id)s')} child)")  # noqa: S608
_WITH_LAST: Final = _PLACED.format(more=f"(select position from {in_order('%(id)s', '1', 'desc')} child)")  # noqa: S608

_PREFIX: Final = f"""
  with {LINE}
  select distinct entry_id from (
    select s.entry_id from work.staged s
     where s.session_id = %(session)s and s.entry_id >= %(low)s and s.entry_id < %(high)s
    union all
    select v.entry_id from line join mirror.version v on v.line_id = line.line_id
     where v.entry_id >= %(low)s and v.entry_id < %(high)s
  ) candidate order by entry_id limit 1000"""  # noqa: S608

_ARCHIVES: Final = f"""
  with {LINE},
  candidate as (
    select s.entry_id from work.staged s where s.session_id = %(session)s and s.is_archive
    union
    select v.entry_id from line join mirror.version v on v.line_id = line.line_id where v.is_archive
  )
  select {_COLUMNS}, c.commit_id, c.committed_at, v.line_id, v.from_seq
    from candidate cross join lateral {version_of("candidate.entry_id")} v
    left join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq
   where not v.dead order by v.title collate "C", v.entry_id"""  # noqa: S608

_ARCHIVE_NAMED: Final = f"""
  with {LINE},
  candidate as (
    select s.entry_id from work.staged s where s.session_id = %(session)s and s.is_archive and s.title = %(name)s
    union
    select v.entry_id from line cross join lateral (
      select v.entry_id from mirror.version v
       where v.line_id = line.line_id and v.is_archive and v.title = %(name)s offset 0) v
  )
  select {_COLUMNS}, c.commit_id, c.committed_at, v.line_id, v.from_seq
    from candidate cross join lateral {version_of("candidate.entry_id")} v
    left join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq
   where not v.dead and v.is_archive and v.title = %(name)s order by v.entry_id"""  # noqa: S608

_ALL: Final = f"""
  with {LINE},
  candidate as (
    select s.entry_id from work.staged s where s.session_id = %(session)s
    union
    select v.entry_id from line join mirror.version v on v.line_id = line.line_id
  )
  select {_COLUMNS}, c.commit_id, c.committed_at, v.line_id, v.from_seq
    from candidate cross join lateral {version_of("candidate.entry_id")} v
    left join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq
   where not v.dead order by v.entry_id"""  # noqa: S608

_POINTING: Final = f"""
  with {LINE},
  candidate as (
    select s.entry_id from work.staged s where s.session_id = %(session)s and s.targets && %(ids)s::text[]
    union
    select v.entry_id from mirror.version v join line on line.line_id = v.line_id
     where v.targets && %(ids)s::text[] and v.targets <> '{{}}'
  )
  select {_COLUMNS}, c.commit_id, c.committed_at, v.line_id, v.from_seq
    from candidate cross join lateral {version_of("candidate.entry_id", _COLUMNS + ", v.targets")} v
    left join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq
   where not v.dead and v.targets && %(ids)s::text[] order by v.entry_id"""  # noqa: S608


_WITH_ATTRIBUTE: Final = f"""
  with {LINE},
  candidate as (
    select s.entry_id from work.staged s
     where s.session_id = %(session)s and s.attributes ->> %(name)s = any(%(values)s)
    union
    select v.entry_id from mirror.version v join line on line.line_id = v.line_id
     where v.attributes ->> %(name)s = any(%(values)s)
  )
  select {_COLUMNS}, c.commit_id, c.committed_at, v.line_id, v.from_seq
    from candidate cross join lateral {version_of("candidate.entry_id", _COLUMNS)} v
    left join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq
   where not v.dead and not v.is_archive and v.attributes ->> %(name)s = any(%(values)s) order by v.entry_id"""  # noqa: S608


async def versions(snapshot: Snapshot, ids: Iterable[str], *, dead: bool = False) -> dict[str, Version]:
    """Return the alive versions of entries by id (with ``dead``, also dead ones); ids without any are left out."""
    wanted = list(ids)
    if not wanted:
        return {}
    async with snapshot.conn.cursor(row_factory=args_row(Version)) as cursor:
        await cursor.execute(_VERSIONS, snapshot.state.arguments(ids=wanted, dead=dead))
        return {version.entry_id: version async for version in cursor}


async def one(snapshot: Snapshot, entry_id: str) -> PlacedVersion | None:
    """Return an alive entry with its ancestors' ids, root first, and the number of its children, in one round trip."""
    cursor = await snapshot.conn.execute(_WITH_COUNT, snapshot.state.arguments(id=entry_id))
    row = await cursor.fetchone()
    if row is None:
        return None
    *values, path, count = row
    return PlacedVersion(Version(*values), path or [], count)


async def one_with_last(snapshot: Snapshot, entry_id: str) -> ParentVersion | None:
    """Return an alive entry with its ancestors' ids, root first, and the greatest position of its children, if any."""
    cursor = await snapshot.conn.execute(_WITH_LAST, snapshot.state.arguments(id=entry_id))
    row = await cursor.fetchone()
    if row is None:
        return None
    *values, path, last = row
    return ParentVersion(Version(*values), path or [], last)


async def children(
    snapshot: Snapshot,
    home_id: str,
    *,
    after: tuple[str, str] = ("", ""),
    limit: int | None = None,
) -> list[Child]:
    """Return the children of a node, or the roots of an archive, in order.

    ``after`` is the (position, id) after which to continue.
    """
    position, entry_id = after
    arguments = snapshot.state.arguments(home=home_id, after_position=position, after_id=entry_id, limit=limit)
    cursor = await snapshot.conn.execute(_CHILDREN, arguments)
    return [Child(*row) for row in await cursor.fetchall()]


async def directly_below(snapshot: Snapshot, ids: Sequence[str]) -> dict[str, list[str]]:
    """Return the ids of each node's children, in order; nodes without children are left out."""
    found: dict[str, list[str]] = {}
    if ids:
        cursor = await snapshot.conn.execute(_BELOW, snapshot.state.arguments(ids=list(ids)))
        for parent_id, entry_id in await cursor.fetchall():
            found.setdefault(parent_id, []).append(entry_id)
    return found


async def last_position(snapshot: Snapshot, home_id: str) -> str | None:
    """Return the greatest position of a node's children, or of an archive's roots; ``None`` if there are none."""
    cursor = await snapshot.conn.execute(_LAST, snapshot.state.arguments(home=home_id))
    row = await cursor.fetchone()
    return None if row is None else str(row[0])


async def child_counts(snapshot: Snapshot, ids: Sequence[str]) -> dict[str, int]:
    """Return the number of children of each given node."""
    if not ids:
        return {}
    cursor = await snapshot.conn.execute(_COUNTS, snapshot.state.arguments(ids=list(ids)))
    return {row[0]: row[1] for row in await cursor.fetchall()}


async def subtree(
    snapshot: Snapshot, ids: Sequence[str], *, max_depth: int | None = None, limit: int | None = None
) -> list[Branching]:
    """Return nodes and their descendants, parents before children, siblings in order; the given nodes have depth 0."""
    arguments = snapshot.state.arguments(
        ids=list(ids), max_depth=1_000_000 if max_depth is None else max_depth, limit=limit
    )
    cursor = await snapshot.conn.execute(_TREE_OF_NODES, arguments)
    return [Branching(row[0], row[1]) for row in await cursor.fetchall()]


async def archive_tree(
    snapshot: Snapshot, archive_id: str, *, max_depth: int | None = None, limit: int | None = None
) -> list[Branching]:
    """Return all nodes of an archive, parents before children, siblings in order; its roots have depth 0."""
    arguments = snapshot.state.arguments(
        archive=archive_id, max_depth=1_000_000 if max_depth is None else max_depth, limit=limit
    )
    cursor = await snapshot.conn.execute(_TREE_OF_ARCHIVE, arguments)
    return [Branching(row[0], row[1]) for row in await cursor.fetchall()]


async def ancestors(snapshot: Snapshot, ids: Iterable[str]) -> dict[str, list[str]]:
    """Return the ids of each entry's ancestors, root first; empty for roots and unknown ids."""
    wanted = list(ids)
    found: dict[str, list[str]] = {entry_id: [] for entry_id in wanted}
    if wanted:
        cursor = await snapshot.conn.execute(_WAYS, snapshot.state.arguments(ids=wanted))
        found.update({row[0]: row[1] for row in await cursor.fetchall()})
    return found


async def with_prefix(snapshot: Snapshot, prefix: str) -> list[str]:
    """Return ids that begin with a prefix and may be alive; `versions` tells which are."""
    cursor = await snapshot.conn.execute(_PREFIX, snapshot.state.arguments(low=prefix, high=prefix + "~"))
    return [row[0] for row in await cursor.fetchall()]


async def archives(snapshot: Snapshot) -> list[ArchiveVersion]:
    """Return the alive archives, ordered by name."""
    found = await _listed(snapshot.conn, _ARCHIVES, snapshot.state.arguments())
    return [ArchiveVersion.of(version) for version in found]


async def archive_named(snapshot: Snapshot, name: str) -> ArchiveVersion | None:
    """Return the alive archive with a name, or ``None``; its cost does not grow with the number of archives.

    Pushed commits may give one name to two archives; then the one with the smaller id is returned.
    """
    found = await _listed(snapshot.conn, _ARCHIVE_NAMED, snapshot.state.arguments(name=name))
    return ArchiveVersion.of(found[0]) if found else None


async def everything(snapshot: Snapshot) -> list[Version]:
    """Return every alive entry, ordered by id; for `verify` and for exports."""
    return await _listed(snapshot.conn, _ALL, snapshot.state.arguments())


async def pointing_at(snapshot: Snapshot, ids: Iterable[str]) -> list[Version]:
    """Return the alive nodes that have a relation to one of the given ids."""
    return await _listed(snapshot.conn, _POINTING, snapshot.state.arguments(ids=list(ids)))


async def with_attribute(snapshot: Snapshot, name: str, values: Iterable[str]) -> list[Version]:
    """Return the alive nodes whose attribute has one of some values; reads all versions of the lineage."""
    return await _listed(snapshot.conn, _WITH_ATTRIBUTE, snapshot.state.arguments(name=name, values=list(values)))


async def _listed(conn: Connection, statement: str, arguments: dict[str, Any]) -> list[Version]:
    async with conn.cursor(row_factory=args_row(Version)) as cursor:
        await cursor.execute(statement, arguments)
        return await cursor.fetchall()
