"""The pool prefers the connection that was used last."""

from memotree_storage.postgres.database import Database


async def test_consecutive_calls_share_one_connection(database_url: str) -> None:
    database = Database(database_url, min_size=3)
    await database.open()
    try:
        used = set()
        for _ in range(6):
            async with database.connection() as conn:
                row = await (await conn.execute("select pg_backend_pid()")).fetchone()
                used.add(row and row[0])
        assert len(used) == 1
    finally:
        await database.close()
