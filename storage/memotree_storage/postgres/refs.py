"""The mirrored branches and tags: reading them, and updating them after a ref has moved in Git."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from psycopg.rows import class_row

from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.tree import State

BRANCHES: Final = "refs/heads/"
TAGS: Final = "refs/tags/"

FOLLOWED: Final = ("refs/heads", "refs/tags")
"""The folders of the refs that the mirror follows."""


@dataclass(frozen=True, slots=True)
class RefRow:
    """A branch or tag: its short name, its object id and the commit that the object peels to."""

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
    """Return the refs below a prefix (``refs/heads/``), ordered by name, that come after the short name ``after``."""
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
    """Return the ref with this short name below a prefix; ``None`` if there is none.

    With ``hold``, it cannot be deleted before the transaction ends. In this case a ref that another transaction is
    deleting right now counts as deleted, so that no caller holds a connection while it waits.
    """
    async with conn.cursor(row_factory=class_row(RefRow)) as cursor:
        await cursor.execute(
            _FIND_AND_HOLD if hold else _FIND,
            {"workspace": workspace_id, "prefix": prefix, "name": name},
        )
        return await cursor.fetchone()


async def branch_head(conn: Connection, workspace_id: str, branch: str, *, hold: bool = False) -> State | None:
    """The state at the head of a branch in the mirror, or ``None``; for ``hold`` see `find_ref`."""
    found = await find_ref(conn, workspace_id, BRANCHES, branch, hold=hold)
    return None if found is None else State(workspace_id, found.commit_id)


async def branch_heads(conn: Connection, workspace_id: str, branches: Collection[str]) -> dict[str, str]:
    """The commits at the heads of branches, by name, of those that there are."""
    cursor = await conn.execute(
        "select substr(name, length(%(prefix)s) + 1), commit_id from mirror.ref"
        " where workspace_id = %(workspace)s and name = any(%(names)s)",
        {"prefix": BRANCHES, "workspace": workspace_id, "names": [BRANCHES + branch for branch in branches]},
    )
    return {row[0]: row[1] for row in await cursor.fetchall()}


async def in_the_way(conn: Connection, workspace_id: str, name: str) -> str | None:
    """Return the full name of a ref that prevents the creation of a tag with this short name; ``None`` if none does.

    That is the tag itself, else a branch with the same name, else a tag whose name is a folder of the new one, or the
    other way round.
    """
    cursor = await conn.execute(
        "select name from mirror.ref where workspace_id = %(workspace)s and (name in (%(ref)s, %(branch)s)"
        " or starts_with(name, %(ref)s || '/') or starts_with(%(ref)s, name || '/'))"
        " order by name = %(ref)s desc, name = %(branch)s desc, name limit 1",
        {"workspace": workspace_id, "ref": TAGS + name, "branch": BRANCHES + name},
    )
    row = await cursor.fetchone()
    return None if row is None else str(row[0])


async def object_ids(conn: Connection, workspace_id: str) -> dict[str, str]:
    """Return the object id of every mirrored ref by full name."""
    cursor = await conn.execute("select name, object_id from mirror.ref where workspace_id = %s", (workspace_id,))
    return {row[0]: row[1] for row in await cursor.fetchall()}


async def put_ref(conn: Connection, workspace_id: str, name: str, object_id: str, commit_id: str) -> None:
    """Set a ref, given by its full name, to an object; ``commit_id`` is the commit that the object peels to."""
    await conn.execute(
        "insert into mirror.ref values (%s, %s, %s, %s) on conflict (workspace_id, name) do update"
        " set object_id = excluded.object_id, commit_id = excluded.commit_id",
        (workspace_id, name, object_id, commit_id),
    )


async def delete_ref(conn: Connection, workspace_id: str, name: str) -> None:
    """Delete a ref, given by its full name."""
    await conn.execute("delete from mirror.ref where workspace_id = %s and name = %s", (workspace_id, name))


async def set_refs(
    conn: Connection, workspace_id: str, refs: Mapping[str, tuple[str, str]], *, keep: Collection[str] = ()
) -> None:
    """Replace all mirrored refs except those to ``keep``.

    Args:
        conn: In a transaction that holds the workspace's row.
        workspace_id: The workspace.
        refs: Full names with the object id, and the id of the commit that the object peels to.
        keep: Full names of refs that stay as they are, if they are there.
    """
    names = list(refs)
    await conn.execute(
        "delete from mirror.ref where workspace_id = %s and name <> all(%s)", (workspace_id, [*names, *keep])
    )
    await conn.execute(
        "insert into mirror.ref as r select %s, * from unnest(%s::text[], %s::text[], %s::text[])"
        " on conflict (workspace_id, name) do update set object_id = excluded.object_id, commit_id = excluded.commit_id"
        " where (r.object_id, r.commit_id) <> (excluded.object_id, excluded.commit_id)",
        (workspace_id, names, [pair[0] for pair in refs.values()], [pair[1] for pair in refs.values()]),
    )
