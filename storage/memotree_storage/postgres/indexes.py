"""Which indexes there are, and which of them answers: one row of the working state, changed in one transaction.

An index belongs to one embedding model. Normally there is one. While an index for another model is made beside it,
that one is ``next``; once it answers, the earlier one is ``retired`` until its vectors are deleted.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Final

from memotree_storage.postgres.database import Connection, get_setting, put_setting

_NAME: Final = "indexes"
_EARLIER_NAME: Final = "embedding_model"
"""What earlier versions noted: the model and its dimensions."""

_ROWS_AT_ONCE: Final = 5_000


@dataclass(frozen=True, slots=True)
class IndexRecord:
    """An index.

    Attributes:
        number: Its number, which its rows in the database carry; never used again.
        model: The name of the embedding model.
        dimensions: The length of its vectors.
    """

    number: int
    model: str
    dimensions: int

    def is_alike(self, other: "IndexRecord") -> bool:
        """Whether both have the same model with vectors of the same length, and so their points in the same place."""
        return (self.model, self.dimensions) == (other.model, other.dimensions)


@dataclass(frozen=True, slots=True)
class IndexRecords:
    """All indexes.

    Attributes:
        current: The one that answers.
        next: The one that is being made.
        retired: Those that are to be deleted.
        last_number: The highest number that was given to an index.
    """

    current: IndexRecord
    next: IndexRecord | None = None
    retired: tuple[IndexRecord, ...] = ()
    last_number: int = 1

    @property
    def in_use(self) -> tuple[IndexRecord, ...]:
        """Those that have to hear of every change: the current one, and the next one if there is one."""
        return (self.current, *filter(None, [self.next]))

    def with_next(self, model: str, dimensions: int) -> "IndexRecords":
        """Return them with another one that is being made, under a number that no index has or had."""
        number = self.last_number + 1
        return replace(self, next=IndexRecord(number, model, dimensions), last_number=number)

    def switched(self) -> "IndexRecords":
        """Return them with the next one as the one that answers, and the earlier one to be deleted."""
        assert self.next is not None  # noqa: S101 - the caller made it
        return replace(self, current=self.next, next=None, retired=(*self.retired, self.current))

    def abandoned(self) -> "IndexRecords":
        """Return them with the next one, if there is one, to be deleted."""
        return replace(self, next=None, retired=(*self.retired, *filter(None, [self.next])))


async def read(conn: Connection) -> IndexRecords | None:
    """Return the indexes; ``None`` in a new database."""
    text = await get_setting(conn, _NAME)
    if text is not None:
        found = json.loads(text)
        return IndexRecords(
            IndexRecord(**found["current"]),
            IndexRecord(**found["next"]) if found["next"] else None,
            tuple(IndexRecord(**each) for each in found["retired"]),
            found["last_number"],
        )
    earlier = await get_setting(conn, _EARLIER_NAME)
    if earlier is None:
        return None
    model, _, dimensions = earlier.rpartition(" ")
    return IndexRecords(IndexRecord(1, model, int(dimensions)))


async def read_begun(conn: Connection) -> IndexRecords:
    """Return the indexes of a store that was opened: each start notes them."""
    found = await read(conn)
    assert found is not None  # noqa: S101 - see above
    return found


async def write(conn: Connection, records: IndexRecords, *, also_fed: Iterable[IndexRecord] = ()) -> None:
    """Note the indexes, and which of them the outbox feeds: the current and the next one, and others that are named."""
    await put_setting(conn, _NAME, json.dumps(asdict(records)))
    fed = {one.number: one is records.current for one in (*also_fed, *reversed(records.in_use))}
    await conn.execute("delete from mirror.fed_index where number <> all(%s)", (list(fed),))
    await conn.execute(
        "insert into mirror.fed_index select * from unnest(%s::integer[], %s::boolean[])"
        " on conflict (number) do update set answers = excluded.answers",
        (list(fed), list(fed.values())),
    )


async def leave_counting(conn: Connection, workspace_id: str | None = None) -> None:
    """Let the index that answers count what indexes without a feed have not counted: each term is counted once."""
    await conn.execute(
        "update mirror.outbox o set index_number = i.number, applied = false from mirror.fed_index i"
        " where i.answers and not o.changed and not o.counted and (%(workspace)s::text is null or"
        " o.workspace_id = %(workspace)s) and o.index_number not in (select number from mirror.fed_index)",
        {"workspace": workspace_id},
    )


async def delete_unfed(conn: Connection, workspace_id: str | None = None) -> None:
    """Delete the rows of the outbox that belong to indexes without a feed; see `leave_counting`."""
    await conn.execute(
        "delete from mirror.outbox where outbox_id in (select outbox_id from mirror.outbox"
        " where (%(workspace)s::text is null or workspace_id = %(workspace)s)"
        " and index_number not in (select number from mirror.fed_index) order by outbox_id for update)",
        {"workspace": workspace_id},
    )


async def delete_leaf_features(conn: Connection, number: int, after: int) -> int | None:
    """Delete some leaf features of an index, of versions after an id; return the last id, ``None`` if none is left."""
    cursor = await conn.execute(
        "with page as (select version_id from mirror.passage where index_number = %(number)s"
        " and version_id > %(after)s order by version_id limit %(limit)s),"
        " gone as (delete from mirror.passage p using page"
        " where p.version_id = page.version_id and p.index_number = %(number)s)"
        " select max(version_id) from page",
        {"number": number, "after": after, "limit": _ROWS_AT_ONCE},
    )
    row = await cursor.fetchone()
    return None if row is None or row[0] is None else int(row[0])
