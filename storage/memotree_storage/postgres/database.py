"""The connection pool and the migrations.

There are two schemas. ``mirror`` is dropped and rebuilt from Git whenever its format changes; ``work`` is only migrated
forward.
"""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib import resources
from typing import Any, Final

import psycopg
import structlog
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from memotree_storage.errors import AbortedError, FailedPreconditionError, UnavailableError

Connection = AsyncConnection[TupleRow]
"""A connection of the pool; rows are tuples unless a cursor has another row factory."""

MIRROR_FORMAT: Final = 5
"""The format of the schema ``mirror``. If the database has another number, the schema is dropped and rebuilt."""

WORK_MIGRATIONS: Final = ("work_0001.sql", "work_0002.sql", "work_0003.sql", "work_0004.sql", "work_0005.sql")
"""The migrations of the schema ``work``, in order. A released migration never changes."""

_LOCK: Final = 7_301_976_321
_SESSION_SETTINGS: Final = (
    "-c TimeZone=UTC -c jit=off -c plan_cache_mode=force_generic_plan -c idle_in_transaction_session_timeout=600s"
)
_log = structlog.get_logger(__name__)


class DatabaseUnavailableError(UnavailableError):
    """PostgreSQL does not answer."""

    reason = "DATABASE_UNAVAILABLE"


class ServerBusyError(UnavailableError):
    """Every connection to PostgreSQL is in use."""

    reason = "SERVER_BUSY"


class TransactionRacedError(AbortedError):
    """PostgreSQL aborted this transaction because of a deadlock with another one."""

    reason = "TRANSACTION_RACED"


class DatabaseTooNewError(FailedPreconditionError):
    """A later version of MemoTree wrote the working state."""

    reason = "DATABASE_TOO_NEW"


class _LastInFirstOut(deque[Connection]):
    """A queue that returns the last item first."""

    def append(self, connection: Connection, /) -> None:
        """Add a connection at the end from which the next one is taken."""
        self.appendleft(connection)


class _HotFirstPool(AsyncConnectionPool[Connection]):
    """A pool that lends the most recently used connection.

    The server process of that connection is awake and has cached plans. Rotating through the connections, the pool's
    default, doubles the time of a call that comes alone. The pool has no setting for this, so a test checks that this
    override still works.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._pool = _LastInFirstOut(self._pool)


class Database:
    """A pool of connections to one PostgreSQL database that has both schemas.

    Args:
        conninfo: The connection string.
        min_size: Minimum number of connections.
        max_size: Maximum number of connections.
        statement_timeout: Maximum duration of a statement.
        patience: How long a call waits for a connection.
    """

    def __init__(
        self,
        conninfo: str,
        *,
        min_size: int = 2,
        max_size: int = 16,
        statement_timeout: timedelta = timedelta(seconds=30),
        patience: timedelta = timedelta(seconds=10),
    ) -> None:
        self._lent = 0
        milliseconds = int(statement_timeout.total_seconds() * 1000)
        self._pool: AsyncConnectionPool[Connection] = _HotFirstPool(
            conninfo,
            min_size=min_size,
            max_size=max_size,
            open=False,
            timeout=patience.total_seconds(),
            kwargs={
                "options": f"{_SESSION_SETTINGS} -c statement_timeout={milliseconds}",
                "autocommit": True,
                "prepare_threshold": 2,
            },
        )

    async def open(self) -> bool:
        """Connect and migrate.

        Returns:
            Whether the mirror was recreated and so is empty.

        Raises:
            DatabaseUnavailableError: PostgreSQL does not answer.
            DatabaseTooNewError: A later version of MemoTree wrote the working state.
        """
        try:
            await self._pool.open(wait=True, timeout=30)
        except psycopg.Error as error:
            raise DatabaseUnavailableError(
                "PostgreSQL does not answer. Check MEMOTREE_POSTGRES_URL, or the data folder of the embedded server."
            ) from error
        async with self.transaction() as conn:
            await conn.execute("select pg_advisory_xact_lock(%s)", (_LOCK,))
            await _migrate_work(conn)
            return await _renew_mirror(conn)

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.close()

    async def renew_broken(self) -> None:
        """After an outage of the server, replace the connections that it dropped, before a call gets one of them."""
        await self._pool.check()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection in autocommit mode, for reads.

        Raises:
            ServerBusyError: Other calls held all connections for too long.
            DatabaseUnavailableError: PostgreSQL does not answer.
            TransactionRacedError: PostgreSQL aborted this transaction to resolve a deadlock.
        """
        try:
            async with self._pool.connection() as conn:
                self._lent += 1
                try:
                    yield conn
                finally:
                    self._lent -= 1
        except PoolTimeout as error:
            raise self._no_connection(error) from error
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise _translated(error) from error

    def _no_connection(self, error: PoolTimeout) -> Exception:
        """The error for a pool timeout: if all connections are lent, PostgreSQL is not at fault."""
        if self._lent < self._pool.max_size:
            return _translated(error)
        return ServerBusyError(
            "The server is busy: other calls hold all its connections to PostgreSQL. Send the same call again in a "
            "moment, or give the server more of them (MEMOTREE_POSTGRES_POOL_MAX)."
        )

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection inside a transaction, which commits if the block ends without an exception."""
        async with self.connection() as conn, conn.transaction():
            yield conn

    @asynccontextmanager
    async def repeatable_read(self) -> AsyncIterator[Connection]:
        """A connection inside a read-only transaction in which all statements see the same snapshot."""
        async with self.transaction() as conn:
            await conn.execute("set transaction isolation level repeatable read, read only")
            yield conn


async def server_version(conn: Connection) -> str:
    """Return the version that PostgreSQL reports."""
    row = await (await conn.execute("show server_version")).fetchone()
    return str(row[0]) if row else ""


def _translated(error: psycopg.Error) -> Exception:
    """The domain error for a lost connection or a deadlock; an error of the query itself is returned unchanged."""
    if isinstance(error, psycopg.errors.QueryCanceled):
        return error
    if isinstance(error, (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)):
        return TransactionRacedError(
            "This call and another one waited for each other, and PostgreSQL ended this one. Send the same call again; "
            "with a request_id it takes effect only once."
        )
    return DatabaseUnavailableError(
        "PostgreSQL does not answer now; send the same call again. With a request_id it takes effect only once, even "
        "if PostgreSQL fell silent after it had."
    )


def _script(name: str) -> str:
    return (resources.files(__package__) / "migrations" / name).read_text(encoding="utf-8")


async def _run(conn: Connection, script: str) -> None:
    await conn.execute(script.encode())


async def _migrate_work(conn: Connection) -> None:
    found = await (await conn.execute("select to_regclass('work.setting') is not null")).fetchone()
    version = 0
    if found and found[0]:
        row = await (await conn.execute("select value from work.setting where name = 'format'")).fetchone()
        version = int(row[0]) if row else 0
    if version > len(WORK_MIGRATIONS):
        raise DatabaseTooNewError(
            f"The working state has format {version} and this version of MemoTree knows {len(WORK_MIGRATIONS)}. "
            "Start the newer version, or give this one its own data folder."
        )
    for step in WORK_MIGRATIONS[version:]:
        await _run(conn, _script(step))
    await put_setting(conn, "format", str(len(WORK_MIGRATIONS)))


async def _renew_mirror(conn: Connection) -> bool:
    there = await (await conn.execute("select to_regclass('mirror.workspace') is not null")).fetchone()
    row = await (await conn.execute("select value from work.setting where name = 'mirror_format'")).fetchone()
    if there and there[0] and row and int(row[0]) == MIRROR_FORMAT:
        return False
    if there and there[0]:
        _log.warning("mirror has another format; rebuilding it", found=row and row[0], wanted=MIRROR_FORMAT)
    await conn.execute("drop schema if exists mirror cascade")
    await _run(conn, _script("mirror.sql"))
    await put_setting(conn, "mirror_format", str(MIRROR_FORMAT))
    return True


async def put_setting(conn: Connection, name: str, value: str) -> None:
    """Store a value of the working state under a name."""
    await conn.execute(
        "insert into work.setting values (%s, %s) on conflict (name) do update set value = excluded.value",
        (name, value),
    )


async def get_setting(conn: Connection, name: str) -> str | None:
    """Return the value stored under a name; ``None`` if there is none."""
    row: tuple[Any, ...] | None = await (
        await conn.execute("select value from work.setting where name = %s", (name,))
    ).fetchone()
    return None if row is None else str(row[0])
