"""The conflicts of sessions that are not resolved.

A conflict of values stays until somebody chooses: by a resolution, by an edit of the field, or by discarding the
change. A conflict of the tree is found anew after each edit, so it ends as soon as the tree is whole again.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg.types.json import Jsonb

from memotree_storage.conflicts import Conflict, ConflictKind, value_from_json, value_to_json
from memotree_storage.postgres.database import Connection, fetched

_COLUMNS: Final = "entry_id, number, kind, field, sides, description, base_blob, their_blob, of_branch"
OF_VALUES: Final = [kind.value for kind in ConflictKind if kind.is_of_values]
"""The names of the kinds that are about values."""


@dataclass(frozen=True, slots=True)
class SessionConflict:
    """A conflict of a session.

    Attributes:
        conflict: The conflict.
        number: Its number among those of the entry.
        base_blob: The whole entry at the base; "" if it is not there.
        their_blob: The whole entry on their side; likewise.
        of_branch: Whether "theirs" is the branch, and not something that was brought into the session.
    """

    conflict: Conflict
    number: int = 0
    base_blob: str = ""
    their_blob: str = ""
    of_branch: bool = False


async def conflicts_of(
    conn: Connection,
    session_id: str,
    *,
    ids: Iterable[str] | None = None,
    after: tuple[str, int] = ("", -1),
    of_values: bool | None = None,
    limit: int | None = None,
) -> list[SessionConflict]:
    """The conflicts of a session, ordered by entry and number.

    Args:
        conn: Reads them.
        session_id: The session.
        ids: Only those of these entries; all if ``None``.
        after: Only those above this entry and number.
        of_values: Only those of values, or only those of the tree; both if ``None``.
        limit: The most of them.
    """
    named = "" if ids is None else " and entry_id = any(%(ids)s::text[])"
    if of_values is not None:
        named += " and kind = any(%(kinds)s)" if of_values else " and kind <> all(%(kinds)s)"
    async with conn.cursor() as cursor:
        await cursor.execute(
            f"select {_COLUMNS} from work.conflict where session_id = %(session)s"  # noqa: S608
            f" and (entry_id, number) > (%(entry)s, %(number)s){named} order by entry_id, number limit %(limit)s",
            {
                "session": session_id,
                "ids": None if ids is None else list(ids),
                "entry": after[0],
                "number": after[1],
                "kinds": OF_VALUES,
                "limit": limit,
            },
        )
        return [_read(*row) for row in await fetched(cursor)]


def _read(*row: Any) -> SessionConflict:
    entry_id, number, kind, field, sides, description, base_blob, their_blob, of_branch = row
    base, ours, theirs = (value_from_json(value) for value in sides)
    conflict = Conflict(ConflictKind(kind), entry_id, field, base, ours, theirs, description)
    return SessionConflict(conflict, number, base_blob, their_blob, of_branch)


async def count_conflicts(conn: Connection, session_id: str) -> int:
    """The number of conflicts of a session."""
    row = await (
        await conn.execute("select count(*) from work.conflict where session_id = %s", (session_id,))
    ).fetchone()
    return int(row[0]) if row else 0


async def has_tree_conflicts(conn: Connection, session_id: str) -> bool:
    """Whether a session has conflicts of the tree."""
    cursor = await conn.execute(
        "select 1 from work.conflict where session_id = %s and kind <> all(%s) limit 1", (session_id, OF_VALUES)
    )
    return await cursor.fetchone() is not None


async def entries_in_conflict(conn: Connection, session_id: str, beginnings: Collection[str]) -> set[str]:
    """The entries with conflicts whose ids begin with one of these texts."""
    cursor = await conn.execute(
        "select distinct entry_id from work.conflict, unnest(%s::text[]) b (text) where session_id = %s"
        """ and entry_id >= b.text collate "C" and entry_id < (b.text || '~') collate "C\"""",
        (list(beginnings), session_id),
    )
    return {row[0] for row in await cursor.fetchall()}


async def add_conflicts(conn: Connection, session_id: str, found: Sequence[SessionConflict]) -> None:
    """Note conflicts of values; one that the session has of the same field is replaced."""
    if not found:
        return
    async with conn.cursor() as cursor:
        await cursor.execute(
            "delete from work.conflict c using unnest(%(ids)s::text[], %(fields)s::text[]) as f (entry_id, field)"
            " where c.session_id = %(session)s and c.entry_id = f.entry_id and c.field = f.field"
            " and c.kind = any(%(kinds)s)",
            {
                "session": session_id,
                "ids": [one.conflict.node_id for one in found],
                "fields": [one.conflict.field for one in found],
                "kinds": OF_VALUES,
            },
        )
        await _insert(conn, session_id, found)


async def set_tree_conflicts(conn: Connection, session_id: str, found: Sequence[Conflict]) -> None:
    """Note the conflicts of the tree that a session has now; those that it had before are gone."""
    await conn.execute("delete from work.conflict where session_id = %s and kind <> all(%s)", (session_id, OF_VALUES))
    await _insert(conn, session_id, [SessionConflict(conflict) for conflict in found])


async def _insert(conn: Connection, session_id: str, found: Sequence[SessionConflict]) -> None:
    if found:
        cursor = await conn.execute(
            "select entry_id, max(number) from work.conflict where session_id = %s and entry_id = any(%s)"
            " group by entry_id",
            (session_id, list({one.conflict.node_id for one in found})),
        )
        last: dict[str, int] = dict(await cursor.fetchall())
        rows = []
        for one in found:
            conflict = one.conflict
            last[conflict.node_id] = number = last.get(conflict.node_id, -1) + 1
            sides = Jsonb([value_to_json(side) for side in (conflict.base, conflict.ours, conflict.theirs)])
            rows.append(
                (
                    *(session_id, conflict.node_id, number, conflict.kind.value, conflict.field, sides),
                    *(conflict.description, one.base_blob, one.their_blob, one.of_branch),
                )
            )
        async with conn.cursor() as cursor:
            await cursor.executemany(
                f"insert into work.conflict (session_id, {_COLUMNS}) values ({', '.join(['%s'] * 10)})",  # noqa: S608
                rows,
            )
    await _note_whether_any(conn, session_id)


async def end_conflicts(conn: Connection, session_id: str, ended: Collection[tuple[str, int]]) -> None:
    """Delete conflicts, given as (entry, number)."""
    if ended:
        await conn.execute(
            "delete from work.conflict c using unnest(%s::text[], %s::int[]) as e (entry_id, number)"
            " where c.session_id = %s and c.entry_id = e.entry_id and c.number = e.number",
            ([entry_id for entry_id, _ in ended], [number for _, number in ended], session_id),
        )
        await _note_whether_any(conn, session_id)


async def end_conflicts_of(conn: Connection, session_id: str, ids: Collection[str]) -> None:
    """Delete all conflicts of some entries."""
    await conn.execute(
        "delete from work.conflict where session_id = %s and entry_id = any(%s)", (session_id, list(ids))
    )
    await _note_whether_any(conn, session_id)


async def _note_whether_any(conn: Connection, session_id: str) -> None:
    await conn.execute(
        "update work.session s set has_conflicts = c.found from (select exists ("
        "select from work.conflict where session_id = %(session)s) as found) c"
        " where s.session_id = %(session)s and s.has_conflicts <> c.found",
        {"session": session_id},
    )


def by_entry(found: Iterable[SessionConflict]) -> Mapping[str, list[SessionConflict]]:
    """Conflicts by their entry."""
    grouped: dict[str, list[SessionConflict]] = {}
    for one in found:
        grouped.setdefault(one.conflict.node_id, []).append(one)
    return grouped
