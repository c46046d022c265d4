"""Who may call: principals, the digests of their API keys, and their roles in workspaces."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from memotree_storage.postgres.database import Connection


@dataclass(frozen=True, slots=True)
class PrincipalRow:
    """A principal: its name, and the address with which it authors commits, which may be empty."""

    name: str
    email: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class KeyRow:
    """An API key, without the key itself.

    Attributes:
        key_id: Names it; no secret.
        principal: Whose key it is.
        digest: The SHA-256 of the key, 32 bytes.
        label: What it is for, as a text for people.
        created_at: When it was made.
        expires_at: When it ends; ``None`` if it does not.
        used_at: When it was last used, to about a minute; ``None`` if it never was.
    """

    key_id: str
    principal: str
    digest: bytes
    label: str
    created_at: datetime
    expires_at: datetime | None
    used_at: datetime | None


@dataclass(frozen=True, slots=True)
class GrantRow:
    """A role of a principal in a workspace, or in all (``*``), on the branches of a pattern, perhaps for some tools."""

    principal: str
    workspace_id: str
    branches: str
    role: str
    tools: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class AccessRows:
    """What is known of who may call: of all, or of some principals."""

    principals: tuple[PrincipalRow, ...]
    keys: tuple[KeyRow, ...]
    grants: tuple[GrantRow, ...]


async def read_all(conn: Connection) -> AccessRows:
    """Return all principals, keys and grants; in a transaction, so that they fit each other."""
    return await _read(conn, None)


async def read_of(conn: Connection, names: Collection[str]) -> AccessRows:
    """Return the principals of these names with their keys and grants; in a transaction, so that they fit."""
    return await _read(conn, list(names))


async def _read(conn: Connection, names: list[str] | None) -> AccessRows:
    """Return what belongs to the principals of these names, or to all if ``None``."""
    named, owned = ("", "") if names is None else ("where name = any(%(names)s)", "where principal = any(%(names)s)")
    given = {"names": names}
    async with conn.cursor(row_factory=class_row(PrincipalRow)) as principals:
        await principals.execute(f"select name, email, created_at from work.principal {named} order by name", given)  # noqa: S608 - the constants above
        found = tuple(await principals.fetchall())
    async with conn.cursor(row_factory=class_row(KeyRow)) as keys:
        await keys.execute(
            "select key_id, principal, digest, label, created_at, expires_at, used_at from work.api_key"  # noqa: S608 - likewise
            f" {owned} order by principal, created_at, key_id",
            given,
        )
        all_keys = tuple(await keys.fetchall())
    async with conn.cursor(row_factory=class_row(GrantRow)) as grants:
        await grants.execute(
            "select principal, workspace_id, branches, role, tools from work.access_grant"  # noqa: S608 - likewise
            f" {owned} order by principal, workspace_id, branches",
            given,
        )
        return AccessRows(found, all_keys, tuple(await grants.fetchall()))


async def put_principal(conn: Connection, name: str, email: str) -> None:
    """Add a principal, or change its address."""
    await conn.execute(
        "insert into work.principal (name, email) values (%s, %s) on conflict (name) do update set email = %s",
        (name, email, email),
    )


async def delete_principal(conn: Connection, name: str) -> bool:
    """Delete a principal with its keys and grants; return whether it existed.

    Its conversations go, too. What else it owned gets an owner that nobody can be: another principal may get the name.
    """
    # Whoever keeps a turn of a conversation holds this row: it comes before, or finds no principal.
    await conn.execute("select from work.principal where name = %s for update", (name,))
    await conn.execute("delete from work.conversation where principal = %s", (name,))
    for table in ("session", "job", "view"):
        await conn.execute(
            f"update work.{table} set principal = principal || ' ' || gen_random_uuid() where principal = %s",  # noqa: S608
            (name,),
        )
    return (await conn.execute("delete from work.principal where name = %s", (name,))).rowcount > 0


async def add_key(
    conn: Connection, key_id: str, principal: str, digest: bytes, *, label: str = "", expires_at: datetime | None = None
) -> None:
    """Add an API key of a principal that is there."""
    await conn.execute(
        "insert into work.api_key (key_id, principal, digest, label, expires_at) values (%s, %s, %s, %s, %s)",
        (key_id, principal, digest, label, expires_at),
    )


async def delete_key(conn: Connection, key_id: str) -> bool:
    """Delete a key; return whether it existed."""
    return (await conn.execute("delete from work.api_key where key_id = %s", (key_id,))).rowcount > 0


async def note_used(conn: Connection, used: Mapping[str, datetime]) -> None:
    """Note when keys were last used."""
    await conn.execute(
        "update work.api_key k set used_at = greatest(k.used_at, u.at)"
        " from unnest(%s::text[], %s::timestamptz[]) as u (key_id, at) where k.key_id = u.key_id",
        (list(used), list(used.values())),
    )


async def put_grant(conn: Connection, grant: GrantRow) -> None:
    """Give a principal a role, in place of the one that it had on the same branches of the same workspace."""
    await conn.execute(
        "insert into work.access_grant (principal, workspace_id, branches, role, tools) values (%s, %s, %s, %s, %s)"
        " on conflict (principal, workspace_id, branches) do update set role = excluded.role, tools = excluded.tools",
        (grant.principal, grant.workspace_id, grant.branches, grant.role, list(grant.tools)),
    )


async def delete_grant(conn: Connection, principal: str, workspace_id: str, branches: str) -> bool:
    """Take a role away; return whether the principal had it."""
    cursor = await conn.execute(
        "delete from work.access_grant where principal = %s and workspace_id = %s and branches = %s",
        (principal, workspace_id, branches),
    )
    return cursor.rowcount > 0


async def missing_principal(conn: Connection, name: str) -> bool:
    """Whether there is no principal of that name; one that is there stays until the transaction ends."""
    cursor = await conn.execute("select from work.principal where name = %s for key share", (name,))
    return await cursor.fetchone() is None
