"""Views: named maps from nodes to levels of detail. They belong to a session or branch and are never committed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from memotree_storage.postgres.database import Connection


@dataclass(frozen=True, slots=True)
class ViewKey:
    """The key of a view: its workspace, the session or branch that it belongs to, its name, and who owns it.

    Views that were made without authentication have no owner.
    """

    workspace_id: str
    scope: str
    name: str
    principal: str = ""


@dataclass(frozen=True, slots=True)
class ViewLevel:
    """One node of a view: its level (1 to 4), whether it is shown, and its last use (a greater number is later).

    For a node that is not shown, the last use is when it was hidden.
    """

    entry_id: str
    level: int
    shown: bool
    used: int


@dataclass(frozen=True, slots=True)
class ViewRow:
    """One view in a list."""

    name: str
    expanded: int
    updated_at: datetime


async def levels(conn: Connection, key: ViewKey) -> dict[str, ViewLevel]:
    """Return the nodes of a view by id; empty for a view that was never used."""
    async with conn.cursor(row_factory=class_row(ViewLevel)) as cursor:
        await cursor.execute(
            "select entry_id, level, shown, used from work.view_node join work.view using (view_id)"
            " where workspace_id = %s and scope = %s and name = %s and principal = %s",
            (key.workspace_id, key.scope, key.name, key.principal),
        )
        return {row.entry_id: row async for row in cursor}


async def set_levels(conn: Connection, key: ViewKey, nodes: Mapping[str, int]) -> None:
    """Show nodes at the given levels and mark them as used now; create the view if necessary."""
    await conn.execute(
        "insert into work.view_node (view_id, entry_id, level, shown, used)"
        " select %s, n.id, n.level, true, nextval('work.view_use') "
        "from unnest(%s::text[], %s::smallint[]) as n (id, level)"
        " on conflict (view_id, entry_id) do update"
        " set level = excluded.level, shown = excluded.shown, used = excluded.used",
        (await _touch(conn, key), list(nodes), list(nodes.values())),
    )


async def bring_in(conn: Connection, key: ViewKey, ids: Iterable[str], level: int) -> None:
    """Show nodes, each at the level that it had, or at ``level`` if it had none."""
    await conn.execute(
        "insert into work.view_node (view_id, entry_id, level, shown, used)"
        " select %s, id, %s, true, nextval('work.view_use') from unnest(%s::text[]) as id"
        " on conflict (view_id, entry_id) do update set shown = true, used = excluded.used",
        (await _touch(conn, key), level, list(ids)),
    )


async def hide(conn: Connection, key: ViewKey, ids: Iterable[str], level: int) -> None:
    """Hide nodes; each keeps its level, or gets ``level`` if it had none."""
    await conn.execute(
        "insert into work.view_node (view_id, entry_id, level, shown, used)"
        " select %s, id, %s, false, nextval('work.view_use') from unnest(%s::text[]) as id"
        " on conflict (view_id, entry_id) do update set shown = false, used = excluded.used",
        (await _touch(conn, key), level, list(ids)),
    )


async def forget(conn: Connection, key: ViewKey, ids: Iterable[str]) -> None:
    """Remove nodes and their levels from a view."""
    await conn.execute(
        "delete from work.view_node where view_id = %s and entry_id = any(%s)", (await _touch(conn, key), list(ids))
    )


async def list_views(
    conn: Connection, workspace_id: str, scope: str, *, principal: str = "", after: str = "", limit: int | None = None
) -> list[ViewRow]:
    """Return the views of an owner in a session or branch, ordered by name, that come after the given name."""
    async with conn.cursor(row_factory=class_row(ViewRow)) as cursor:
        await cursor.execute(
            "select name, updated_at, (select count(*) from work.view_node n where n.view_id = view.view_id"
            " and shown and level > 1) as expanded from work.view"
            " where workspace_id = %s and scope = %s and principal = %s"
            ' and name collate "C" > %s order by name collate "C" limit %s',
            (workspace_id, scope, principal, after, limit),
        )
        return await cursor.fetchall()


async def delete_view(conn: Connection, key: ViewKey) -> bool:
    """Delete a view; return whether it existed."""
    cursor = await conn.execute(
        "delete from work.view where workspace_id = %s and scope = %s and name = %s and principal = %s",
        (key.workspace_id, key.scope, key.name, key.principal),
    )
    return cursor.rowcount > 0


async def _touch(conn: Connection, key: ViewKey) -> int:
    cursor = await conn.execute(
        "insert into work.view (workspace_id, scope, name, principal) values (%s, %s, %s, %s)"
        " on conflict (workspace_id, scope, principal, name) do update set updated_at = now() returning view_id",
        (key.workspace_id, key.scope, key.name, key.principal),
    )
    row = await cursor.fetchone()
    if row is None:
        message = "an upsert always returns its row"
        raise RuntimeError(message)
    return int(row[0])
