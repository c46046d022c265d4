"""The outbox: the versions that an index does not reflect yet, new ones and changed ones. Each has rows of its own."""

from collections.abc import Collection, Sequence
from typing import Final

from psycopg.rows import args_row

from memotree_storage.postgres.arrays import integers
from memotree_storage.postgres.database import Connection, fetched
from memotree_storage.postgres.pending import Pending

OVERRIDES: Final = """(
  select coalesce(array_agg(array[other.number, r.from_seq] order by other.number), '{}') from mirror.overridden r
    join mirror.line other on other.line_id = r.by_line where r.version_id = v.version_id)"""
"""SQL: pairs of line number and seq for each line that hides the version ``v``."""

_ROWS: Final = f"""
  select o.outbox_id, o.changed, o.counted, v.entry_id, v.blob, v.archive_id, v.type, v.tags, v.tokens, c.commit_id,
         v.line_id, v.from_seq, v.to_seq, v.version_id,
         {OVERRIDES}
    from mirror.outbox o
    join mirror.version v using (version_id)
    join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq
   where o.workspace_id = %(workspace)s and o.index_number = %(index)s and not o.applied"""  # noqa: S608 - a constant of this module

_NEXT: Final = f"{_ROWS} and o.outbox_id > %(after)s order by o.outbox_id limit %(limit)s"
_HELD: Final = f"{_ROWS} and o.outbox_id = any(%(ids)s::bigint[]) order by o.outbox_id for update of o"


async def pending(conn: Connection, index: int, workspace_id: str, *, limit: int, after: int = 0) -> list[Pending]:
    """Return the oldest rows after an id that are not applied, in order, without locking them."""
    async with conn.cursor(row_factory=args_row(Pending)) as cursor:
        await cursor.execute(_NEXT, {"index": index, "workspace": workspace_id, "after": after, "limit": limit})
        return await fetched(cursor)


async def held(conn: Connection, index: int, workspace_id: str, ids: Collection[int]) -> dict[int, Pending]:
    """Lock those of the rows that still exist and are not applied; return them by id, with their current values."""
    async with conn.cursor(row_factory=args_row(Pending)) as cursor:
        await cursor.execute(_HELD, {"index": index, "workspace": workspace_id, "ids": integers(ids)})
        return {row.outbox_id: row for row in await fetched(cursor)}


async def lock(conn: Connection, workspace_id: str, lines: Sequence[int] | None = None) -> None:
    """Lock the rows of a workspace, or of some of its lines, before they are deleted with what they belong to.

    All who lock rows do it in the order of their ids; a cascading delete would take them in any order, and could wait
    for one who waits for it.
    """
    of_lines = (
        ""
        if lines is None
        else (" and version_id in (select version_id from mirror.version where line_id = any(%(lines)s))")
    )
    await conn.execute(
        f"select from mirror.outbox where workspace_id = %(workspace)s{of_lines} order by outbox_id for update",
        {"workspace": workspace_id, "lines": list(lines or ())},
    )


async def put_again(conn: Connection, workspace_id: str, version_ids: Collection[int]) -> None:
    """Put versions into the outbox that are indexed already, for every index that does not wait for them as new ones.

    Their terms are counted already. Archives and deletions among them have no points.
    """
    await conn.execute(
        "insert into mirror.outbox (workspace_id, version_id, changed, index_number, counted)"
        " select %(workspace)s, v.version_id, false, i.number, true from mirror.version v cross join mirror.fed_index i"
        " where v.version_id = any(%(ids)s::bigint[]) and not v.dead and not v.is_archive"
        " and not exists (select from mirror.outbox o"
        " where o.version_id = v.version_id and o.index_number = i.number and not o.changed and not o.applied)"
        " order by v.version_id",
        {"workspace": workspace_id, "ids": list(version_ids)},
    )


async def put_all(conn: Connection, index: int, workspace_id: str) -> int:
    """Put every committed version of a workspace into the outbox of an index again; return their number.

    The caller has locked the rows. If the index is the one that answers, the term counts go and are made again.
    """
    values = {"index": index, "workspace": workspace_id}
    await conn.execute(
        "delete from mirror.outbox where workspace_id = %(workspace)s and index_number = %(index)s", values
    )
    await conn.execute(
        "delete from mirror.term where workspace_id = %(workspace)s"
        " and exists (select from mirror.fed_index where number = %(index)s and answers)",
        values,
    )
    cursor = await conn.execute(
        "insert into mirror.outbox (workspace_id, version_id, changed, index_number, counted)"
        " select l.workspace_id, v.version_id, false, i.number, not i.answers"
        " from mirror.version v join mirror.line l using (line_id) join mirror.fed_index i on i.number = %(index)s"
        " where l.workspace_id = %(workspace)s and not v.dead and not v.is_archive order by v.version_id",
        values,
    )
    return cursor.rowcount


async def delete(conn: Connection, ids: Collection[int]) -> None:
    """Delete rows that are applied."""
    await conn.execute(
        "delete from mirror.outbox where outbox_id in (select outbox_id from mirror.outbox"
        " where applied and outbox_id = any(%s::bigint[]) order by outbox_id for update)",
        (integers(ids),),
    )


async def is_behind(conn: Connection, index: int, workspace_id: str, *, after: int = 0) -> bool:
    """Whether the workspace has a row of an index after an id that is not applied."""
    cursor = await conn.execute(
        "select exists (select from mirror.outbox"
        " where workspace_id = %s and index_number = %s and not applied and outbox_id > %s)",
        (workspace_id, index, after),
    )
    row = await cursor.fetchone()
    return bool(row and row[0])


async def note(conn: Connection, *, counted: Collection[int], applied: Collection[int]) -> None:
    """Mark rows as counted in the document frequencies, and rows as applied to the index."""
    await conn.execute(
        "update mirror.outbox set counted = true, applied = applied or outbox_id = any(%(applied)s::bigint[])"
        " where outbox_id = any(%(all)s::bigint[])",
        {"applied": integers(applied), "all": integers({*counted, *applied})},
    )
