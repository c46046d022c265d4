"""Counts of rows for metrics; each is one statement over an index or a small table."""

from dataclasses import dataclass, field

from memotree_storage.postgres.database import Connection


@dataclass(frozen=True, slots=True)
class Figures:
    """What the rows say at one moment.

    Attributes:
        open_sessions: Sessions that are open.
        jobs: Jobs by kind and state.
        outbox: Rows that an index has not applied, of every index.
    """

    open_sessions: int = 0
    jobs: dict[tuple[str, str], int] = field(default_factory=dict)
    outbox: int = 0


async def read_figures(conn: Connection) -> Figures:
    """Count."""
    cursor = await conn.execute(
        "select (select count(*) from work.session where state = 'open'),"
        " (select count(*) from mirror.outbox where not applied)"
    )
    row = await cursor.fetchone()
    jobs = await conn.execute("select kind, state, count(*) from work.job group by kind, state")
    return Figures(
        int(row[0]) if row else 0,
        {(kind, state): int(count) for kind, state, count in await jobs.fetchall()},
        int(row[1]) if row else 0,
    )
