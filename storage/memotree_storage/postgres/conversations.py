"""Conversations: the last questions of a principal in a workspace, with the answers that it got."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from psycopg.rows import class_row

from memotree_storage.postgres.database import Connection

UNUSED: Final = timedelta(days=30)
"""A conversation that was not used for this long is deleted."""

MOST_TURNS: Final = 20
"""How many turns of a conversation are kept, the last ones."""

MOST_OF_ONE: Final = 200
"""How many conversations of one principal in a workspace are kept, those that were used last."""


@dataclass(frozen=True, slots=True)
class ConversationKey:
    """The key of a conversation; the same name of another principal is another one.

    Attributes:
        workspace_id: The workspace.
        principal: Whose it is; empty without authentication.
        name: Its name.
    """

    workspace_id: str
    principal: str
    name: str


@dataclass(frozen=True, slots=True)
class ConversationTurn:
    """A question, and the answer to it."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """A conversation: its name, how many turns it has, and when it was last used."""

    name: str
    turns: int
    used_at: datetime


async def of_principal(
    conn: Connection, workspace_id: str, principal: str, name: str | None = None
) -> list[ConversationRow]:
    """Return the conversations of a principal in a workspace, or one of them; the one that was used last first."""
    async with conn.cursor(row_factory=class_row(ConversationRow)) as cursor:
        await cursor.execute(
            "select name, used_at, (select count(*)::int from work.conversation_turn t"
            " where t.conversation_key = c.conversation_key) as turns from work.conversation c"
            " where workspace_id = %(workspace)s and principal = %(principal)s and name = coalesce(%(name)s, name)"
            " order by used_at desc, conversation_key desc limit %(most)s",
            {"workspace": workspace_id, "principal": principal, "name": name, "most": MOST_OF_ONE},
        )
        return await cursor.fetchall()


async def delete(conn: Connection, key: ConversationKey) -> bool:
    """Delete a conversation; return whether it existed."""
    cursor = await conn.execute(
        "delete from work.conversation where workspace_id = %s and principal = %s and name = %s",
        (key.workspace_id, key.principal, key.name),
    )
    return cursor.rowcount > 0


async def row_key(conn: Connection, key: ConversationKey, *, hold: bool = False) -> int | None:
    """Return the number of a conversation, which no later one of the same name has; ``None`` if there is none.

    With ``hold``, it is not deleted until the transaction ends.
    """
    holding = "for update" if hold else ""
    cursor = await conn.execute(
        "select conversation_key from work.conversation"  # noqa: S608 - the constants above
        f" where workspace_id = %s and principal = %s and name = %s {holding}",
        (key.workspace_id, key.principal, key.name),
    )
    row = await cursor.fetchone()
    return None if row is None else int(row[0])


async def turns(conn: Connection, key: ConversationKey) -> list[ConversationTurn]:
    """Return the turns of a conversation, in order; none if there is no such conversation."""
    async with conn.cursor(row_factory=class_row(ConversationTurn)) as cursor:
        await cursor.execute(
            "select question, answer from work.conversation_turn join work.conversation using (conversation_key)"
            " where workspace_id = %s and principal = %s and name = %s order by number desc limit %s",
            (key.workspace_id, key.principal, key.name, MOST_TURNS),
        )
        return (await cursor.fetchall())[::-1]


async def add_turn(conn: Connection, key: ConversationKey, turn: ConversationTurn) -> None:
    """Add a turn to a conversation, which begins with it if there is none; drop what is beyond the limits.

    In a transaction.
    """
    cursor = await conn.execute(
        "insert into work.conversation (workspace_id, principal, name) values (%s, %s, %s)"
        " on conflict (workspace_id, principal, name) do update set used_at = now() returning conversation_key",
        (key.workspace_id, key.principal, key.name),
    )
    row = await cursor.fetchone()
    if row is None:
        message = "an upsert always returns its row"
        raise RuntimeError(message)
    await conn.execute(
        "insert into work.conversation_turn (conversation_key, question, answer) values (%s, %s, %s)",
        (row[0], turn.question, turn.answer),
    )
    await conn.execute(
        "delete from work.conversation_turn where conversation_key = %(key)s and number <= (select number from"
        " work.conversation_turn where conversation_key = %(key)s order by number desc offset %(most)s limit 1)",
        {"key": row[0], "most": MOST_TURNS},
    )
    await conn.execute(
        "delete from work.conversation where conversation_key in (select conversation_key from work.conversation"
        " where workspace_id = %s and principal = %s order by used_at desc, conversation_key desc offset %s)",
        (key.workspace_id, key.principal, MOST_OF_ONE),
    )


async def moment(conn: Connection) -> datetime:
    """Return the time of the database."""
    row = await (await conn.execute("select clock_timestamp()")).fetchone()
    if row is None:
        message = "a clock always answers"
        raise RuntimeError(message)
    found: datetime = row[0]
    return found


async def hold_owners(conn: Connection, key: ConversationKey, since: datetime) -> bool:
    """Hold the workspace and the principal of a conversation; return whether both have been there since a time.

    In a transaction, until whose end neither can be deleted. A principal that was deleted and one that got its name are
    not the same.
    """
    cursor = await conn.execute(
        "select from mirror.workspace where workspace_id = %s for key share", (key.workspace_id,)
    )
    if await cursor.fetchone() is None:
        return False
    if not key.principal:
        return True
    cursor = await conn.execute(
        "select from work.principal where name = %s and created_at <= %s for key share", (key.principal, since)
    )
    return await cursor.fetchone() is not None


async def erased_since(conn: Connection, workspace_id: str, since: datetime) -> bool:
    """Return whether something was erased from a workspace since a time, or is about to be.

    Erasures are jobs of the kind ``erase``. What was read before one may have what it erased.
    """
    cursor = await conn.execute(
        "select exists (select from work.job where workspace_id = %s and kind = 'erase'"
        " and (state in ('queued', 'running') or updated_at >= %s))",
        (workspace_id, since),
    )
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def forget_unused(conn: Connection, age: timedelta) -> int:
    """Delete conversations that were not used for ``age``; return how many."""
    cursor = await conn.execute("delete from work.conversation where used_at < now() - %s", (age,))
    return cursor.rowcount
