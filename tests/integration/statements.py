"""Counts the statements that are sent to PostgreSQL."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest


@contextmanager
def recorded() -> Iterator[list[str]]:
    """The statements that any connection sends while the block runs, without BEGIN and COMMIT."""
    sent: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for name in ("execute", "executemany"):
            run = getattr(psycopg.AsyncCursor, name)

            async def recording(self: Any, query: Any, *args: Any, run: Any = run, **fields: Any) -> Any:
                sent.append(str(query))
                return await run(self, query, *args, **fields)

            patch.setattr(psycopg.AsyncCursor, name, recording)
        yield sent
