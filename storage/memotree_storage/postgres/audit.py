"""The audit log as rows: added in batches, read in pages from the newest, deleted when they are old."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from psycopg.rows import class_row

from memotree_storage.postgres.database import Connection

_COLUMNS: Final = (
    "record_id, happened_at, principal, interface, call_id, request_id, method, tool, arguments, code, reason,"
    " elapsed_ms"
)
_SHAPE: Final = (
    "record_id text, happened_at timestamptz, principal text, interface text, call_id text, request_id text,"
    " method text, tool text, workspace text, arguments jsonb, code text, reason text, elapsed_ms double precision"
)
_INSERT: Final = (
    f"insert into work.audit ({_COLUMNS}, workspace)"  # noqa: S608 - constants of this module
    " select r.record_id, r.happened_at, r.principal, r.interface, r.call_id, r.request_id, r.method, r.tool,"
    " r.arguments, r.code, r.reason, r.elapsed_ms, coalesce((select w.workspace_id from mirror.workspace w"
    " where w.workspace_id = r.workspace), (select w.workspace_id from mirror.workspace w where w.name = r.workspace),"
    f" r.workspace) from jsonb_to_recordset(%s::text::jsonb) as r ({_SHAPE}) on conflict (record_id) do nothing"
)
_FOUND: Final = f"select number, workspace, {_COLUMNS} from work.audit where {{conditions}}"  # noqa: S608 - constants
_NEWEST: Final = " order by number desc limit %(limit)s"
_FOUND_BY_METHOD: Final = (
    "select * from (select found.* from unnest(%(methods)s::text[]) as m (name)"  # noqa: S608 - the same
    f" cross join lateral ({_FOUND} and method = m.name{_NEWEST}) as found"
    f" union all ({_FOUND} and tool = %(tool)s and tool <> '' and method <> all(%(methods)s){_NEWEST})) as found"
)
"""Each method and the tool are read from an index of their own: with one condition for all of them, PostgreSQL would
read the whole log for those that are rare."""

_MOST_DELETED: Final = 10_000


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One row; see the migration for its columns."""

    number: int
    record_id: str
    happened_at: datetime
    principal: str
    interface: str
    call_id: str
    request_id: str
    method: str
    tool: str
    workspace: str
    arguments: Mapping[str, Any]
    code: str
    reason: str
    elapsed_ms: float


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which rows are wanted: those that match every field that is given.

    Attributes:
        principal: The name of who called.
        methods: The whole names of the methods, such as ``memotree.v1.SessionService/CommitChanges``.
        tool: The name of a tool; a row matches one of the methods or this tool.
        workspace: The id of the workspace, or the name that was called.
        code: The gRPC status.
        since: The earliest time.
        until: The time before which it was.
    """

    principal: str = ""
    methods: Sequence[str] = ()
    tool: str = ""
    workspace: str = ""
    code: str = ""
    since: datetime | None = None
    until: datetime | None = None


async def add(conn: Connection, records: str) -> int:
    """Add records, a JSON array of objects with the columns; return how many of them were not there yet."""
    cursor = await conn.execute(_INSERT, (records,))
    return cursor.rowcount


async def page(
    conn: Connection, wanted: AuditFilter, *, workspace: str = "", before: int | None = None, limit: int
) -> Sequence[AuditRow]:
    """The newest rows that match, below a number if one is given; ``workspace`` is the id of the wanted workspace."""
    conditions = ["true"]
    values: dict[str, Any] = {"limit": limit}
    for name, value, condition in (
        ("before", before, "number < %(before)s"),
        ("principal", wanted.principal, "principal = %(principal)s"),
        ("workspace", wanted.workspace, "workspace in (%(workspace)s, %(workspace_id)s)"),
        ("code", wanted.code, "code = %(code)s"),
        ("since", wanted.since, "happened_at >= %(since)s"),
        ("until", wanted.until, "happened_at < %(until)s"),
    ):
        if value is not None and value != "":
            conditions.append(condition)
            values[name] = value
    values |= {"workspace_id": workspace, "methods": list(wanted.methods), "tool": wanted.tool}
    found = _FOUND_BY_METHOD if wanted.methods or wanted.tool else _FOUND
    statement = found.replace("{conditions}", " and ".join(conditions)) + _NEWEST
    async with conn.cursor(row_factory=class_row(AuditRow)) as cursor:
        await cursor.execute(statement, values)
        return await cursor.fetchall()


async def delete_old(conn: Connection, retention: timedelta) -> int:
    """Delete some of the rows that are older; return their number, which is 0 when none is left."""
    cursor = await conn.execute(
        "delete from work.audit where number = any(array(select number from work.audit"
        " where happened_at < now() - %s order by happened_at limit %s))",
        (retention, _MOST_DELETED),
    )
    return cursor.rowcount
