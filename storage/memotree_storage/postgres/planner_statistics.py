"""The planner's statistics of the mirror: renewed soon after a table has grown by much.

PostgreSQL does so by itself, up to a minute later by default. Until then, plans are those of a small table.
"""

from typing import Final

from psycopg import sql

from memotree_storage.postgres.database import Database

_GROWTH: Final = 500
"""So many changed rows of a table are worth new statistics, and a fifth of its rows, whichever is more."""

_GROWN: Final = """
  select s.relname from pg_stat_user_tables s join pg_class c on c.oid = s.relid
   where s.schemaname = 'mirror' and s.n_mod_since_analyze > greatest(%(growth)s, 0.2 * c.reltuples)
   order by s.relname"""


async def renew_statistics(database: Database) -> list[str]:
    """Analyze the tables of the mirror that have changed much since they were analyzed; return their names.

    PostgreSQL reads a sample of at most 30,000 rows of each table, and no reader or writer waits for it.

    Raises:
        DatabaseUnavailableError: PostgreSQL does not answer.
    """
    async with database.connection() as conn:
        cursor = await conn.execute(_GROWN, {"growth": _GROWTH})
        grown = [name for (name,) in await cursor.fetchall()]
        for name in grown:
            await conn.execute(sql.SQL("analyze mirror.{}").format(sql.Identifier(name)))
    return grown
