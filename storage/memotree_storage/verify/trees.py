"""Checks that what stands at the branches is a tree: git merges files one by one and knows nothing of parents.

A clean ``git merge`` can delete a node on one side while the other side adds a child to it, or make two moves a cycle.
Such nodes are placed where they can be seen until somebody mends them (`memotree_storage.postgres.misplaced`); whether
the mirror does that is checked, too.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from psycopg.rows import args_row

from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.mirror.catch_up import mirrored_refs
from memotree_storage.mirror.tree_faults import NAME_TAKEN, FaultRow, TreeFault, tell_fault
from memotree_storage.ports import CommitReader
from memotree_storage.postgres import misplaced
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.misplaced import CYCLE, NO_ARCHIVE, ORPHAN, OTHER_ARCHIVE
from memotree_storage.postgres.refs import BRANCHES
from memotree_storage.postgres.tree import LINE, State, version_of
from memotree_storage.verify.report import Difference, Step, in_git, in_postgres

_MOST_LISTED: Final = 1000
"""Faults of one branch that are reported; more say no more."""

_PRECEDENCE: Final = (ORPHAN, CYCLE, NO_ARCHIVE, OTHER_ARCHIVE, NAME_TAKEN)
"""Of several faults of one node, the first decides where it is shown."""

_FIELDS: Final = "v.entry_id, v.is_archive, v.dead, v.parent_id, v.archive_id, v.title, v.blob"

_FAULTS: Final = f"""
  with recursive {LINE},
  candidate as (select distinct v.entry_id from line join mirror.version v on v.line_id = line.line_id),
  alive as materialized (
    select v.entry_id, v.is_archive, v.parent_id, v.archive_id, v.title, v.blob
      from candidate cross join lateral
           {version_of("candidate.entry_id", _FIELDS)} v
     where not v.dead),
  node as materialized (
    select a.*, p.entry_id is not null as has_parent, p.archive_id as archive_of_parent,
           r.entry_id is not null as has_archive
      from alive a
      left join alive p on p.entry_id = a.parent_id and not p.is_archive
      left join alive r on r.entry_id = a.archive_id and r.is_archive
     where not a.is_archive),
  reached (entry_id) as (
    select entry_id from node where not has_parent
    union
    select node.entry_id from reached join node on node.parent_id = reached.entry_id),
  -- Sets are compared by sorting them. As an anti join they would be hashed, in a table for the trillions of rows that
  -- PostgreSQL expects of the recursion: with nine thousand nodes that took a quarter of an hour.
  unreached as materialized (select entry_id from node except select entry_id from reached)
  select 'orphan', entry_id, title, blob, parent_id from node where parent_id <> '' and not has_parent
  union all
  select 'no_archive', entry_id, title, blob, archive_id from node where not has_archive and not has_parent
  union all
  select 'other_archive', entry_id, title, blob, parent_id from node
   where has_parent and archive_of_parent <> archive_id
  union all
  select 'cycle', entry_id, title, blob, parent_id from node join unreached using (entry_id)
  union all
  select 'name_taken', entry_id, title, blob, min(entry_id) over (partition by title) from (
    select *, count(*) over (partition by title) as number from alive where is_archive) archive where number > 1
  order by 1, 2 limit %(limit)s"""  # noqa: S608 - constants of tree.py


async def check_trees(
    conn: Connection, workspace_id: str, repository: CommitReader, refs: Mapping[str, str]
) -> AsyncIterator[Difference | Step]:
    """Name each node at the head of a branch that stands nowhere, with its file, its line and a way out."""
    heads: dict[str, list[str]] = {}
    cursor = await conn.execute(
        "select commit_id, name from mirror.ref where workspace_id = %s and name = any(%s) order by name",
        (workspace_id, [name for name in mirrored_refs(refs) if name.startswith(BRANCHES)]),
    )
    for commit_id, name in await cursor.fetchall():
        heads.setdefault(commit_id, []).append(name.removeprefix(BRANCHES))
    yield Step("trees", 0, len(heads))
    for number, (commit_id, branches) in enumerate(heads.items(), start=1):
        async with conn.cursor(row_factory=args_row(FaultRow)) as found:
            await found.execute(
                _FAULTS, {"workspace": workspace_id, "commit": commit_id, "session": None, "limit": _MOST_LISTED}
            )
            faults = await found.fetchall()
        for fault in faults:
            yield _difference(await in_store_thread(tell_fault, repository, commit_id, fault), commit_id, branches)
        if len(faults) < _MOST_LISTED:
            async for difference in _places(conn, workspace_id, commit_id, faults):
                yield difference
        yield Step("trees", number, len(heads))


def _difference(fault: TreeFault, commit_id: str, branches: list[str]) -> Difference:
    on = f"on {', '.join(branches[:3])}{' and others' if len(branches) > 3 else ''}"  # noqa: PLR2004 - a few names
    sentence = f"{fault.entry_id} ({fault.title}) {on} {fault.description} ({fault.place})."
    return in_git("tree", f"{sentence} {fault.way_out}", commit_id=commit_id, node_id=fault.entry_id)


async def _places(
    conn: Connection, workspace_id: str, commit_id: str, faults: Sequence[FaultRow]
) -> AsyncIterator[Difference]:
    """Compare the nodes that the mirror shows elsewhere than their files say with those that stand nowhere."""
    there = {key: place.fault for key, place in (await misplaced.places(conn, State(workspace_id, commit_id))).items()}
    should: dict[str, str | None] = {}
    for fault in sorted(faults, key=lambda fault: _PRECEDENCE.index(fault.kind), reverse=True):
        if fault.kind not in (NAME_TAKEN, CYCLE):
            should[fault.entry_id] = fault.kind
    above = {fault.entry_id: fault.other for fault in faults if fault.kind == CYCLE}
    should |= dict.fromkeys(misplaced.smallest_of_cycles(above), CYCLE)
    for entry_id in sorted(there.keys() | should.keys()):
        if there.get(entry_id) != should.get(entry_id):
            yield in_postgres(
                "placement",
                f"{entry_id} is placed as {_standing(there.get(entry_id))} at {commit_id}, and should be placed as "
                f"{_standing(should.get(entry_id))}.",
                commit_id=commit_id,
                node_id=entry_id,
            )


def _standing(fault: str | None) -> str:
    return "its file says" if fault is None else f"a node with the fault {fault}"
