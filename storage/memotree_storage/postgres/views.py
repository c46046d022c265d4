"""Views: named maps from nodes to levels of detail, kept beside a session or branch and never committed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from memotree_storage.postgres.database import Connection


@dataclass(frozen=True, slots=True)
class ViewKey:
    """Which view: its workspace, the session or branch it belongs to, and its name."""

    workspace_id: str
    scope: str
    name: str


@dataclass(frozen=True, slots=True)
class ViewLevel:
    """One node of a view: its level (1 to 4), whether it is shown, and when it was used last (greater is later).

    A node that is not shown was hidden then.
    """

    entry_id: str
    level: int
    shown: bool
    used: int


@dataclass(frozen=True, slots=True)
class ViewRow:
    """One view of a listing."""

    name: str
    expanded: int
    updated_at: datetime


async def levels(conn: Connection, key: ViewKey) -> dict[str, ViewLevel]:
    """The nodes of a view by id; empty for a view that nobody has used yet."""
    async with conn.cursor(row_factory=class_row(ViewLevel)) as cursor:
        await cursor.execute(
            "select entry_id, level, shown, used from work.view_node join work.view using (view_id)"
            " where workspace_id = %s and scope = %s and name = %s",
            (key.workspace_id, key.scope, key.name),
        )
        return {row.entry_id: row async for row in cursor}


async def set_levels(conn: Connection, key: ViewKey, nodes: Mapping[str, int]) -> None:
    """Put nodes into a view at their levels, as used now; the view is made when it is not there."""
    await conn.execute(
        "insert into work.view_node (view_id, entry_id, level, shown, used)"
        " select %s, n.id, n.level, true, nextval('work.view_use') "
        "from unnest(%s::text[], %s::smallint[]) as n (id, level)"
        " on conflict (view_id, entry_id) do update"
        " set level = excluded.level, shown = excluded.shown, used = excluded.used",
        (await _touch(conn, key), list(nodes), list(nodes.values())),
    )


async def bring_in(conn: Connection, key: ViewKey, ids: Iterable[str], level: int) -> None:
    """Show nodes at the level they had, or at the one given."""
    await conn.execute(
        "insert into work.view_node (view_id, entry_id, level, shown, used)"
        " select %s, id, %s, true, nextval('work.view_use') from unnest(%s::text[]) as id"
        " on conflict (view_id, entry_id) do update set shown = true, used = excluded.used",
        (await _touch(conn, key), level, list(ids)),
    )


async def hide(conn: Connection, key: ViewKey, ids: Iterable[str], level: int) -> None:
    """Hide nodes; each keeps its level (the one given when it had none)."""
    await conn.execute(
        "insert into work.view_node (view_id, entry_id, level, shown, used)"
        " select %s, id, %s, false, nextval('work.view_use') from unnest(%s::text[]) as id"
        " on conflict (view_id, entry_id) do update set shown = false, used = excluded.used",
        (await _touch(conn, key), level, list(ids)),
    )


async def forget(conn: Connection, key: ViewKey, ids: Iterable[str]) -> None:
    """Take nodes out of a view, with their levels."""
    await conn.execute(
        "delete from work.view_node where view_id = %s and entry_id = any(%s)", (await _touch(conn, key), list(ids))
    )


async def list_views(
    conn: Connection, workspace_id: str, scope: str, *, after: str = "", limit: int | None = None
) -> list[ViewRow]:
    """The views of a session or branch by name, behind the name given."""
    async with conn.cursor(row_factory=class_row(ViewRow)) as cursor:
        await cursor.execute(
            "select name, updated_at, (select count(*) from work.view_node n where n.view_id = view.view_id"
            " and shown and level > 1) as expanded from work.view"
            ' where workspace_id = %s and scope = %s and name collate "C" > %s order by name collate "C" limit %s',
            (workspace_id, scope, after, limit),
        )
        return await cursor.fetchall()


async def delete_view(conn: Connection, key: ViewKey) -> bool:
    """Forget a view; whether it was there is returned."""
    cursor = await conn.execute(
        "delete from work.view where workspace_id = %s and scope = %s and name = %s",
        (key.workspace_id, key.scope, key.name),
    )
    return cursor.rowcount > 0


async def _touch(conn: Connection, key: ViewKey) -> int:
    cursor = await conn.execute(
        "insert into work.view (workspace_id, scope, name) values (%s, %s, %s)"
        " on conflict (workspace_id, scope, name) do update set updated_at = now() returning view_id",
        (key.workspace_id, key.scope, key.name),
    )
    row = await cursor.fetchone()
    if row is None:
        message = "an upsert always returns its row"
        raise RuntimeError(message)
    return int(row[0])
