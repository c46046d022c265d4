"""Writes commits into the mirror, one at a time and parents before children, inside the caller's transaction.

The same code serves a commit that was just made, a replay after a crash, commits from outside, and a rebuild.
"""

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from memotree_storage.concurrency.threads import LONG_BYTES, in_store_thread_if, in_turns
from memotree_storage.errors import CorruptError
from memotree_storage.model.node import Entry, Node
from memotree_storage.ports import CommitInfo
from memotree_storage.postgres import misplaced, outbox, refs, tree, version_rows
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.refs import BRANCHES
from memotree_storage.postgres.rows import FACTS, Version, commit_facts, row_of, targets_of, tombstone_of
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.postgres.version_rows import LinePosition

_FEW: Final = 100
_LINE_BITS: Final = 52  # doubles hold such integers exactly, and so do the filters of the index

_ROW_COUNTS: Final = """
  select 'commit', w.commit_count, (select count(*) from mirror.commit c where c.workspace_id = w.workspace_id)
    from mirror.workspace w where w.workspace_id = %(workspace)s
  union all
  select 'version', w.version_count, (select count(*) from mirror.version v join mirror.line l using (line_id)
                                       where l.workspace_id = w.workspace_id)
    from mirror.workspace w where w.workspace_id = %(workspace)s
  union all
  select 'placement', w.placement_count, (select count(*) from mirror.placement p join mirror.line l using (line_id)
                                           where l.workspace_id = w.workspace_id)
    from mirror.workspace w where w.workspace_id = %(workspace)s"""


class MirrorGapError(CorruptError):
    """A commit cannot be mirrored because its parent is not mirrored yet."""

    reason = "MIRROR_GAP"


@dataclass(frozen=True, slots=True)
class EntryChange:
    """One entry that a commit writes (``entry`` and its blob) or removes (``entry=None``, ``blob=""``)."""

    entry_id: str
    blob: str
    entry: Entry | None


@dataclass(frozen=True, slots=True)
class LineBranch:
    """The branch of a commit, and which branches pass through its parent.

    Attributes:
        name: The branch; "" for a commit that no branch reaches by first parents.
        passing: By commit, the branches that reach it by first parents, while commits are mirrored before their refs.
            ``None`` asks the mirrored refs instead: then a branch reaches its newest commit.
        moves: Whether the mirrored branch is moved to the commit as well.
    """

    name: str
    passing: Mapping[str, Collection[str]] | None = None
    moves: bool = False


@dataclass(frozen=True, slots=True)
class Tip:
    """A commit that is mirrored.

    Attributes:
        place: Its place.
        any_misplaced: Whether any node of any workspace may stand nowhere.
        was_there: Whether it was mirrored before: the same change of the same commit in the same second, on another
            branch, is one commit, as in Git. Its line may have gone on since.
    """

    place: LinePosition
    any_misplaced: bool
    was_there: bool = False


@dataclass(frozen=True, slots=True)
class RowCount:
    """How many rows of a kind a workspace has, as its watermark notes with each commit, and as they are there."""

    kind: str
    noted: int
    there: int


async def project(
    conn: Connection,
    workspace_id: str,
    commit: CommitInfo,
    changes: Sequence[EntryChange],
    faults: Mapping[str, str] | None = None,
    *,
    branch: LineBranch,
    before: Mapping[str, Version] | None = None,
    after: Tip | None = None,
    checked: bool = False,
) -> Tip:
    """Mirror one commit: its line and row, the versions and placements that it begins or ends, and their outbox rows.

    Args:
        conn: In a transaction that holds the workspace's row.
        workspace_id: The workspace.
        commit: The commit; its first parent is mirrored already.
        changes: The differences between the commit and its first parent.
        faults: Files that cannot be read as entries, by path, with the reason.
        branch: The branch that the commit was made on, which decides the line.
        before: The alive versions of the changed entries at the first parent, if the caller has read them already.
        after: What this function returned for the first parent, if that was mirrored on the same branch in the same
            transaction.
        checked: The caller has checked that the commit leaves no node without a parent, in a cycle, or in no archive.

    Raises:
        MirrorGapError: The first parent is not mirrored.
    """
    parent = commit.parents[0] if commit.parents else None
    if after is None or after.was_there:
        place, any_misplaced, was_there = await _place(conn, workspace_id, commit.commit_id, parent, branch)
        if was_there:
            if branch.moves:
                await refs.put_ref(conn, workspace_id, BRANCHES + branch.name, commit.commit_id, commit.commit_id)
            return Tip(place, any_misplaced, was_there)
    else:
        place, any_misplaced = LinePosition(after.place.line_id, after.place.seq + 1), after.any_misplaced
    if before is None:
        before = await _before(conn, workspace_id, parent, changes)
    alive = [change for change in changes if change.entry is not None]
    gone = [before[change.entry_id] for change in changes if change.entry is None and change.entry_id in before]
    rows = await _rows(alive)
    rows += [(*tombstone_of(last), []) for last in gone]
    touched = [row[0] for row in rows]
    moved = [row for row in rows if _moved(row, before.get(row[0]))]
    await _insert_commit(conn, workspace_id, commit, place, branch, (len(rows), len(moved)))
    await version_rows.replace_versions(conn, workspace_id, place, rows)
    await version_rows.override_versions(
        conn, workspace_id, place, [before[entry] for entry in touched if entry in before]
    )
    suspects: set[str] = set()
    if not checked or any_misplaced:
        suspects = await _suspects(
            conn, workspace_id, parent, rows, before, checked=checked, any_misplaced=any_misplaced
        )
    await _write_placements(conn, place, moved)
    state = State(workspace_id, commit.commit_id)
    more = await misplaced.mend_placements(conn, state, place.line_id, place.seq, suspects)
    if faults:
        await _write_faults(conn, workspace_id, commit.commit_id, faults)
    if more:
        await conn.execute(
            "update mirror.workspace set placement_count = placement_count + %s where workspace_id = %s",
            (more, workspace_id),
        )
    return Tip(place, any_misplaced or bool(suspects))


async def _rows(alive: Sequence[EntryChange]) -> list[tuple[Any, ...]]:
    """The rows of entries; of many or long ones in a thread, since their tokens are counted."""

    def made() -> list[tuple[Any, ...]]:
        return [(*row_of(change.entry, change.blob), targets_of(change.entry)) for change in alive if change.entry]

    characters = sum(len(change.entry.content) for change in alive if isinstance(change.entry, Node))
    return await in_store_thread_if(len(alive) > _FEW or characters > LONG_BYTES, made)


async def known_commits(conn: Connection, workspace_id: str, ids: Iterable[str] | None = None) -> set[str]:
    """Return the ids of the mirrored commits: all, or those among ``ids``."""
    if ids is None:
        cursor = await conn.execute("select commit_id from mirror.commit where workspace_id = %s", (workspace_id,))
    else:
        cursor = await conn.execute(
            "select commit_id from mirror.commit where workspace_id = %s and commit_id = any(%s)",
            (workspace_id, list(ids)),
        )
    return {row[0] for row in await cursor.fetchall()}


async def unreached_lines(conn: Connection, workspace_id: str) -> list[int]:
    """Return the lines that no ref, tag or session reaches.

    A line is reached if a ref or session names a commit on it, if a reached line forks from it, or if a merge commit on
    a reached line has a parent on it.
    """
    cursor = await conn.execute(
        """
        with recursive named as (
          select commit_id from mirror.ref where workspace_id = %(workspace)s
          union select unnest(array[base_commit, merged]) from work.session where workspace_id = %(workspace)s
             and state in ('open', 'detached')
        ),
        reached (line_id) as (
          select c.line_id from named join mirror.commit c on c.workspace_id = %(workspace)s
             and c.commit_id = named.commit_id
          union
          select next.line_id from reached cross join lateral (
            select l.parent_line as line_id from mirror.line l
             where l.line_id = reached.line_id and l.parent_line is not null
            union all
            select other.line_id from mirror.commit c
              join mirror.commit other on other.workspace_id = c.workspace_id and other.commit_id = any(c.parents)
             where c.line_id = reached.line_id and cardinality(c.parents) > 1
          ) next
        )
        select line_id from mirror.line where workspace_id = %(workspace)s
           and line_id not in (select line_id from reached)
        """,
        {"workspace": workspace_id},
    )
    return [row[0] for row in await cursor.fetchall()]


async def remove_lines(conn: Connection, workspace_id: str, lines: Sequence[int]) -> None:
    """Remove lines with all their rows, and note them as gone until their points are deleted from the index as well.

    Does not subtract their terms from the frequencies: see `memotree_storage.maintenance.line_collection`.
    """
    await outbox.lock(conn, workspace_id, lines)
    # What is left is not counted instead: that would hide from the next start that other rows are lost.
    await conn.execute(
        """
        update mirror.workspace set
          commit_count = commit_count - (select count(*) from mirror.commit where line_id = any(%(lines)s)),
          version_count = version_count - (select count(*) from mirror.version where line_id = any(%(lines)s)),
          placement_count = placement_count - (select count(*) from mirror.placement where line_id = any(%(lines)s))
        where workspace_id = %(workspace)s
        """,
        {"workspace": workspace_id, "lines": list(lines)},
    )
    await conn.execute(
        "delete from mirror.line where workspace_id = %s and line_id = any(%s)", (workspace_id, list(lines))
    )
    await _note_gone(conn, workspace_id, lines)


async def forget(conn: Connection, workspace_id: str) -> None:
    """Remove the mirror of a workspace and note its lines as gone.

    The workspace is locked as its deletion needs before any row of the outbox is: the indexer locks them in this order.
    """
    await conn.execute("select from mirror.workspace where workspace_id = %s for update", (workspace_id,))
    await _note_gone(conn, workspace_id, await line_ids(conn, workspace_id))
    await outbox.lock(conn, workspace_id)
    await conn.execute("delete from mirror.workspace where workspace_id = %s", (workspace_id,))


async def _note_gone(conn: Connection, workspace_id: str, lines: Sequence[int]) -> None:
    await conn.execute(
        "insert into work.gone_line select %s, * from unnest(%s::bigint[]) on conflict do nothing",
        (workspace_id, list(lines)),
    )


async def gone_lines(conn: Connection, workspace_id: str | None = None) -> dict[str, list[int]]:
    """Return the removed lines whose points the index may still have: by workspace, or of one workspace."""
    cursor = await conn.execute(
        "select workspace_id, array_agg(line_id) from work.gone_line"
        " where %(workspace)s::text is null or workspace_id = %(workspace)s group by workspace_id",
        {"workspace": workspace_id},
    )
    return {row[0]: row[1] for row in await cursor.fetchall()}


async def forget_gone(conn: Connection, workspace_id: str, lines: Sequence[int]) -> None:
    """Delete the notes about removed lines whose points the index no longer has."""
    await conn.execute(
        "delete from work.gone_line where workspace_id = %s and line_id = any(%s)", (workspace_id, list(lines))
    )


async def line_ids(conn: Connection, workspace_id: str) -> list[int]:
    """Return the ids of a workspace's lines."""
    cursor = await conn.execute("select line_id from mirror.line where workspace_id = %s", (workspace_id,))
    return [row[0] for row in await cursor.fetchall()]


async def row_counts(conn: Connection, workspace_id: str) -> list[RowCount]:
    """Count the rows of a workspace, at one moment; all of them are read."""
    cursor = await conn.execute(_ROW_COUNTS, {"workspace": workspace_id})
    return [RowCount(*row) for row in await cursor.fetchall()]


async def _place(
    conn: Connection, workspace_id: str, commit_id: str, parent: str | None, branch: LineBranch
) -> tuple[LinePosition, bool, bool]:
    """The place of a commit: where it is; of a new one, at the tip of the line of its first parent, or on a new line.

    Also whether any node of any workspace stands nowhere, which costs a probe of an index that is empty as a rule; and
    whether the commit was there.

    The line of another branch that passes there is not extended, since that branch will go on there. If it were, each
    branch that commits first would leave the other one a lineage that is longer by a line.
    """
    fork: tuple[int, int] | None = None
    any_misplaced = False
    if parent is not None:
        cursor = await conn.execute(
            "select c.line_id, c.seq, l.tip_seq, l.branch, exists (select from mirror.ref r"
            " where r.workspace_id = l.workspace_id and r.name = %s || l.branch and r.commit_id = c.commit_id),"
            " exists (select from mirror.placement where fault is not null), same.line_id, same.seq"
            " from mirror.commit c join mirror.line l using (line_id)"
            " left join mirror.commit same on same.workspace_id = c.workspace_id and same.commit_id = %s"
            " where c.workspace_id = %s and c.commit_id = %s",
            (BRANCHES, commit_id, workspace_id, parent),
        )
        row = await cursor.fetchone()
        if row is None:
            raise MirrorGapError(f"Commit {parent} is not mirrored yet. Run `memotree rebuild` for this workspace.")
        line_id, seq, tip, owner, stands, any_misplaced, *same = row
        if same[0] is not None:
            return LinePosition(*same), bool(any_misplaced), True
        if branch.passing is not None:
            stands = owner in branch.passing.get(parent, ())
        if seq == tip and (owner == branch.name or not stands):
            return LinePosition(line_id, seq + 1), bool(any_misplaced), False
        fork = (line_id, seq)
    line_id = secrets.randbits(_LINE_BITS)
    await conn.execute(
        "with counted as (update mirror.workspace set line_count = line_count + 1 where workspace_id = %(workspace)s"
        " returning line_count)"
        " insert into mirror.line (line_id, workspace_id, parent_line, fork_seq, tip_seq, number, branch)"
        " select %(line)s, %(workspace)s, %(parent)s, %(seq)s, 1, line_count, %(branch)s from counted",
        {
            "line": line_id,
            "workspace": workspace_id,
            "parent": None if fork is None else fork[0],
            "seq": None if fork is None else fork[1],
            "branch": branch.name,
        },
    )
    return LinePosition(line_id, 1), bool(any_misplaced), False


async def _before(
    conn: Connection, workspace_id: str, parent: str | None, changes: Sequence[EntryChange]
) -> dict[str, Version]:
    """Return the versions that the changed entries had at the first parent."""
    if parent is None:
        return {}
    return await tree.versions(Snapshot(conn, State(workspace_id, parent)), [change.entry_id for change in changes])


_COMMIT: Final = f"""
  with placed as (update mirror.line set tip_seq = %(seq)s, branch = %(branch)s where line_id = %(line)s),
  counted as (
    update mirror.workspace set commit_count = commit_count + 1, version_count = version_count + %(versions)s,
           placement_count = placement_count + %(placements)s
     where workspace_id = %(workspace)s),
  moved as (
    insert into mirror.ref (workspace_id, name, object_id, commit_id)
    select %(workspace)s, '{BRANCHES}' || %(branch)s, %(commit)s, %(commit)s where %(moves)s
        on conflict (workspace_id, name) do update set object_id = %(commit)s, commit_id = %(commit)s)
  insert into mirror.commit
  values (%(workspace)s, %(commit)s, %(line)s, %(seq)s, {", ".join(f"%({name})s" for name in FACTS)})
"""  # noqa: S608 - names of columns


async def _insert_commit(
    conn: Connection,
    workspace_id: str,
    commit: CommitInfo,
    place: LinePosition,
    branch: LineBranch,
    counts: tuple[int, int],
) -> None:
    """Write a commit with the tip of its line and the numbers of versions and placements that the workspace gains."""
    versions, placements = counts
    await conn.execute(
        _COMMIT,
        {
            "workspace": workspace_id,
            "commit": commit.commit_id,
            "line": place.line_id,
            "seq": place.seq,
            "branch": branch.name,
            "moves": branch.moves,
            "versions": versions,
            "placements": placements,
            **dict(zip(FACTS, commit_facts(commit), strict=True)),
        },
    )


def _moved(row: tuple[object, ...], before: Version | None) -> bool:
    """Whether a node's placement differs from its previous one; archives have no placement."""
    if row[1]:
        return False
    dead, archive_id, parent_id, position = row[2], row[4], row[5], row[6]
    if before is None:
        return not dead
    return bool(dead) or (before.archive_id, before.parent_id, before.position) != (archive_id, parent_id, position)


async def _suspects(
    conn: Connection,
    workspace_id: str,
    parent: str | None,
    rows: Sequence[tuple[Any, ...]],
    before: Mapping[str, Version],
    *,
    checked: bool,
    any_misplaced: bool,
) -> set[str]:
    """The nodes that may stand nowhere after a commit: those that did, that it moved, and that stood in what it took.

    Args:
        conn: In the transaction that mirrors the commit, before it writes placements.
        workspace_id: The workspace.
        parent: The first parent of the commit.
        rows: The rows of the commit.
        before: The alive versions of the changed entries at the first parent.
        checked: They are known to leave no node nowhere that stood somewhere.
        any_misplaced: Whether any node of any workspace stands nowhere.
    """
    found = {str(row[0]) for row in rows if not checked and not row[2] and _moved(row, before.get(row[0]))}
    if parent is None:
        return found
    state = State(workspace_id, parent)
    taken = [row[0] for row in rows if not checked and row[0] in before and _leaves(row, before[row[0]])]
    for below in (await tree.directly_below(Snapshot(conn, state), taken)).values():
        found.update(below)
    if any_misplaced:
        archives = any(row[1] for row in rows) or any(one.is_archive for one in before.values())
        found |= await misplaced.dependent(conn, state, [row[0] for row in rows], archives=archives)
    return found


def _leaves(row: tuple[Any, ...], before: Version) -> bool:
    """Whether what stands in an entry may stand nowhere: it is gone, in another archive, or no longer of its kind."""
    is_archive, dead, archive_id = row[1], row[2], row[4]
    return bool(dead) or is_archive != before.is_archive or (not is_archive and archive_id != before.archive_id)


async def _write_placements(conn: Connection, place: LinePosition, rows: Sequence[tuple[object, ...]]) -> None:
    if not rows:
        return
    await conn.execute(
        "update mirror.placement set to_seq = %s where line_id = %s and entry_id = any(%s) and to_seq is null",
        (place.seq, place.line_id, [row[0] for row in rows]),
    )
    async with (
        conn.cursor() as cursor,
        cursor.copy(
            "copy mirror.placement (line_id, entry_id, from_seq, dead, archive_id, parent_id, position) from stdin"
        ) as copy,
    ):
        async for row in in_turns(rows):
            await copy.write_row((place.line_id, row[0], place.seq, row[2], row[4], row[5], row[6]))


async def _write_faults(conn: Connection, workspace_id: str, commit_id: str, faults: Mapping[str, str]) -> None:
    async with (
        conn.cursor() as cursor,
        cursor.copy("copy mirror.fault (workspace_id, commit_id, path, description) from stdin") as copy,
    ):
        async for fault in in_turns(list(faults.items())):
            await copy.write_row((workspace_id, commit_id, *fault))
