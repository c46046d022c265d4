"""The rows of the schema ``work`` that a backup holds: written to files with COPY, and taken back from them.

They are all that was acknowledged and that Git does not have: sessions with what they staged, results of request ids,
views, jobs with what they were given, and who has a role in the workspace. Answers of models are left out, since they
can be asked for again; so are conversations, which are kept for a short time only, and what tells what the index still
has to do.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from psycopg import sql

from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.postgres.database import Connection

_PIECE: Final = 1 << 18
_SESSIONS: Final = "session_id in (select session_id from work.session where workspace_id = {workspace})"
_JOBS: Final = "job_id in (select job_id from work.job where workspace_id = {workspace})"
_CREATED: Final = "(workspace_id = '' and position(convert_to({workspace}, 'UTF8') in response) > 0)"
"""A call that creates a workspace belongs to none; its result names the one that it made."""

_ROLES: Final = "workspace_id in ({workspace}, '*')"
_PEOPLE: Final = f"in (select principal from work.access_grant where {_ROLES})"  # noqa: S608 - a constant

_OF_WORKSPACE: Final = {
    "session": "workspace_id = {workspace}",
    "staged": _SESSIONS,
    "conflict": _SESSIONS,
    "request": f"(workspace_id = {{workspace}} or {_CREATED}) and response is not null",
    "view": "workspace_id = {workspace}",
    "view_node": "view_id in (select view_id from work.view where workspace_id = {workspace})",
    "job": "workspace_id = {workspace}",
    "job_input": _JOBS,
    "job_note": _JOBS,
    "principal": f"name {_PEOPLE}",
    "api_key": f"principal {_PEOPLE}",
    "access_grant": _ROLES,
}
"""The tables that are saved, and which of their rows belong to a workspace."""


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """The rows of a table in a file.

    Attributes:
        table: The name of the table.
        columns: The columns, in the order of the file.
        rows: How many rows it has.
        path: The file.
    """

    table: str
    columns: tuple[str, ...]
    rows: int
    path: Path


async def save_rows(conn: Connection, workspace_id: str, folder: Path) -> list[CopiedTable]:
    """Write the rows of a workspace to a file for each table that has any.

    Args:
        conn: In a transaction whose statements all see the same snapshot.
        workspace_id: The workspace.
        folder: Takes the files.
    """
    saved = []
    for table, condition in _OF_WORKSPACE.items():
        columns = await _columns(conn, table)
        statement = sql.SQL("copy (select {} from {} where {}) to stdout").format(
            _names(columns),
            sql.Identifier("work", table),
            sql.SQL(condition).format(workspace=sql.Literal(workspace_id)),
        )
        path = folder / table
        rows = await _copy_out(conn, statement, path)
        if rows:
            saved.append(CopiedTable(table, columns, rows, path))
        else:
            await in_store_thread(path.unlink)
    return saved


async def _copy_out(conn: Connection, statement: sql.Composed, path: Path) -> int:
    with await in_store_thread(path.open, "wb") as file:
        async with conn.cursor() as cursor:
            piece = bytearray()
            async with cursor.copy(statement) as copy:
                async for block in copy:
                    piece += block
                    if len(piece) >= _PIECE:
                        await in_store_thread(file.write, bytes(piece))
                        piece.clear()
            await in_store_thread(file.write, bytes(piece))
            return cursor.rowcount


async def take_rows(
    conn: Connection,
    workspace_id: str,
    tables: Mapping[str, tuple[Sequence[str], Path]],
    there: Callable[[str], bool],
) -> int:
    """Take the rows of a workspace from the files of a backup. Safe to repeat.

    An open session stays as it is if the repository has its commits, since it may have later changes; every other one
    becomes what it was in the backup, and lives as long as if it had been used now. Jobs become what they were, too, so
    that what they had not done yet is done. Views stay as they are, and missing ones come. If the database
    does not know the workspace, principals come that it lacks, with their keys and their roles in it.

    Args:
        conn: In a transaction that holds the workspace.
        workspace_id: The workspace.
        tables: The columns and the file of each table.
        there: Whether the repository has a commit; called in a thread.

    Returns:
        How many sessions came from the backup.
    """
    given = {table: await _copy_in(conn, table, *tables.get(table, ((), None))) for table in _OF_WORKSPACE}
    taking = _Taking(conn, workspace_id, given)
    keep = await _standing(conn, workspace_id, there)
    await conn.execute(
        "delete from restored_session where workspace_id <> %s or session_id = any(%s)", (workspace_id, keep)
    )
    await conn.execute("update restored_session set used_at = now() where state = 'open'")
    await conn.execute("delete from work.session where session_id in (select session_id from restored_session)")
    sessions = await taking.insert("session")
    for table in ("staged", "conflict"):
        await taking.insert(table, "where session_id in (select session_id from restored_session)")
    await taking.insert("request", "where workspace_id in (%(workspace)s, '') on conflict do nothing")
    await _take_views(conn, taking)
    await _take_jobs(conn, taking)
    await _take_access(conn, taking)
    return sessions


@dataclass(frozen=True, slots=True)
class _Taking:
    """Rows on their way from temporary tables to those of ``work``; the columns of each are those that both have."""

    conn: Connection
    workspace_id: str
    columns: Mapping[str, Sequence[str]]

    async def insert(self, table: str, which: str = "", *, without: str = "") -> int:
        """Insert the rows of a table; ``which`` may select and order them, and ``without`` names a column to omit."""
        columns = [column for column in self.columns[table] if column != without]
        if not columns:
            return 0
        statement = sql.SQL("insert into {} ({names}) overriding system value select {names} from {} ").format(
            sql.Identifier("work", table), sql.Identifier(f"restored_{table}"), names=_names(columns)
        )
        chosen = sql.SQL(which)
        return (await self.conn.execute(statement + chosen, {"workspace": self.workspace_id})).rowcount


async def _take_views(conn: Connection, taking: _Taking) -> None:
    """Views have numbers, which other views of this database may have: they get new ones."""
    await conn.execute(
        "delete from restored_view r where workspace_id <> %s or exists (select from work.view v"
        " where v.workspace_id = r.workspace_id"
        " and (v.scope, v.principal, v.name) = (r.scope, coalesce(r.principal, ''), r.name))",
        (taking.workspace_id,),
    )
    await conn.execute(
        "create temporary table restored_number on commit drop as select view_id as old,"
        " nextval(pg_get_serial_sequence('work.view', 'view_id')) as new from restored_view"
    )
    for table in ("view_node", "view"):
        name = sql.Identifier(f"restored_{table}")
        await conn.execute(
            sql.SQL("delete from {} where view_id not in (select old from restored_number)").format(name)
        )
        update = sql.SQL("update {} r set view_id = n.new from restored_number n where n.old = r.view_id")
        await conn.execute(update.format(name))
    for table in ("view", "view_node"):
        await taking.insert(table)
    await conn.execute(
        "select setval('work.view_use', greatest(last_value, (select coalesce(max(used), 1) from work.view_node)))"
        " from work.view_use"
    )


async def _take_jobs(conn: Connection, taking: _Taking) -> None:
    """Jobs get new numbers in their old order; one that ran is queued, since nobody runs it."""
    await conn.execute("delete from restored_job where workspace_id <> %s", (taking.workspace_id,))
    await conn.execute(
        "update restored_job set state = case when cancelling then 'cancelled' else 'queued' end, cancelling = false,"
        " owner = '' where state = 'running'"
    )
    await conn.execute("delete from work.job where job_id in (select job_id from restored_job)")
    await taking.insert("job", "order by number", without="number")
    for table in ("job_input", "job_note"):
        await taking.insert(table, "where job_id in (select job_id from restored_job)")


async def _take_access(conn: Connection, taking: _Taking) -> None:
    """Take the roles in a workspace that the database does not know, and the principals that it lacks, with their keys.

    Otherwise it is newer: what was taken away since does not come back. A principal that only has the same name was
    created at another time. A role in all workspaces comes as one in this workspace, since those of a server are not
    for a backup of one workspace to give.
    """
    cursor = await conn.execute(
        "select exists (select from mirror.commit where workspace_id = %(workspace)s)"
        " or exists (select from work.access_grant where workspace_id = %(workspace)s)",
        {"workspace": taking.workspace_id},
    )
    if await cursor.fetchone() == (True,):
        return
    await conn.execute(
        "delete from restored_principal r where exists (select from work.principal p"
        " where p.name = r.name and p.created_at <> r.created_at)"
    )
    await conn.execute("delete from restored_api_key where principal in (select name from work.principal)")
    await taking.insert("principal", "on conflict do nothing")
    for table in ("restored_api_key", "restored_access_grant"):
        known = sql.SQL("delete from {} where principal not in (select name from restored_principal)")
        await conn.execute(known.format(sql.Identifier(table)))
    await taking.insert("api_key", "on conflict do nothing")
    await conn.execute(
        "delete from restored_access_grant r where workspace_id = '*' and exists (select from restored_access_grant o"
        " where o.workspace_id <> '*' and (o.principal, o.branches) = (r.principal, r.branches))"
    )
    await conn.execute("update restored_access_grant set workspace_id = %s", (taking.workspace_id,))
    await taking.insert("access_grant")


async def _copy_in(conn: Connection, table: str, columns: Sequence[str], path: Path | None) -> list[str]:
    """Fill a temporary table from a file; return the columns that a table of ``work`` has, too.

    The format of ``work`` may have grown since: columns that are no more are read and forgotten, and new ones get what
    a new row has.
    """
    known = await _columns(conn, table)
    temporary = sql.Identifier(f"restored_{table}")
    made = sql.SQL("create temporary table {} on commit drop as select {} from {} with no data")
    await conn.execute(made.format(temporary, _names(known), sql.Identifier("work", table)))
    for column in columns:
        if column not in known:
            await conn.execute(sql.SQL("alter table {} add column {} text").format(temporary, sql.Identifier(column)))
    if path is None:
        return []
    statement = sql.SQL("copy {} ({}) from stdin").format(temporary, _names(columns))
    with await in_store_thread(path.open, "rb") as file:
        async with conn.cursor() as cursor, cursor.copy(statement) as copy:
            while piece := await in_store_thread(file.read, _PIECE):
                await copy.write(piece)
    return [column for column in columns if column in known]


async def _standing(conn: Connection, workspace_id: str, there: Callable[[str], bool]) -> list[str]:
    """The open sessions that the database has and whose commits the repository has."""
    cursor = await conn.execute(
        "select session_id, base_commit, merged from work.session where workspace_id = %s and state = 'open'",
        (workspace_id,),
    )
    found = await cursor.fetchall()
    return await in_store_thread(
        lambda: [one for one, *commits in found if all(there(commit) for commit in commits if commit is not None)]
    )


async def _columns(conn: Connection, table: str) -> tuple[str, ...]:
    """The columns of a table of ``work`` that are stored, and not computed from others."""
    cursor = await conn.execute(
        "select column_name::text from information_schema.columns where table_schema = 'work' and table_name = %s"
        " and is_generated = 'NEVER' order by ordinal_position",
        (table,),
    )
    return tuple([row[0] for row in await cursor.fetchall()])


def _names(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))
