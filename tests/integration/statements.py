"""Counts the statements that are sent to PostgreSQL."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import psycopg
import pytest

_RECORDS: ContextVar[list[str] | None] = ContextVar("_RECORDS", default=None)


@contextmanager
def recorded() -> Iterator[list[str]]:
    """The statements that the block and the tasks that it starts send, without BEGIN and COMMIT.

    What the background sends meanwhile is not among them.
    """
    sent: list[str] = []
    token = _RECORDS.set(sent)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("execute", "executemany"):
            run = getattr(psycopg.AsyncCursor, name)

            async def recording(self: Any, query: Any, *args: Any, run: Any = run, **fields: Any) -> Any:
                if _RECORDS.get() is sent:
                    sent.append(str(query))
                return await run(self, query, *args, **fields)

            patch.setattr(psycopg.AsyncCursor, name, recording)
        try:
            yield sent
        finally:
            _RECORDS.reset(token)


async def rows_read(conn: psycopg.AsyncConnection[Any], table: str = "%") -> int:
    """The rows that PostgreSQL has read in this transaction: of a table, or of all."""
    cursor = await conn.execute(
        "select coalesce(sum(coalesce(idx_tup_fetch, 0) + seq_tup_read), 0) from pg_stat_xact_user_tables"
        " where relname like %s",
        (table,),
    )
    (row,) = await cursor.fetchall()
    return int(row[0])
