"""Rows after an erasure: ids of commits and files that changed, what must go, and tables without their dead rows."""

import re
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.model.erasure import Redaction
from memotree_storage.postgres.database import Connection

_HEX_ID: Final = re.compile(rb"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])")
_PAGE: Final = 500

_MAP: Final = "unnest(%(old)s::text[], %(new)s::text[]) as m (old, new)"
_IN_SESSIONS: Final = f"{_MAP}, work.session s where s.workspace_id = %(workspace)s and s.session_id"
_COMMITS: Final = tuple(
    f"update work.{table} t set {column} = m.new from {_MAP}"  # noqa: S608 - constants of this module
    f" where t.workspace_id = %(workspace)s and t.{column} = m.old"
    for table, column in (("session", "base_commit"), ("session", "merged"), ("view", "scope"))
)
_DOUBLE_VIEWS: Final = (
    f"delete from work.view v using {_MAP}, work.view n where v.workspace_id = %(workspace)s and v.scope = m.old"  # noqa: S608
    " and n.workspace_id = v.workspace_id and n.scope = m.new and n.name = v.name"
)
_BLOBS: Final = tuple(
    f"update work.{table} t set {column} = {new} from {_IN_SESSIONS} = t.session_id"  # noqa: S608 - the same
    f" and t.{column} = m.old"
    for table, column, new in (
        ("staged", "derived_blob", "nullif(m.new, '')"),
        ("conflict", "base_blob", "m.new"),
        ("conflict", "their_blob", "m.new"),
    )
)


async def put_rewritten(conn: Connection, workspace_id: str, tip: str, commits: Mapping[str, str]) -> None:
    """Replace what is known of commits that erasures have rewritten; ``tip`` is the commit of the record."""
    await conn.execute("delete from mirror.rewritten where workspace_id = %s", (workspace_id,))
    async with (
        conn.cursor() as cursor,
        cursor.copy("copy mirror.rewritten (workspace_id, old_commit, new_commit) from stdin") as copy,
    ):
        for old, new in commits.items():
            await copy.write_row((workspace_id, old, new))
    await conn.execute("update mirror.workspace set erasures = %s where workspace_id = %s", (tip, workspace_id))


async def followed_erasures(conn: Connection, workspace_id: str) -> str:
    """The commit of the record of erasures that the mirror follows; "" for none."""
    cursor = await conn.execute("select erasures from mirror.workspace where workspace_id = %s", (workspace_id,))
    row = await cursor.fetchone()
    return "" if row is None else str(row[0])


async def rewritten_rows(conn: Connection, workspace_id: str) -> dict[str, str]:
    """The new ids of the commits that erasures have rewritten, by their old ids."""
    cursor = await conn.execute(
        "select old_commit, new_commit from mirror.rewritten where workspace_id = %s", (workspace_id,)
    )
    return dict(await cursor.fetchall())


async def nodes_ever_in(conn: Connection, workspace_id: str, archive_id: str) -> frozenset[str]:
    """All nodes that stand in an archive at any commit."""
    cursor = await conn.execute(
        "select distinct v.entry_id from mirror.version v join mirror.line l using (line_id)"
        " where l.workspace_id = %s and v.archive_id = %s and not v.is_archive",
        (workspace_id, archive_id),
    )
    return frozenset(row[0] for row in await cursor.fetchall())


async def nodes_ever_above(conn: Connection, workspace_id: str, node_ids: Collection[str]) -> frozenset[str]:
    """All nodes that any of these stand below at any commit."""
    cursor = await conn.execute(
        'with recursive above as (select unnest(%(ids)s::text[]) collate "C" as entry_id union'
        " select v.parent_id from above join mirror.version v using (entry_id) join mirror.line l using (line_id)"
        " where l.workspace_id = %(workspace)s and v.parent_id <> '')"
        " select entry_id from above where entry_id <> all(%(ids)s::text[])",
        {"workspace": workspace_id, "ids": list(node_ids)},
    )
    return frozenset(row[0] for row in await cursor.fetchall())


async def titles_ever(conn: Connection, workspace_id: str, entry_ids: Collection[str]) -> frozenset[str]:
    """All titles that these have at any commit, and in any session."""
    cursor = await conn.execute(
        "select distinct v.title from mirror.version v join mirror.line l using (line_id)"
        " where l.workspace_id = %(workspace)s and v.entry_id = any(%(ids)s::text[]) union"
        " select r.title from work.staged r join work.session s using (session_id)"
        " where s.workspace_id = %(workspace)s and r.entry_id = any(%(ids)s::text[])",
        {"workspace": workspace_id, "ids": list(entry_ids)},
    )
    return frozenset(row[0] for row in await cursor.fetchall())


async def is_known(conn: Connection, workspace_id: str, entry_id: str, *, is_archive: bool) -> bool:
    """Whether a node or archive is, or was, at any commit or in any session."""
    cursor = await conn.execute(
        "select exists (select from mirror.version v join mirror.line l using (line_id) where l.workspace_id ="
        " %(workspace)s and v.entry_id = %(id)s and v.is_archive = %(archive)s) or exists (select from work.staged r"
        " join work.session s using (session_id) where s.workspace_id = %(workspace)s and r.entry_id = %(id)s"
        " and r.is_archive = %(archive)s)",
        {"workspace": workspace_id, "id": entry_id, "archive": is_archive},
    )
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def carry_over(conn: Connection, workspace_id: str, commits: Mapping[str, str], blobs: Mapping[str, str]) -> None:
    """Let sessions, views, results of request ids and jobs name the new commits and files.

    Args:
        conn: In a transaction that holds the workspace, after the mirror of the workspace was forgotten: until it
            ends, no session can be opened on an old commit.
        workspace_id: The workspace.
        commits: The new commit by each old one.
        blobs: The new file by each old one, "" for one that is gone.
    """
    for statements, ids in (((_DOUBLE_VIEWS, *_COMMITS), commits), (_BLOBS, blobs)):
        given = {"workspace": workspace_id, "old": list(ids), "new": list(ids.values())}
        for statement in statements if ids else ():
            await conn.execute(statement, given)
    cursor = await conn.execute(
        "select session_id, files from work.session where workspace_id = %s and files <> '{}' for update",
        (workspace_id,),
    )
    for session_id, files in await cursor.fetchall():
        new = {
            path: [None if one is None else blobs.get(one, one) or None for one in pair] for path, pair in files.items()
        }
        if new != files:
            await conn.execute("update work.session set files = %s where session_id = %s", (Jsonb(new), session_id))
    await _map_ids(conn, workspace_id, commits)


_WITH_IDS: Final = (
    ("work.request", "response", "request_id"),
    ("work.job", "result", "job_id"),
)


async def _map_ids(conn: Connection, workspace_id: str, commits: Mapping[str, str]) -> None:
    """In stored messages a commit is 40 digits, and so is its new id: replacing them keeps the message well-formed."""

    def new(found: re.Match[bytes]) -> bytes:
        return commits.get(found[0].decode(), found[0].decode()).encode()

    for table, column, key in _WITH_IDS:
        statement = sql.SQL("update {} set {} = %s where workspace_id = %s and {} = %s").format(
            sql.Identifier(*table.split(".")), sql.Identifier(column), sql.Identifier(key)
        )
        async for rows in _pages(conn, table, (key, column), workspace_id):
            for name, changed in await in_store_thread(_changed, rows, new):
                await conn.execute(statement, (changed, workspace_id, name))


def _changed(rows: Sequence[tuple[Any, ...]], new: Callable[[re.Match[bytes]], bytes]) -> list[tuple[str, bytes]]:
    """The rows, by key and message, whose message names a commit that has another id now."""
    replaced = [(name, bytes(data), _HEX_ID.sub(new, bytes(data))) for name, data in rows if data is not None]
    return [(name, after) for name, before, after in replaced if after != before]


async def _pages(
    conn: Connection, table: str, columns: Sequence[str], workspace_id: str
) -> AsyncIterator[list[tuple[Any, ...]]]:
    """The rows of a table of ``work`` in a workspace, by its key, which is the first of the columns."""
    statement = sql.SQL("select {} from {} where workspace_id = %s and {} > %s order by {} limit %s").format(
        sql.SQL(", ").join(map(sql.Identifier, columns)),
        sql.Identifier(*table.split(".")),
        sql.Identifier(columns[0]),
        sql.Identifier(columns[0]),
    )
    after = ""
    while True:
        cursor = await conn.execute(statement, (workspace_id, after, _PAGE))
        rows = await cursor.fetchall()
        if not rows:
            return
        yield rows
        after = rows[-1][0]


@dataclass(frozen=True, slots=True)
class AffectedRows:
    """Rows with what goes, or about the nodes that are erased: results of request ids, and jobs by their state."""

    requests: tuple[str, ...]
    jobs: tuple[str, ...]
    unfinished_jobs: tuple[str, ...]


async def affected_rows(conn: Connection, workspace_id: str, redaction: Redaction, but_job: str) -> AffectedRows:
    """Find the results of request ids and the jobs that have what goes."""
    requests: list[str] = []
    async for rows in _pages(conn, "work.request", ("request_id", "response"), workspace_id):
        requests += await in_store_thread(_with, rows, redaction)
    over: list[str] = []
    unfinished: list[str] = []
    columns = ("job_id", "state", "kind", "subject", "message", "step", "request", "result")
    async for rows in _pages(conn, "work.job", columns, workspace_id):
        for job_id, state, kind, *texts in rows:
            if job_id == but_job or kind == "erase":
                continue
            if await in_store_thread(_has, texts, redaction) or await _has_in_inputs(conn, job_id, redaction):
                (unfinished if state in {"queued", "running"} else over).append(job_id)
    return AffectedRows(tuple(requests), tuple(over), tuple(unfinished))


async def _has_in_inputs(conn: Connection, job_id: str, redaction: Redaction) -> bool:
    """Whether an input or note of a job has it; a file that is no text may have it in a form that nobody sees."""
    for table in ("job_input", "job_note"):
        cursor = await conn.execute(
            sql.SQL("select data from {} where job_id = %s").format(sql.Identifier("work", table)), (job_id,)
        )
        async for (data,) in cursor:
            is_binary = table == "job_input" and not await in_store_thread(_is_text, bytes(data))
            if is_binary or await in_store_thread(_has, [data], redaction):
                return True
    return False


def _with(rows: Sequence[tuple[Any, ...]], redaction: Redaction) -> list[str]:
    """The keys of the rows whose message has what goes."""
    return [name for name, data in rows if _has([data], redaction)]


def _has(values: Sequence[Any], redaction: Redaction) -> bool:
    """Whether a text or message has what goes, or names a node that is erased; as long as a document is long."""
    return any(
        redaction.is_in(value.encode() if isinstance(value, str) else bytes(value))
        for value in values
        if value is not None
    )


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in data


async def remove_rows(conn: Connection, workspace_id: str, found: AffectedRows, redaction: Redaction) -> None:
    """Delete the rows that were found, and what goes in the words of views, sessions and conflicts.

    All conversations of the workspace go: their answers may tell in other words what goes.
    """
    await conn.execute("delete from work.conversation where workspace_id = %s", (workspace_id,))
    await conn.execute(
        "delete from work.request where workspace_id = %s and request_id = any(%s)",
        (workspace_id, list(found.requests)),
    )
    await conn.execute("delete from work.job where job_id = any(%s)", (list(found.jobs),))
    if redaction.is_of_text:
        text, erased = redaction.target.text, "erased"
        await conn.execute(
            "update work.view set name = replace(name, %s, %s || view_id)"
            " where workspace_id = %s and strpos(name, %s) > 0",
            (text, erased, workspace_id, text),
        )
        await conn.execute(
            "update work.session set agent = replace(agent, %s, %s), why_closed = replace(why_closed, %s, %s)"
            " where workspace_id = %s and (strpos(agent, %s) > 0 or strpos(why_closed, %s) > 0)",
            (text, erased, text, erased, workspace_id, text, text),
        )
    cursor = await conn.execute(
        "select c.session_id, c.entry_id, c.number, c.sides, c.description from work.conflict c"
        " join work.session s using (session_id) where s.workspace_id = %s",
        (workspace_id,),
    )
    for session_id, entry_id, number, sides, description in await cursor.fetchall():
        if redaction.is_of_text:
            new, told = redaction.json(sides), redaction.text(description)
        elif entry_id in redaction.nodes or entry_id == redaction.target.archive_id:
            new, told = [None] * len(sides), "erased"
        else:
            continue
        if new != sides or told != description:
            await conn.execute(
                "update work.conflict set sides = %s, description = %s"
                " where session_id = %s and entry_id = %s and number = %s",
                (Jsonb(new), told, session_id, entry_id, number),
            )


async def forget_answers(conn: Connection) -> None:
    """Delete every kept answer of a model: it may tell in other words what goes, and is made again when needed."""
    await conn.execute("delete from work.model_answer")


_TABLES: Final = (
    "select format('%I.%I', schemaname, tablename) from pg_tables where schemaname in ('mirror', 'work') order by 1"
)
_SETTLED: Final = """
    select pg_snapshot_xmin(pg_current_snapshot()) >= %(number)s::xid8 and not exists (
        select from pg_stat_activity
        where age(backend_xmin) > age(%(number)s::xid8::xid) and pid <> pg_backend_pid()
            and coalesce(datname, current_database()) = current_database()
    ) and not exists (select from pg_replication_slots where age(xmin) > age(%(number)s::xid8::xid))"""
_HIDDEN: Final = (
    "select exists (select from pg_stat_activity"
    " where datname = current_database() and query = '<insufficient privilege>')"
)


async def horizon(conn: Connection) -> str:
    """A transaction number: rows that were deleted before now can be removed once all earlier transactions ended."""
    cursor = await conn.execute("select pg_snapshot_xmax(pg_current_snapshot())::text")
    row = await cursor.fetchone()
    return "" if row is None else str(row[0])


async def is_settled(conn: Connection, number: str) -> bool:
    """Whether every transaction from before a `horizon` has ended, and none that only reads can see rows from then."""
    cursor = await conn.execute(_SETTLED, {"number": number})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def sees_all(conn: Connection) -> bool:
    """Whether the transactions of all users are shown to this one."""
    cursor = await conn.execute(_HIDDEN)
    row = await cursor.fetchone()
    return row is not None and not row[0]


async def compact_tables(conn: Connection) -> None:
    """Rewrite every table without dead rows, with new statistics for the planner.

    Args:
        conn: A connection in autocommit mode.
    """
    cursor = await conn.execute(_TABLES)
    tables = [row[0] for row in await cursor.fetchall()]
    await conn.execute("set statement_timeout = 0")
    try:
        for table in tables:
            await conn.execute(sql.SQL("vacuum (full, analyze) {}").format(sql.SQL(table)))
    finally:
        await conn.execute("reset statement_timeout")


async def compact_rest(conn: Connection) -> list[str]:
    """Rewrite the planner's statistics, whose old rows have values of columns, and begin a new file of the log.

    Args:
        conn: A connection in autocommit mode.

    Returns:
        What could not be done, one sentence each: on a server of one's own, rights may be missing.
    """
    left: list[str] = []
    await conn.execute("set statement_timeout = 0")
    try:
        for statement, what in (
            ("vacuum (full) pg_catalog.pg_statistic", "the planner's old statistics may have values of columns"),
            ("checkpoint", "the write-ahead log has old pages until its files are recycled"),
            ("select pg_switch_wal()", "the write-ahead log has old pages until its files are recycled"),
            ("checkpoint", "the write-ahead log has old pages until its files are recycled"),
        ):
            try:
                await conn.execute(statement)
            except psycopg.errors.InsufficientPrivilege:
                left.append(f"PostgreSQL does not let this user do it, so {what}.")
    finally:
        await conn.execute("reset statement_timeout")
    return list(dict.fromkeys(left))
