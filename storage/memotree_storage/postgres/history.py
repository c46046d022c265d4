"""Reading history: commits along a lineage, the versions of one entry, and the differences between two states.

Nothing here walks Git. The lineage of a commit consists of a few lines, and on each line the commits and the versions
of an entry are ranges of an index. So a page costs the same after ten commits and after ten thousand.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from psycopg.rows import args_row, class_row
from psycopg.types.json import Jsonb

from memotree_storage.errors import NotFoundError
from memotree_storage.model import trailers
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.rows import FIELDS, Version
from memotree_storage.postgres.tree import Snapshot, State

EVERY: Final = 2_147_483_647
"""A limit that is none."""

NOTHING: Final = ""
"""The commit id of the state before the first commit: it has no lineage, so nothing is alive there."""


class CommitNotFoundError(NotFoundError):
    """The commit is not mirrored."""

    reason = "COMMIT_NOT_FOUND"

    def __init__(self, commit_id: str) -> None:
        super().__init__(
            f"There is no commit {commit_id!r} in this workspace. List them with ListCommits.", "commit", commit_id
        )


@dataclass(frozen=True, slots=True)
class CommitRow:
    """A mirrored commit, with the short names of the tags that point to it."""

    commit_id: str
    parents: list[str]
    author_name: str
    author_email: str
    authored_at: datetime
    committed_at: datetime
    message: str
    session_id: str | None
    tags: list[str]

    @property
    def agent(self) -> str:
        """The agent of the session that it came from, as its trailer says; otherwise its author."""
        return trailers.trailers_of(self.message).get(trailers.AGENT, self.author_name)


@dataclass(frozen=True, slots=True)
class CommitFilter:
    """A filter for commits; a field that is empty or ``None`` matches all.

    Attributes:
        node_id: Only commits that touch this entry.
        entry_ids: Only commits that touch one of these.
        author: A part of the author's name or address, ignoring case.
        since: Committed at this time or later.
        until: Committed before this time.
    """

    node_id: str = ""
    entry_ids: Sequence[str] | None = None
    author: str = ""
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Revision:
    """One version of an entry, and the commit that created it; a dead version stands for the deletion."""

    version: Version
    commit: CommitRow


@dataclass(frozen=True, slots=True)
class TouchedNodes:
    """The nodes that a commit changes.

    Attributes:
        commit_id: The commit.
        first_parent: The commit before it; ``None`` for a first commit.
        node_ids: The nodes, also moved and deleted ones.
        displaced_ids: Those of them that it moved or deleted; the commit before it still has their old places.
    """

    commit_id: str
    first_parent: str | None
    node_ids: list[str]
    displaced_ids: list[str]


@dataclass(frozen=True, slots=True)
class Counted:
    """How many entries differ between two states, counted up to a limit."""

    created: int
    updated: int
    deleted: int

    @property
    def total(self) -> int:
        """The sum of the three."""
        return self.created + self.updated + self.deleted


_COMMIT: Final = """c.commit_id, c.parents, c.author_name, c.author_email, c.authored_at, c.committed_at, c.message,
    c.session_id, array(select substr(r.name, 11) from mirror.ref r where r.workspace_id = %(workspace)s
      and r.commit_id = c.commit_id and r.name like 'refs/tags/%%' order by r.name) as tags"""
_VERSION: Final = ", ".join(f"v.{name}" for name in FIELDS) + ", c.commit_id, c.committed_at, v.line_id, v.from_seq"
_VERSION_WIDTH: Final = len(FIELDS) + 4

# The part of a lineage that comes after the last commit of the previous page. The page is identified by that commit and
# not by its line and seq, since a rebuild between two pages may create other lines.
_PART: Final = """
  line as materialized (select * from mirror.lineage(%(workspace)s, %(commit)s)),
  part as materialized (
    select line.depth, line.line_id, case when line.depth = last.depth then last.seq - 1 else line.seq end as seq
      from line left join (
        select at.depth, c.seq from mirror.commit c join line at on at.line_id = c.line_id
         where c.workspace_id = %(workspace)s and c.commit_id = %(after)s) last on true
     where %(after)s::text is null or line.depth >= last.depth)"""

# Where versions are read by their commit, "from_seq > 0" selects the index for that (mirror.sql).
_ADMITTED: Final = """
  (%(author)s::text is null or c.author_name ilike %(author)s or c.author_email ilike %(author)s)
  and (%(since)s::timestamptz is null or c.committed_at >= %(since)s)
  and (%(until)s::timestamptz is null or c.committed_at < %(until)s)
  and (%(entries)s::jsonb is null or exists (
    select from mirror.version e where e.line_id = c.line_id and e.from_seq = c.seq and e.from_seq > 0
       and jsonb_exists(%(entries)s::jsonb, e.entry_id)))"""

_LIST: Final = f"""
  with {_PART}
  select {_COMMIT} from part cross join lateral (
    select c.* from mirror.commit c where c.line_id = part.line_id and c.seq <= part.seq and {_ADMITTED}
     order by c.seq desc limit %(limit)s) c
   order by part.depth, c.seq desc limit %(limit)s"""  # noqa: S608 - fragments of this module

_LIST_OF_NODE: Final = f"""
  with {_PART}
  select {_COMMIT} from part cross join lateral (
    select c.* from mirror.version v join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq
     where v.line_id = part.line_id and v.entry_id = %(node)s and v.from_seq <= part.seq and {_ADMITTED}
     order by v.from_seq desc limit %(limit)s) c
   order by part.depth, c.seq desc limit %(limit)s"""  # noqa: S608

_REVISIONS: Final = f"""
  with {_PART}
  select {_VERSION}, {_COMMIT} from part cross join lateral (
    select v.* from mirror.version v
     where v.line_id = part.line_id and v.entry_id = %(node)s and v.from_seq <= part.seq
     order by v.from_seq desc limit %(limit)s) v
    join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq
   order by part.depth, v.from_seq desc limit %(limit)s"""  # noqa: S608

_REVISIONS_OF_EACH: Final = f"""
  with line as materialized (select * from mirror.lineage(%(workspace)s, %(commit)s))
  select {_VERSION}, {_COMMIT} from unnest(%(nodes)s::text[]) node (entry_id) cross join lateral (
    select v.*, line.depth from line cross join lateral (
      select v.* from mirror.version v
       where v.line_id = line.line_id and v.entry_id = node.entry_id and v.from_seq <= line.seq
       order by v.from_seq desc limit %(limit)s) v
     order by line.depth, v.from_seq desc limit %(limit)s) v
    join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq
   order by v.entry_id, v.depth, v.from_seq desc"""  # noqa: S608

# All versions of an entry that a commit reaches, through merges too.
_REACHED: Final = f"""
  select {_VERSION}, {_COMMIT}
    from unnest(%(lines)s::bigint[], %(seqs)s::bigint[]) part (line_id, seq)
   cross join lateral (
    select v.* from mirror.version v
     where v.line_id = part.line_id and v.entry_id = %(node)s and v.from_seq <= part.seq offset 0) v
    join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq
   where %(after)s::text is null or (c.committed_at, c.line_id, c.seq) < (
      select last.committed_at, last.line_id, last.seq from mirror.commit last
       where last.workspace_id = %(workspace)s and last.commit_id = %(after)s)
   order by c.committed_at desc, c.line_id desc, c.seq desc limit %(limit)s"""  # noqa: S608

_TOUCHED: Final = f"""
  select {_VERSION} from mirror.commit c
    join mirror.version v on v.line_id = c.line_id and v.from_seq = c.seq and v.from_seq > 0
   where c.workspace_id = %(workspace)s and c.commit_id = %(commit)s order by v.entry_id limit %(limit)s"""  # noqa: S608


def _blob_at(line: str, session: str) -> str:
    """SQL: the blob of the candidate's visible version at a state; '' if it is not alive there."""
    return f"""coalesce((
      select blob from (
        select -1 as depth, s.blob from work.staged s
         where s.session_id = {session} and s.entry_id = candidate.entry_id
        union all
        select line.depth, one.blob from {line} line cross join lateral (
          select v.blob from mirror.version v
           where v.line_id = line.line_id and v.entry_id = candidate.entry_id and v.from_seq <= line.seq
           order by v.from_seq desc limit 1) one
      ) any_version order by depth limit 1), '')"""  # noqa: S608 - fragments of this module


# Two states can differ only in entries that have a row where the two lineages diverge: on the lines that only one of
# them has, and on their first common line between the two seqs. All other lines are common. The "offset 0" makes the
# range of each line its own index scan; in a join, the planner would expect most rows to match and read the whole
# table.
_DIFFERING: Final = f"""
  with old_line as materialized (select * from mirror.lineage(%(workspace)s, %(old)s)),
  new_line as materialized (select * from mirror.lineage(%(workspace)s, %(new)s)),
  common as materialized (
    select o.line_id, least(o.seq, n.seq) as low, greatest(o.seq, n.seq) as high, o.depth as old_depth,
           n.depth as new_depth
      from old_line o join new_line n on n.line_id = o.line_id order by o.depth limit 1),
  part as (
    select line_id, low, high from common
    union all
    select line_id, 0, seq from old_line where depth < coalesce((select old_depth from common), 2147483647)
    union all
    select line_id, 0, seq from new_line where depth < coalesce((select new_depth from common), 2147483647)),
  candidate as (
    select v.entry_id from part cross join lateral (
      select v.entry_id from mirror.version v
       where v.line_id = part.line_id and v.from_seq > part.low and v.from_seq <= part.high
         and v.from_seq > 0 offset 0) v
    union
    select s.entry_id from work.staged s where s.session_id in (%(old_session)s, %(new_session)s)),
  differing as (
    select candidate.entry_id, state.old_blob, state.new_blob
      from (select entry_id from candidate where entry_id > %(after)s
               and (%(node)s::text is null or entry_id = %(node)s) order by entry_id) candidate
     cross join lateral (
       select {_blob_at("old_line", "%(old_session)s")} as old_blob,
              {_blob_at("new_line", "%(new_session)s")} as new_blob) state
     where state.old_blob <> state.new_blob limit %(limit)s)"""  # noqa: S608

_DIFFERING_IDS: Final = f"{_DIFFERING} select entry_id from differing order by entry_id"  # noqa: S608
_DIFFERING_COUNT: Final = f"""{_DIFFERING}
  select count(*) filter (where old_blob = ''), count(*) filter (where old_blob <> '' and new_blob <> ''),
         count(*) filter (where new_blob = '') from differing"""  # noqa: S608


async def known(conn: Connection, workspace_id: str, commit_ids: Collection[str]) -> set[str]:
    """Return those of some commits that the mirror has."""
    if not commit_ids:
        return set()
    cursor = await conn.execute(
        "select commit_id from mirror.commit where workspace_id = %s and commit_id = any(%s::text[])",
        (workspace_id, list(commit_ids)),
    )
    return {row[0] for row in await cursor.fetchall()}


async def list_commits(
    snapshot: Snapshot, wanted: CommitFilter, *, after: str | None = None, limit: int
) -> list[CommitRow]:
    """Return the commits along the first-parent lineage, newest first, that come after the commit ``after``."""
    arguments = {
        "workspace": snapshot.state.workspace_id,
        "commit": snapshot.state.commit_id,
        "after": after,
        "node": wanted.node_id,
        # As a JSON object, whose keys are found by binary search; an array in a generic plan is scanned each time.
        "entries": None if wanted.entry_ids is None else Jsonb(dict.fromkeys(wanted.entry_ids)),
        "author": _contains(wanted.author),
        "since": wanted.since,
        "until": wanted.until,
        "limit": limit,
    }
    async with snapshot.conn.cursor(row_factory=class_row(CommitRow)) as cursor:
        await cursor.execute(_LIST_OF_NODE if wanted.node_id else _LIST, arguments)
        return await cursor.fetchall()


async def read_commit(conn: Connection, workspace_id: str, commit_id: str) -> CommitRow:
    """Return one commit.

    Raises:
        CommitNotFoundError: The commit is not mirrored.
    """
    async with conn.cursor(row_factory=class_row(CommitRow)) as cursor:
        await cursor.execute(
            f"select {_COMMIT} from mirror.commit c where workspace_id = %(workspace)s and commit_id = %(commit)s",  # noqa: S608
            {"workspace": workspace_id, "commit": commit_id},
        )
        found = await cursor.fetchone()
    if found is None:
        raise CommitNotFoundError(commit_id)
    return found


async def read_commits(conn: Connection, workspace_id: str, commit_ids: Sequence[str]) -> list[CommitRow]:
    """Return some commits, in any order; those that are not mirrored are left out."""
    async with conn.cursor(row_factory=class_row(CommitRow)) as cursor:
        await cursor.execute(
            f"select {_COMMIT} from mirror.commit c"  # noqa: S608
            " where workspace_id = %(workspace)s and commit_id = any(%(commits)s)",
            {"workspace": workspace_id, "commits": list(commit_ids)},
        )
        return await cursor.fetchall()


async def touched(conn: Connection, workspace_id: str, commit_id: str, *, limit: int) -> list[Version]:
    """Return the versions that a commit created, by entry id: the changes to its first parent. Deletions are dead."""
    async with conn.cursor(row_factory=args_row(Version)) as cursor:
        await cursor.execute(_TOUCHED, {"workspace": workspace_id, "commit": commit_id, "limit": limit})
        return await cursor.fetchall()


async def count_touched(conn: Connection, workspace_id: str, commit_id: str) -> int:
    """Return the number of entries that a commit changes."""
    cursor = await conn.execute(
        "select count(*) from mirror.commit c"
        " join mirror.version v on v.line_id = c.line_id and v.from_seq = c.seq and v.from_seq > 0"
        " where c.workspace_id = %s and c.commit_id = %s",
        (workspace_id, commit_id),
    )
    row = await cursor.fetchone()
    return int(row[0]) if row else 0


_TOUCHED_NODES: Final = """
  select c.commit_id, c.parents[1] as first_parent, array_agg(v.entry_id) as node_ids,
         coalesce(array_agg(v.entry_id) filter (where exists (
           select from mirror.placement p
            where p.line_id = c.line_id and p.entry_id = v.entry_id and p.from_seq = c.seq and exists (
              select from mirror.lineage(c.workspace_id, c.parents[1]) line join mirror.placement earlier
                  on earlier.line_id = line.line_id and earlier.entry_id = v.entry_id
                 and earlier.from_seq <= line.seq))), '{}') as displaced_ids
    from mirror.commit c
    join mirror.version v on v.line_id = c.line_id and v.from_seq = c.seq and v.from_seq > 0
   where c.workspace_id = %(workspace)s and c.commit_id = any(%(commits)s) and not v.is_archive
   group by c.commit_id, c.parents"""


async def touched_nodes(conn: Connection, workspace_id: str, commit_ids: Sequence[str]) -> list[TouchedNodes]:
    """Return the nodes that each commit changes, in any order; commits that change none are left out."""
    async with conn.cursor(row_factory=class_row(TouchedNodes)) as cursor:
        await cursor.execute(_TOUCHED_NODES, {"workspace": workspace_id, "commits": list(commit_ids)})
        return await cursor.fetchall()


async def list_revisions(snapshot: Snapshot, entry_id: str, *, after: str | None = None, limit: int) -> list[Revision]:
    """Return the versions of an entry along the lineage, newest first, that come after the commit ``after``."""
    arguments = {
        "workspace": snapshot.state.workspace_id,
        "commit": snapshot.state.commit_id,
        "after": after,
        "node": entry_id,
        "limit": limit,
    }
    async with snapshot.conn.cursor(row_factory=args_row(_read_revision)) as cursor:
        await cursor.execute(_REVISIONS, arguments)
        return await cursor.fetchall()


async def revisions_of_each(snapshot: Snapshot, entry_ids: Collection[str], *, limit: int) -> dict[str, list[Revision]]:
    """Return the latest versions of some entries along the lineage, newest first, at most ``limit`` of each."""
    arguments = {
        "workspace": snapshot.state.workspace_id,
        "commit": snapshot.state.commit_id,
        "nodes": list(entry_ids),
        "limit": limit,
    }
    found: dict[str, list[Revision]] = {}
    async with snapshot.conn.cursor(row_factory=args_row(_read_revision)) as cursor:
        await cursor.execute(_REVISIONS_OF_EACH, arguments)
        for revision in await cursor.fetchall():
            found.setdefault(revision.version.entry_id, []).append(revision)
    return found


async def reached_revisions(
    snapshot: Snapshot, reached: Mapping[int, int], entry_id: str, *, after: str | None, limit: int
) -> list[Revision]:
    """Return the versions of an entry that a commit reaches through all parents, newest first.

    Args:
        snapshot: The commit.
        reached: What it reaches, as `merge_bases.history_of` returns it.
        entry_id: The entry.
        after: Only those that come after this commit.
        limit: The most versions.
    """
    arguments = {
        "workspace": snapshot.state.workspace_id,
        "lines": list(reached),
        "seqs": list(reached.values()),
        "node": entry_id,
        "after": after,
        "limit": limit,
    }
    async with snapshot.conn.cursor(row_factory=args_row(_read_revision)) as cursor:
        await cursor.execute(_REACHED, arguments)
        return await cursor.fetchall()


def _read_revision(*row: Any) -> Revision:
    return Revision(Version(*row[:_VERSION_WIDTH]), CommitRow(*row[_VERSION_WIDTH:]))


async def differing(
    conn: Connection, old: State, new: State, *, node_id: str = "", after: str = "", limit: int
) -> list[str]:
    """Return the ids above ``after`` of entries that differ between two states; ``node_id`` limits it to one node."""
    cursor = await conn.execute(_DIFFERING_IDS, _both(old, new, node_id, after, limit))
    return [row[0] for row in await cursor.fetchall()]


async def count_differing(conn: Connection, old: State, new: State, *, node_id: str = "", limit: int) -> Counted:
    """Count the entries that differ between two states, up to ``limit``."""
    cursor = await conn.execute(_DIFFERING_COUNT, _both(old, new, node_id, "", limit))
    row = await cursor.fetchone()
    return Counted(*row) if row else Counted(0, 0, 0)


def _both(old: State, new: State, node_id: str, after: str, limit: int) -> dict[str, object]:
    return {
        "workspace": new.workspace_id,
        "old": old.commit_id,
        "new": new.commit_id,
        "old_session": old.session_id,
        "new_session": new.session_id,
        "node": node_id or None,
        "after": after,
        "limit": limit,
    }


def _contains(text: str) -> str | None:
    """A LIKE pattern for texts that contain this one literally."""
    if not text:
        return None
    escaped = text.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    return f"%{escaped}%"
