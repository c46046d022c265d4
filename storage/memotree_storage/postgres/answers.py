"""Answers of models, keyed by a hash of the request, so that no request is sent, or paid for, twice."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from memotree_storage.postgres.database import Connection

UNUSED: Final = timedelta(days=90)
"""An answer that was not used for this long is deleted."""

_PAGE: Final = 1_000


async def find(conn: Connection, keys: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the stored values by key, and mark them as used now."""
    found: dict[bytes, bytes] = {}
    for start in range(0, len(keys), _PAGE):
        page = list(keys[start : start + _PAGE])
        # A precision of one day is enough and saves most lookups the write. If another transaction has locked the row,
        # it is marking it as used already, hence "skip locked".
        cursor = await conn.execute(
            "with used as (update work.model_answer set used_at = now() where key in (select key from work.model_answer"
            " where key = any(%(keys)s) and used_at < now() - interval '1 day' for update skip locked))"
            " select key, value from work.model_answer where key = any(%(keys)s)",
            {"keys": page},
        )
        found.update({bytes(key): bytes(value) async for key, value in cursor})
    return found


async def keep(conn: Connection, kind: str, model: str, values: Mapping[bytes, bytes]) -> None:
    """Store values; existing ones are replaced."""
    await conn.execute(
        "insert into work.model_answer (key, kind, model, value)"
        " select a.key, %s, %s, a.value from unnest(%s::bytea[], %s::bytea[]) as a (key, value) order by a.key"
        " on conflict (key) do update set value = excluded.value, used_at = now()",
        (kind, model, list(values), list(values.values())),
    )


async def forget_unused(conn: Connection, age: timedelta) -> int:
    """Delete answers that were not used for ``age``; return how many."""
    cursor = await conn.execute("delete from work.model_answer where used_at < now() - %s", (age,))
    return cursor.rowcount
