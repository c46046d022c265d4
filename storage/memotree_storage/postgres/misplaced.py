"""Nodes that stand nowhere, and the visible places that they are shown at until somebody mends them.

Git merges files one by one and knows nothing of parents. A clean merge can delete a node on one side while the other
side adds a child to it, make two moves a cycle, or delete an archive that gets a new node. What MemoTree itself commits
is checked before, so only commits of other programs do this.

The version of such a node says what its file says. Its placement, which all listings read, says where it is shown:

- ``orphan``: the node above it is gone. Shown as a root of its archive.
- ``no_archive``: its archive is gone. Shown as a root of the first archive by name, if there is one.
- ``cycle``: it stands below itself. Of the nodes of a cycle, the one with the smallest id is shown as a root of its
  archive, and the others below it, as their files say.
- ``other_archive``: the node above it is in another archive. Shown there, as its file says.
"""

from collections.abc import Collection, Mapping
from itertools import islice
from typing import Final, NamedTuple

from memotree_storage.concurrency.threads import in_turns
from memotree_storage.postgres import archive_versions
from memotree_storage.postgres.database import Connection, fetched
from memotree_storage.postgres.refs import branch_head
from memotree_storage.postgres.tree import LINE, Snapshot, State, version_of

ORPHAN: Final = "orphan"
NO_ARCHIVE: Final = "no_archive"
CYCLE: Final = "cycle"
OTHER_ARCHIVE: Final = "other_archive"

MOST_COUNTED: Final = 1000
"""Nodes of a workspace that `counts` counts."""

_FIELDS: Final = "v.entry_id, v.is_archive, v.dead, v.archive_id, v.parent_id, v.position"
_SHOWN: Final = "entry_id, is_archive, archive_id, parent_id, position"

# "union" drops rows that it has, so it reads each node once and ends in a cycle.
_UP: Final = f"""
  with recursive {LINE},
  up as (
    select {_SHOWN} from unnest(%(ids)s::text[]) as wanted(id) cross join lateral {version_of("wanted.id", _FIELDS)} v
     where not dead
    union
    select v.entry_id, v.is_archive, v.archive_id, v.parent_id, v.position
      from up cross join lateral {version_of("up.parent_id", _FIELDS)} v
     where up.parent_id <> '' and not up.is_archive and not v.dead)
  select {_SHOWN} from up"""  # noqa: S608 - constants of tree.py

_WORKSPACES: Final = """
  select distinct l.workspace_id, w.default_branch from mirror.placement p join mirror.line l using (line_id)
    join mirror.workspace w using (workspace_id) where p.fault is not null"""

_MISPLACED: Final = f"""
  with {LINE}
  select distinct p.entry_id from line join mirror.placement p on p.line_id = line.line_id
   where p.fault is not null and p.from_seq <= line.seq and (p.to_seq is null or p.to_seq > line.seq)
     and p.entry_id > %(after)s::text collate "C" order by p.entry_id limit %(limit)s"""  # noqa: S608

_THEIR_ARCHIVES: Final = f"""
  with {LINE},
  misplaced as (
    select distinct p.entry_id from line join mirror.placement p on p.line_id = line.line_id
     where p.fault is not null and p.from_seq <= line.seq and (p.to_seq is null or p.to_seq > line.seq))
  select distinct v.archive_id
    from misplaced cross join lateral {version_of("misplaced.entry_id", "v.archive_id, v.dead")} v
   where not v.dead"""  # noqa: S608

_DEPENDENT: Final = f"""
  with {LINE}
  select distinct p.entry_id from line join mirror.placement p on p.line_id = line.line_id
   where p.fault is not null and p.from_seq <= line.seq and (p.to_seq is null or p.to_seq > line.seq)
     and (%(all)s or p.entry_id = any(%(ids)s::text[]) or p.file_home = any(%(ids)s::text[])
          or p.home = any(%(ids)s::text[]))"""  # noqa: S608

_PLACES: Final = f"""
  with {LINE}
  select wanted.id, place.archive_id, place.parent_id, place.position, place.fault, place.file_home
    from unnest(%(ids)s::text[]) as wanted(id) cross join lateral (
      select one.* from line cross join lateral (
        select p.* from mirror.placement p
         where p.line_id = line.line_id and p.entry_id = wanted.id and p.from_seq <= line.seq
         order by p.from_seq desc limit 1) one
       order by line.depth limit 1) place
   where not place.dead"""  # noqa: S608


class Standing(NamedTuple):
    """Where the file of an alive entry says that it stands; ``parent_id`` is "" for a root."""

    is_archive: bool
    archive_id: str
    parent_id: str
    position: str

    @property
    def home(self) -> str:
        """The parent, or the archive of a root."""
        return self.parent_id or self.archive_id


class Place(NamedTuple):
    """Where a node is shown. ``file_home`` is what its file says, if that is another home; ``fault`` is the kind."""

    archive_id: str
    parent_id: str
    position: str
    fault: str | None = None
    file_home: str | None = None


async def dependent(conn: Connection, state: State, changed: Collection[str], *, archives: bool) -> set[str]:
    """Return the nodes that stood nowhere at a commit and whose place depends on what changes after it.

    So a commit costs little beside a hundred thousand nodes of a hostile push that stand nowhere.

    Args:
        conn: A connection.
        state: The parent of the commit.
        changed: The entries that change.
        archives: Whether an archive is among them: each may be the first by name.
    """
    above = await _standing(conn, state, changed)  # a node of a cycle is above all others in it
    cursor = await conn.execute(_DEPENDENT, state.arguments(ids=[*{*changed, *above}], all=archives))
    return {row[0] for row in await fetched(cursor)}


async def places(conn: Connection, state: State, *, after: str = "", limit: int | None = None) -> dict[str, Place]:
    """Return where the nodes that stand nowhere at a commit are shown, by id in order, after an id."""
    found: dict[str, Place] = {}
    while limit is None or len(found) < limit:
        cursor = await conn.execute(_MISPLACED, state.arguments(after=after, limit=limit))
        ids = [row[0] for row in await fetched(cursor)]
        shown = await _places(conn, state, ids)
        # Some may be dead or whole on a nearer line.
        found |= {key: shown[key] for key in ids if key in shown and shown[key].fault is not None}
        if limit is None or len(ids) < limit:
            break
        after = ids[-1]
    return dict(islice(found.items(), limit))


async def their_archives(snapshot: Snapshot) -> set[str]:
    """Return the archives, alive or gone, that the files of nodes that stand nowhere at a state name.

    Costs what there is of such nodes.
    """
    cursor = await snapshot.conn.execute(_THEIR_ARCHIVES, snapshot.state.arguments())
    return {row[0] for row in await fetched(cursor)}


async def counts(conn: Connection) -> dict[str, int]:
    """Return how many nodes stand nowhere at the default branch of each workspace, by id, where there are any.

    Counts up to `MOST_COUNTED`.
    """
    found = {}
    for workspace_id, branch in await (await conn.execute(_WORKSPACES)).fetchall():
        head = await branch_head(conn, workspace_id, branch)
        if head is not None and (number := len(await places(conn, head, limit=MOST_COUNTED))):
            found[workspace_id] = number
    return found


async def mend_placements(conn: Connection, state: State, line_id: int, seq: int, suspects: Collection[str]) -> int:
    """Write where nodes are shown at a commit, if that differs from their placements; return how many rows that adds.

    Args:
        conn: In the transaction that mirrors the commit; its versions and placements are written.
        state: The commit.
        line_id: The line of the commit.
        seq: Its number on the line.
        suspects: The nodes that may stand nowhere, or did and may stand somewhere again.
    """
    if not suspects:
        return 0
    standing = await _standing(conn, state, suspects)
    cycles = smallest_of_cycles({key: node.parent_id for key, node in standing.items() if not node.is_archive})
    ids = [entry_id for entry_id in {*suspects, *cycles} if entry_id in standing and not standing[entry_id].is_archive]
    homes = {standing[entry_id].archive_id for entry_id in ids} - standing.keys()
    standing |= await _standing(conn, state, homes)
    first: str | None = None
    if any(not _is_archive(standing, standing[entry_id].archive_id) for entry_id in ids):
        found = await archive_versions.archives(Snapshot(conn, state), limit=1)
        first = found[0].entry_id if found else None
    wanted = {entry_id: _place(entry_id, standing, cycles, first) for entry_id in ids}
    there = await _places(conn, state, ids)
    return await _write(conn, line_id, seq, {key: new for key, new in wanted.items() if there.get(key) != new})


async def _places(conn: Connection, state: State, ids: Collection[str]) -> dict[str, Place]:
    """The placements of alive nodes."""
    if not ids:
        return {}
    cursor = await conn.execute(_PLACES, state.arguments(ids=list(ids)))
    return {row[0]: Place(*row[1:]) for row in await fetched(cursor)}


async def _standing(conn: Connection, state: State, ids: Collection[str]) -> dict[str, Standing]:
    """Where alive entries stand, and all that stand above them."""
    if not ids:
        return {}
    cursor = await conn.execute(_UP, state.arguments(ids=list(ids)))
    return {row[0]: Standing(*row[1:]) for row in await fetched(cursor)}


def smallest_of_cycles(above: Mapping[str, str]) -> set[str]:
    """Return the smallest id of each cycle, given the parent of each node; other parents than nodes end a way."""
    found: set[str] = set()
    seen: set[str] = set()
    for top in above:
        way: dict[str, None] = {}
        entry_id = top
        while entry_id in above and entry_id not in seen:
            seen.add(entry_id)
            way[entry_id] = None
            entry_id = above[entry_id]
        if entry_id in way:
            ids = list(way)
            found.add(min(ids[ids.index(entry_id) :]))
    return found


def _is_archive(standing: Mapping[str, Standing], entry_id: str) -> bool:
    return entry_id in standing and standing[entry_id].is_archive


def _place(entry_id: str, standing: Mapping[str, Standing], cycles: Collection[str], first: str | None) -> Place:
    """Where a node is shown; ``first`` is the first archive by name."""
    node = standing[entry_id]
    above = standing.get(node.parent_id)
    has_archive = _is_archive(standing, node.archive_id)
    fault = None
    if node.parent_id and (above is None or above.is_archive):
        fault = ORPHAN
    elif entry_id in cycles:
        fault = CYCLE
    elif above is not None:
        fault = OTHER_ARCHIVE if above.archive_id != node.archive_id else None
        return Place(node.archive_id, node.parent_id, node.position, fault)
    elif not has_archive:
        fault = NO_ARCHIVE
    archive_id = node.archive_id if has_archive else first
    if fault is None or archive_id is None:
        return Place(node.archive_id, node.parent_id, node.position, fault)
    return Place(archive_id, "", node.position, fault, node.home)


async def _write(conn: Connection, line_id: int, seq: int, places: Mapping[str, Place]) -> int:
    if not places:
        return 0
    ids = list(places)
    replaced = await conn.execute(
        "delete from mirror.placement where line_id = %s and from_seq = %s and entry_id = any(%s)", (line_id, seq, ids)
    )
    await conn.execute(
        "update mirror.placement set to_seq = %s where line_id = %s and entry_id = any(%s) and to_seq is null",
        (seq, line_id, ids),
    )
    async with (
        conn.cursor() as cursor,
        cursor.copy(
            "copy mirror.placement"
            " (line_id, entry_id, from_seq, dead, archive_id, parent_id, position, fault, file_home) from stdin"
        ) as copy,
    ):
        async for entry_id in in_turns(ids):
            await copy.write_row((line_id, entry_id, seq, False, *places[entry_id]))
    return len(places) - replaced.rowcount
