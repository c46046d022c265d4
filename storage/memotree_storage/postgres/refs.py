"""Branches and tags as the mirror has them: reading them, and writing them after Git has moved."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from psycopg.rows import class_row

from memotree_storage.postgres.database import Connection

BRANCHES: Final = "refs/heads/"
TAGS: Final = "refs/tags/"


@dataclass(frozen=True, slots=True)
class RefRow:
    """A branch or tag: its short name, the object it holds and the commit that this peels to."""

    name: str
    object_id: str
    commit_id: str


_FIND: Final = (
    "select %(name)s as name, object_id, commit_id from mirror.ref"
    " where workspace_id = %(workspace)s and name = %(prefix)s || %(name)s"
)
_FIND_AND_HOLD: Final = f"{_FIND} for key share skip locked"


async def list_refs(
    conn: Connection, workspace_id: str, prefix: str, *, after: str = "", limit: int | None = None
) -> list[RefRow]:
    """The refs below a prefix (``refs/heads/``), ordered by name, from the one after the short name ``after``."""
    async with conn.cursor(row_factory=class_row(RefRow)) as cursor:
        await cursor.execute(
            "select substr(name, length(%(prefix)s) + 1) as name, object_id, commit_id from mirror.ref"
            " where workspace_id = %(workspace)s and name > %(prefix)s || %(after)s and name < %(end)s"
            " order by name limit %(limit)s",
            {
                "workspace": workspace_id,
                "prefix": prefix,
                "end": prefix[:-1] + chr(ord(prefix[-1]) + 1),
                "after": after,
                "limit": limit,
            },
        )
        return await cursor.fetchall()


async def find_ref(conn: Connection, workspace_id: str, prefix: str, name: str, *, hold: bool = False) -> RefRow | None:
    """The ref of that short name below a prefix, or ``None``.

    With ``hold`` it can't be deleted before the transaction ends. A ref that another transaction is deleting at this
    moment counts as gone then, so that no caller waits with a connection.
    """
    async with conn.cursor(row_factory=class_row(RefRow)) as cursor:
        await cursor.execute(
            _FIND_AND_HOLD if hold else _FIND,
            {"workspace": workspace_id, "prefix": prefix, "name": name},
        )
        return await cursor.fetchone()


async def in_the_way(conn: Connection, workspace_id: str, name: str) -> str | None:
    """The full name of a ref that keeps a tag of this short name from being made, or ``None``.

    That is the tag itself, else a branch of that name, else a tag that would be a folder of the other.
    """
    cursor = await conn.execute(
        "select name from mirror.ref where workspace_id = %(workspace)s and (name in (%(ref)s, %(branch)s)"
        " or starts_with(name, %(ref)s || '/') or starts_with(%(ref)s, name || '/'))"
        " order by name = %(ref)s desc, name = %(branch)s desc limit 1",
        {"workspace": workspace_id, "ref": TAGS + name, "branch": BRANCHES + name},
    )
    row = await cursor.fetchone()
    return None if row is None else str(row[0])


async def object_ids(conn: Connection, workspace_id: str) -> dict[str, str]:
    """Every mirrored ref by full name with the object it holds."""
    cursor = await conn.execute("select name, object_id from mirror.ref where workspace_id = %s", (workspace_id,))
    return {row[0]: row[1] for row in await cursor.fetchall()}


async def put_ref(conn: Connection, workspace_id: str, name: str, object_id: str, commit_id: str) -> None:
    """Write that the ref of a full name is at an object; ``commit_id`` is what it peels to."""
    await conn.execute(
        "insert into mirror.ref values (%s, %s, %s, %s) on conflict (workspace_id, name) do update"
        " set object_id = excluded.object_id, commit_id = excluded.commit_id",
        (workspace_id, name, object_id, commit_id),
    )


async def delete_ref(conn: Connection, workspace_id: str, name: str) -> None:
    """Remove the ref of a full name."""
    await conn.execute("delete from mirror.ref where workspace_id = %s and name = %s", (workspace_id, name))


async def set_refs(conn: Connection, workspace_id: str, refs: Mapping[str, tuple[str, str]]) -> None:
    """Make the mirrored refs exactly those given: full name to (object id, id of the commit it peels to)."""
    names = list(refs)
    await conn.execute("delete from mirror.ref where workspace_id = %s and name <> all(%s)", (workspace_id, names))
    await conn.execute(
        "insert into mirror.ref as r select %s, * from unnest(%s::text[], %s::text[], %s::text[])"
        " on conflict (workspace_id, name) do update set object_id = excluded.object_id, commit_id = excluded.commit_id"
        " where (r.object_id, r.commit_id) <> (excluded.object_id, excluded.commit_id)",
        (workspace_id, names, [pair[0] for pair in refs.values()], [pair[1] for pair in refs.values()]),
    )
