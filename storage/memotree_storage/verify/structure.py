"""Checks the mirror's own consistency: the workspace, refs, counts, lines and intervals."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import CorruptError
from memotree_storage.git.objects import ObjectMissingError
from memotree_storage.mirror.catch_up import mirrored_refs, odd_refs, shown_ref
from memotree_storage.ports import CommitReader
from memotree_storage.postgres import projector, registry
from memotree_storage.postgres.database import Connection
from memotree_storage.store import Store
from memotree_storage.verify.report import Difference, Step, in_git, in_postgres

_MOST_LISTED: Final = 10_000
"""Rows that one check reports; that is plenty to see that a mirror is broken."""

_LINES: Final = """
  select l.line_id, l.tip_seq, count(c.seq), min(c.seq), max(c.seq)
    from mirror.line l left join mirror.commit c using (line_id)
   where l.workspace_id = %(workspace)s group by l.line_id, l.tip_seq
  having count(c.seq) <> l.tip_seq or min(c.seq) <> 1 or max(c.seq) <> l.tip_seq"""

_CHAINS: Final = """
  select c.commit_id, c.line_id, c.seq from mirror.commit c join mirror.line l using (line_id)
    left join mirror.commit p on p.workspace_id = c.workspace_id and p.commit_id = c.parents[1]
   where c.workspace_id = %(workspace)s and (l.workspace_id <> c.workspace_id or not coalesce(
     case when cardinality(c.parents) = 0 then c.seq = 1 and l.parent_line is null
          else (c.line_id = p.line_id and c.seq = p.seq + 1)
            or (c.seq = 1 and l.parent_line = p.line_id and l.fork_seq = p.seq) end, false))"""


def _intervals(table: str) -> str:
    return f"""
  select entry_id, commit_id, to_seq, next_seq from (
    select i.entry_id, i.line_id, i.from_seq, i.to_seq,
           lead(i.from_seq) over (partition by i.line_id, i.entry_id order by i.from_seq) as next_seq
      from mirror.{table} i join mirror.line l using (line_id) where l.workspace_id = %(workspace)s) i
    left join mirror.commit c on c.line_id = i.line_id and c.seq = i.from_seq
   where i.to_seq is distinct from i.next_seq limit %(limit)s"""  # noqa: S608 - names of this module


_HOMELESS: Final = """
  select v.entry_id, v.line_id, v.from_seq from mirror.version v join mirror.line l using (line_id)
   where l.workspace_id = %(workspace)s
     and not exists (select from mirror.commit c where c.line_id = v.line_id and c.seq = v.from_seq)
   limit %(limit)s"""

_PLACED_ALONE: Final = """
  select p.entry_id, c.commit_id from mirror.placement p join mirror.line l using (line_id)
    left join mirror.commit c on c.line_id = p.line_id and c.seq = p.from_seq
   where l.workspace_id = %(workspace)s and not exists (
     select from mirror.version v
      where v.line_id = p.line_id and v.entry_id = p.entry_id and v.from_seq = p.from_seq and not v.is_archive)
     and p.entry_id not in ( -- those that stood nowhere were shown elsewhere without a version of their own
       select q.entry_id from mirror.placement q join mirror.line m using (line_id)
        where m.workspace_id = %(workspace)s and q.fault is not null)
   limit %(limit)s"""

_OUTBOX: Final = """
  select v.entry_id from mirror.outbox o join mirror.version v using (version_id) join mirror.line l using (line_id)
   where (o.workspace_id = %(workspace)s or l.workspace_id = %(workspace)s)
     and (o.workspace_id <> l.workspace_id or v.is_archive or v.dead) limit %(limit)s"""


_OVERRIDDEN: Final = """
  with expected as (
    select hidden.version_id, first.line_id as by_line, first.from_seq, first.entry_id
      from mirror.line l
      join mirror.commit fork on fork.line_id = l.parent_line and fork.seq = l.fork_seq
      cross join lateral (
        select distinct on (v.entry_id) v.line_id, v.entry_id, v.from_seq from mirror.version v
         where v.line_id = l.line_id order by v.entry_id, v.from_seq) first
      cross join lateral (
        select one.* from mirror.lineage(%(workspace)s, fork.commit_id) line cross join lateral (
          select v.version_id, v.dead, v.is_archive from mirror.version v
           where v.line_id = line.line_id and v.entry_id = first.entry_id and v.from_seq <= line.seq
           order by v.from_seq desc limit 1) one
         order by line.depth limit 1) hidden
     where l.workspace_id = %(workspace)s and not hidden.dead and not hidden.is_archive),
  there as (
    select r.version_id, r.by_line, r.from_seq, v.entry_id
      from mirror.overridden r join mirror.line l on l.line_id = r.by_line join mirror.version v using (version_id)
     where l.workspace_id = %(workspace)s)
  select entry_id, by_line, e.from_seq, t.from_seq
    from expected e full join there t using (version_id, by_line, entry_id)
   where e.from_seq is distinct from t.from_seq limit %(limit)s"""


async def check_structure(
    conn: Connection, store: Store, workspace_id: str, repository: CommitReader, refs: Mapping[str, str]
) -> AsyncIterator[Difference | Step]:
    """Check the workspace's description, refs, counts, lines and intervals."""
    check = _Structure(conn, workspace_id)
    yield Step("structure", 0, 7)
    for found in await _workspace(conn, store, workspace_id):
        yield found
    for found in await _refs(conn, workspace_id, repository, refs):
        yield found
    yield Step("structure", 1, 7)
    parts = (check.counts, check.lines, check.versions, check.overridden, check.placements, check.outbox)
    for number, part in enumerate(parts, start=2):
        for found in await part():
            yield found
        yield Step("structure", number, 7)


class _Structure:
    """The checks that need only SQL."""

    def __init__(self, conn: Connection, workspace_id: str) -> None:
        self._conn = conn
        self._workspace_id = workspace_id
        self._arguments = {"workspace": workspace_id, "limit": _MOST_LISTED}

    async def counts(self) -> list[Difference]:
        return [
            in_postgres("count", f"The watermark says {one.noted} {one.kind} rows, but there are {one.there}.")
            for one in await projector.row_counts(self._conn, self._workspace_id)
            if one.noted != one.there
        ]

    async def lines(self) -> list[Difference]:
        found = [
            in_postgres(
                "line",
                f"Line {line} has its tip at {tip} and {count} commits, numbered {low} to {high}; they should be 1 to "
                "the tip without a gap.",
            )
            for line, tip, count, low, high in await self._rows(_LINES)
        ]
        found += [
            in_postgres(
                "line",
                f"Commit {commit} is at {seq} of line {line}, which neither continues its first parent nor forks "
                "off from it.",
                commit_id=commit,
            )
            for commit, line, seq in await self._rows(_CHAINS)
        ]
        return found

    async def versions(self) -> list[Difference]:
        found = [
            in_postgres(
                "row",
                f"A version of {entry} ends {_at(ends)}, and the next one on its line begins {_at(following)}.",
                commit_id=commit or "",
                node_id=entry,
            )
            for entry, commit, ends, following in await self._rows(_intervals("version"))
        ]
        found += [
            in_postgres(
                "row", f"A version of {entry} is at {seq} of line {line}, where there is no commit.", node_id=entry
            )
            for entry, line, seq in await self._rows(_HOMELESS)
        ]
        return found

    async def overridden(self) -> list[Difference]:
        return [
            in_postgres(
                "row",
                f"A version of {entry} should be overridden on line {line} {_from(should)}, and is {_from(there)}.",
                node_id=entry,
            )
            for entry, line, should, there in await self._rows(_OVERRIDDEN)
        ]

    async def placements(self) -> list[Difference]:
        found = [
            in_postgres(
                "placement",
                f"A placement of {entry} ends {_at(ends)}, and the next one on its line begins {_at(following)}.",
                commit_id=commit or "",
                node_id=entry,
            )
            for entry, commit, ends, following in await self._rows(_intervals("placement"))
        ]
        found += [
            in_postgres(
                "placement",
                f"{entry} has a placement where no version of it begins.",
                commit_id=commit or "",
                node_id=entry,
            )
            for entry, commit in await self._rows(_PLACED_ALONE)
        ]
        return found

    async def outbox(self) -> list[Difference]:
        return [
            in_postgres(
                "outbox", f"The outbox names a version of {entry} that does not belong in the index.", node_id=entry
            )
            for (entry,) in await self._rows(_OUTBOX)
        ]

    async def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        return await (await self._conn.execute(statement, self._arguments)).fetchall()


def _from(seq: object) -> str:
    return "not at all" if seq is None else f"from {seq}"


def _at(seq: object) -> str:
    return "never" if seq is None else f"at {seq}"


async def _workspace(conn: Connection, store: Store, workspace_id: str) -> list[Difference]:
    """Compare the name, description and creation time of the workspace."""
    try:
        described = await in_store_thread(store.repositories.describe, workspace_id)
    except CorruptError as error:
        return [in_git("workspace", error.message)]
    row = await registry.find_workspace(conn, workspace_id)
    pairs = (
        ("name", row.name, row.name if row.name == described.other_name else described.name),
        ("description", row.description, described.description),
        ("created_at", row.created_at, described.created_at),
    )
    return [
        in_postgres("workspace", f"The workspace's {name} is {there!r}, but Git says {should!r}.")
        for name, there, should in pairs
        if there != should
    ]


async def _refs(
    conn: Connection, workspace_id: str, repository: CommitReader, refs: Mapping[str, str]
) -> list[Difference]:
    """Compare the mirrored branches and tags, which are the watermark, with Git."""
    should, found = await in_store_thread(_peeled, repository, mirrored_refs(refs))
    found += [
        in_git("ref", f"{shown_ref(name)} is not mirrored, because {why}; rename it with git.")
        for name, why in odd_refs(sorted(refs)).items()
    ]
    cursor = await conn.execute(
        "select name, object_id, commit_id from mirror.ref where workspace_id = %s", (workspace_id,)
    )
    there = {name: (object_id, commit_id) for name, object_id, commit_id in await cursor.fetchall()}
    for name in sorted(should.keys() | there.keys()):
        if there.get(name) == should.get(name):
            continue
        is_at, belongs = (f"at {pair[0]}" if pair else "absent" for pair in (there.get(name), should.get(name)))
        if is_at == belongs:
            is_at, belongs = (f"of commit {pair[name][1]}" for pair in (there, should))
        found.append(
            in_postgres(
                "ref",
                f"{name} is {is_at} in the mirror, but {belongs} in Git.",
                commit_id=(should.get(name) or there[name])[1],
            )
        )
    return found


def _peeled(repository: CommitReader, refs: Mapping[str, str]) -> tuple[dict[str, tuple[str, str]], list[Difference]]:
    """Return each ref with its object and the commit that it peels to; refs without a commit are not mirrored."""
    peeled = {}
    damaged = []
    for name, target in refs.items():
        try:
            commit_id = repository.peel(target)
            if commit_id is not None:
                peeled[name] = (target, commit_id)
        except ObjectMissingError as error:
            if not repository.exists(target):
                damaged.append(in_git("ref", f"{name} points to an object that is missing. {error.message}"))
        except CorruptError as error:
            damaged.append(in_git("ref", f"{name} points to an object that is damaged. {error.message}"))
    return peeled, damaged
