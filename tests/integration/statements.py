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
