"""Reading the tree at one state: a commit, resolved along its lineage, plus the staged changes of a session.

An entry's version on a line is its newest row at or before the line's seq, and the nearest line that has one decides;
staged rows are nearer than any line. Every statement resolves the lineage itself, so that its result belongs to one
state even if lines are collected or rebuilt meanwhile. An entry's home is the node or archive that it is placed under:
its parent, or the archive if it is a root.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from psycopg.rows import args_row

from memotree_storage.concurrency.threads import in_store_thread_if
from memotree_storage.postgres.database import Connection, fetched
from memotree_storage.postgres.rows import FIELDS, Version

_FEW_ROWS: Final = 2000
"""A longer tree is put into its order in a thread, so that other calls can run."""


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

COLUMNS: Final = ", ".join(f"v.{name}" for name in FIELDS)
"""SQL: the columns of a version ``v``."""


def version_of(entry: str, columns: str = COLUMNS) -> str:
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
    """SQL: the placement of an entry, given by an expression for its id; one row or none; it may be dead.

    A staged row of a node that is shown elsewhere than its file says changes that only if it has another home.
    """
    placed = f"""
        select line.depth, one.* from line cross join lateral (
          select p.parent_id, p.archive_id, p.position, p.dead, p.file_home from mirror.placement p
           where p.line_id = line.line_id and p.entry_id = {entry} and p.from_seq <= line.seq
           order by p.from_seq desc limit 1) one"""  # noqa: S608 - expressions of this module
    return f"""(
      select * from (
        select -1 as depth, s.parent_id, s.archive_id, s.position, s.dead, null as file_home
          from work.staged s where s.session_id = %(session)s and s.entry_id = {entry} and (s.dead or not exists (
            select from ({placed} order by depth limit 1) near where near.file_home = s.home))
        union all {placed}
      ) any_placement order by depth limit 1)"""  # noqa: S608 - expressions of this module


def is_on_nearer_line(table: str, entry: str) -> str:
    """SQL: whether an entry has a row on a line nearer than ``line``.

    Lines are looked up one by one: as a join with "line", the planner may look for the entry on every line of the
    database, in the order of their ids. "offset 0" keeps it from making a join of this.
    """
    return f"""exists (
           select from line near cross join lateral (
             select from mirror.{table} q
              where q.line_id = near.line_id and q.entry_id = {entry} and q.from_seq <= near.seq offset 0) q
            where near.depth < line.depth offset 0)"""  # noqa: S608 - expressions of this package


def children_of(home: str) -> str:
    """SQL: id and position of the nodes in a home (a node, or an archive for its roots), given by an expression."""
    return f"""(
      select s.entry_id, s.position from work.staged s where s.session_id = %(session)s and {_staged_at(home)}
      union all
      select p.entry_id, p.position from line cross join lateral (
        select p.entry_id, p.position from mirror.placement p
         where p.line_id = line.line_id and {_placed_at(home)} offset 0) p
    )"""  # noqa: S608 - expressions of this module


def _staged_at(home: str) -> str:
    """SQL: whether the staged row ``s`` is an alive node in a home."""
    return f"s.home = {home} and not s.dead and not s.is_archive"


def _placed_at(home: str) -> str:
    """SQL: whether the placement ``p`` is valid at its line's seq, in a home, and no nearer line places its entry.

    The "offset 0" makes the subquery for staged rows one index probe. As a join, it was planned while the tables were
    small, and then read all staged rows of the session for each child.
    """
    return f"""p.home = {home} and not p.dead and p.from_seq <= line.seq
         and (p.to_seq is null or p.to_seq > line.seq)
         and not {is_on_nearer_line("placement", "p.entry_id")}
         and not exists (select from work.staged s where s.session_id = %(session)s and s.entry_id = p.entry_id
                            and (s.dead or p.file_home is null or s.home <> p.file_home) offset 0)"""


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
  select {COLUMNS}, c.commit_id, c.committed_at, v.line_id, v.from_seq
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
   cross join lateral {children_of("wanted.id")} child order by child.position, child.entry_id"""  # noqa: S608

_FIRST_BELOW: Final = f"""
  with {LINE}
  select wanted.id, child.entry_id from unnest(%(ids)s::text[]) as wanted(id)
   cross join lateral {in_order("wanted.id", "%(limit)s")} child order by child.position, child.entry_id"""  # noqa: S608

_LAST: Final = f"""
  with {LINE}
  select position from {in_order("%(home)s", "1", "desc")} child"""  # noqa: S608

_COUNTS: Final = f"""
  with {LINE}
  select wanted.id, (select count(*) from {children_of("wanted.id")} child)
    from unnest(%(ids)s::text[]) as wanted(id)"""  # noqa: S608

# Linear in what it returns: "union" drops rows that it has, so it ends in a cycle without a list of what was seen in
# each row. With a limit on depth the rows carry their depth, and the limit ends it. The order is made in Python.
_TREE: Final = f"""
  with recursive {LINE},
  tree (entry_id, home, position) as (
    select top.entry_id collate "C", ''::text collate "C", top.position collate "C" from {{top}} top
    union
    select child.entry_id, tree.entry_id, child.position
      from tree cross join lateral {children_of("tree.entry_id")} child
  )
  select entry_id, home, position from tree"""  # noqa: S608

_SHALLOW_TREE: Final = f"""
  with recursive {LINE},
  tree (entry_id, home, position, depth) as (
    select top.entry_id collate "C", ''::text collate "C", top.position collate "C", 0 from {{top}} top
    union
    select child.entry_id, tree.entry_id, child.position, tree.depth + 1
      from tree cross join lateral {children_of("tree.entry_id")} child
     where tree.depth < %(max_depth)s
  )
  select entry_id, home, position from tree"""  # noqa: S608

_NODES: Final = "(select id as entry_id, '' as position from unnest(%(ids)s::text[]) id)"
_ROOTS: Final = children_of("%(archive)s")


def above(ids: str) -> str:
    """SQL: "up", pairs of an entry and its parent, from some entries (given by an expression) to their roots.

    Each way begins with a pair of "" and the entry, so that placements are looked up in one place: a statement of more
    than 4096 characters is read by psycopg again for each call.
    """
    return f"""
  up (entry_id, parent_id) as (
    select ''::text collate "C", wanted.id collate "C" from unnest({ids}) as wanted(id)
    union
    select up.parent_id, p.parent_id from up
     cross join lateral {placement_of("up.parent_id")} p where not p.dead and p.parent_id <> ''
  )"""  # noqa: S608 - expressions of this package


_WAYS: Final = f"""
  with recursive {LINE}, {above("%(ids)s::text[]")}
  select entry_id, parent_id from up where entry_id <> ''"""  # noqa: S608

_PLACED: Final = f"""
  with recursive {LINE}, {above("array[%(id)s::text]")}
  select {COLUMNS}, c.commit_id, c.committed_at, v.line_id, v.from_seq,
         (select array_agg(array[entry_id, parent_id]) from up),
         {{more}}
    from {version_of("%(id)s")} v
    left join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq
   where not v.dead"""  # noqa: S608

_WITH_COUNT: Final = _PLACED.format(more=f"(select count(*) from {children_of('%(id)s')} child)")  # noqa: S608
_WITH_LAST: Final = _PLACED.format(more=f"(select position from {in_order('%(id)s', '1', 'desc')} child)")  # noqa: S608

_ROOT_ARCHIVES: Final = f"""
  with {LINE}
  select wanted.id, p.archive_id from unnest(%(ids)s::text[]) as wanted(id)
   cross join lateral {placement_of("wanted.id")} p where not p.dead"""  # noqa: S608

_PREFIX: Final = f"""
  with {LINE}
  select distinct entry_id from (
    select s.entry_id from work.staged s
     where s.session_id = %(session)s and s.entry_id >= %(low)s and s.entry_id < %(high)s
    union all
    select v.entry_id from line cross join lateral (
      select v.entry_id from mirror.version v
       where v.line_id = line.line_id and v.entry_id >= %(low)s and v.entry_id < %(high)s offset 0) v
  ) candidate order by entry_id limit 1000"""  # noqa: S608

_ALL: Final = f"""
  with {LINE},
  candidate as (
    select s.entry_id from work.staged s where s.session_id = %(session)s
    union
    select v.entry_id from line join mirror.version v on v.line_id = line.line_id
  )
  select {COLUMNS}, c.commit_id, c.committed_at, v.line_id, v.from_seq
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
  select {COLUMNS}, c.commit_id, c.committed_at, v.line_id, v.from_seq
    from candidate cross join lateral {version_of("candidate.entry_id", COLUMNS + ", v.targets")} v
    left join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq
   where not v.dead and v.targets && %(ids)s::text[] order by v.entry_id"""  # noqa: S608


async def versions(snapshot: Snapshot, ids: Iterable[str], *, dead: bool = False) -> dict[str, Version]:
    """Return the alive versions of entries by id (with ``dead``, also dead ones); ids without any are left out."""
    wanted = list(ids)
    if not wanted:
        return {}
    async with snapshot.conn.cursor(row_factory=args_row(Version)) as cursor:
        await cursor.execute(_VERSIONS, snapshot.state.arguments(ids=wanted, dead=dead))
        return {version.entry_id: version for version in await fetched(cursor)}


async def one(snapshot: Snapshot, entry_id: str) -> PlacedVersion | None:
    """Return an alive entry with its ancestors' ids, root first, and the number of its children, in one round trip."""
    cursor = await snapshot.conn.execute(_WITH_COUNT, snapshot.state.arguments(id=entry_id))
    row = await cursor.fetchone()
    if row is None:
        return None
    *values, above, count = row
    return PlacedVersion(Version(*values), _way(entry_id, dict(above or ())), count)


async def one_with_last(snapshot: Snapshot, entry_id: str) -> ParentVersion | None:
    """Return an alive entry with its ancestors' ids, root first, and the greatest position of its children, if any."""
    cursor = await snapshot.conn.execute(_WITH_LAST, snapshot.state.arguments(id=entry_id))
    row = await cursor.fetchone()
    if row is None:
        return None
    *values, above, last = row
    return ParentVersion(Version(*values), _way(entry_id, dict(above or ())), last)


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


async def first_below(snapshot: Snapshot, ids: Sequence[str], limit: int) -> dict[str, list[str]]:
    """Return the ids of the first children of each node, or roots of each archive, in order; at most ``limit`` each."""
    found: dict[str, list[str]] = {}
    if ids:
        cursor = await snapshot.conn.execute(_FIRST_BELOW, snapshot.state.arguments(ids=list(ids), limit=limit))
        for home_id, entry_id in await cursor.fetchall():
            found.setdefault(home_id, []).append(entry_id)
    return found


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
    return {row[0]: row[1] for row in await fetched(cursor)}


async def subtree(snapshot: Snapshot, ids: Sequence[str], *, max_depth: int | None = None) -> list[Branching]:
    """Return nodes and their descendants, parents before children, siblings in order; the given nodes have depth 0."""
    return await _tree(snapshot, _NODES, max_depth, ids=list(ids))


async def archive_tree(snapshot: Snapshot, archive_id: str, *, max_depth: int | None = None) -> list[Branching]:
    """Return all nodes of an archive, parents before children, siblings in order; its roots have depth 0."""
    return await _tree(snapshot, _ROOTS, max_depth, archive=archive_id)


async def _tree(snapshot: Snapshot, top: str, max_depth: int | None, **arguments: object) -> list[Branching]:
    statement = (_TREE if max_depth is None else _SHALLOW_TREE).format(top=top)
    cursor = await snapshot.conn.execute(statement, snapshot.state.arguments(max_depth=max_depth, **arguments))
    rows = await fetched(cursor)
    return await in_store_thread_if(len(rows) > _FEW_ROWS, _in_tree_order, rows)


def _in_tree_order(rows: Iterable[tuple[str, str, str]]) -> list[Branching]:
    """Order nodes, given with their home and position, parents before children; the home of the top nodes is ""."""
    below: dict[str, list[tuple[str, str]]] = {}
    for entry_id, home, position in rows:
        below.setdefault(home, []).append((position, entry_id))
    found: dict[str, Branching] = {}
    waiting = [(entry_id, 0) for _, entry_id in sorted(below.get("", []), reverse=True)]
    while waiting:
        entry_id, depth = waiting.pop()
        if entry_id not in found:  # else it stands below itself, in a cycle that somebody pushed
            found[entry_id] = Branching(entry_id, depth)
            waiting += [(child, depth + 1) for _, child in sorted(below.get(entry_id, []), reverse=True)]
    return list(found.values())


async def ancestors(snapshot: Snapshot, ids: Iterable[str]) -> dict[str, list[str]]:
    """Return the ids of each entry's ancestors, root first; empty for roots and unknown ids."""
    wanted = list(ids)
    if not wanted:
        return {}
    cursor = await snapshot.conn.execute(_WAYS, snapshot.state.arguments(ids=wanted))
    return await ways_of(wanted, dict(await fetched(cursor)))


async def ways_of(ids: Collection[str], parents: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the ids above each entry, root first, given the parents of all of them and of those above."""
    return await in_store_thread_if(
        len(ids) > _FEW_ROWS, lambda: {entry_id: _way(entry_id, parents) for entry_id in ids}
    )


async def root_archives(snapshot: Snapshot, ids: Collection[str]) -> dict[str, str]:
    """Return the archive that each of some alive roots is shown in, by the id of the root.

    That is another archive than its file names if that one is gone (`memotree_storage.postgres.misplaced`).
    """
    if not ids:
        return {}
    cursor = await snapshot.conn.execute(_ROOT_ARCHIVES, snapshot.state.arguments(ids=list(ids)))
    return dict(await fetched(cursor))


def _way(entry_id: str, parents: Mapping[str, str]) -> list[str]:
    """The ids above an entry, root first, given the parents; a cycle is followed once."""
    way: dict[str, None] = {}
    above = parents.get(entry_id)
    while above is not None and above not in way:
        way[above] = None
        above = parents.get(above)
    return list(reversed(way))


async def with_prefix(snapshot: Snapshot, prefix: str) -> list[str]:
    """Return ids that begin with a prefix and may be alive; `versions` tells which are."""
    cursor = await snapshot.conn.execute(_PREFIX, snapshot.state.arguments(low=prefix, high=prefix + "~"))
    return [row[0] for row in await cursor.fetchall()]


async def everything(snapshot: Snapshot) -> list[Version]:
    """Return every alive entry, ordered by id; for `verify` and for exports."""
    return await listed(snapshot.conn, _ALL, snapshot.state.arguments())


async def pointing_at(snapshot: Snapshot, ids: Iterable[str]) -> list[Version]:
    """Return the alive nodes that have a relation to one of the given ids."""
    return await listed(snapshot.conn, _POINTING, snapshot.state.arguments(ids=list(ids)))


async def listed(conn: Connection, statement: str, arguments: dict[str, Any]) -> list[Version]:
    """Return the versions that a statement selects by `COLUMNS`, with the commit, line and seq of each."""
    async with conn.cursor(row_factory=args_row(Version)) as cursor:
        await cursor.execute(statement, arguments)
        return await fetched(cursor)
