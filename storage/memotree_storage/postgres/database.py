"""The connection pool and the migrations.

There are two schemas. ``mirror`` is dropped and rebuilt from Git whenever its format changes; ``work`` is only migrated
forward.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from importlib import resources
from typing import Any, Final

import psycopg
import structlog
from psycopg import AsyncConnection, AsyncCursor
from psycopg.pq import TransactionStatus
from psycopg.rows import Row, TupleRow
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from memotree_storage.errors import AbortedError, FailedPreconditionError, UnavailableError
from memotree_storage.ports import Watch, unwatched
from memotree_storage.postgres.reach import (
    DatabaseRefusedError,
    DatabaseUnavailableError,
    Reached,
    reach,
    wait_until_usable,
)

Connection = AsyncConnection[TupleRow]
"""A connection of the pool; rows are tuples unless a cursor has another row factory."""

MIRROR_FORMAT: Final = 6
"""The format of the schema ``mirror``, to be raised when the meaning of a row changes and its columns do not.

If the database has another number, or a schema of another definition, the schema is dropped and rebuilt.
"""

WORK_MIGRATIONS: Final = (
    "work_0001.sql",
    "work_0002.sql",
    "work_0003.sql",
    "work_0004.sql",
    "work_0005.sql",
    "work_0006.sql",
    "work_0007.sql",
    "work_0008.sql",
    "work_0009.sql",
    "work_0010.sql",
    "work_0011.sql",
    "work_0012.sql",
    "work_0013.sql",
    "work_0014.sql",
    "work_0015.sql",
    "work_0016.sql",
)
"""The migrations of the schema ``work``, in order. A released migration never changes."""

_SESSION_SETTINGS: Final = (
    "-c TimeZone=UTC -c jit=off -c random_page_cost=1.1 -c plan_cache_mode=force_generic_plan"
    " -c idle_in_transaction_session_timeout=600s"
)
"""Pages that are read are in memory as a rule. With the default of 4 for a random one, a table of a few pages is read
whole for each node of a page of a tree."""

_PROMPT: Final = 0.5
"""Seconds without a connection after which a call asks whether PostgreSQL answers at all."""

_PROBE: Final = 1.0
"""Seconds that PostgreSQL has to accept the connection that asks this."""

_OF_THE_QUERY: Final = {"22", "23", "42", "54"}
"""Classes of SQLSTATE that blame the statement or its values, although some of them are operational errors."""

_NO_RESOURCES: Final = "53"
_LOST: Final = {"", "08", "57"}
"""Classes of SQLSTATE of a lost or refused connection; an error without any comes from the network."""

_log = structlog.get_logger(__name__)


class AdvisoryLock(IntEnum):
    """The keys of all advisory locks in the database."""

    MIGRATION = 7_301_976_321
    JOB_CLAIM = 7_301_976_322
    DATA_FOLDER = 7_301_976_323


class ServerBusyError(UnavailableError):
    """Every connection to PostgreSQL is in use."""

    reason = "SERVER_BUSY"


class TransactionRacedError(AbortedError):
    """PostgreSQL aborted this transaction because of a deadlock with another one."""

    reason = "TRANSACTION_RACED"


class DatabaseFullError(UnavailableError):
    """PostgreSQL has no disk space or memory left for this call."""

    reason = "DATABASE_FULL"


class DatabaseFailedError(UnavailableError):
    """PostgreSQL could not carry out a statement, for a reason of its own: a failing disk, a lock, a missing file."""

    reason = "DATABASE_FAILED"


class DatabaseTooNewError(FailedPreconditionError):
    """A later version of MemoTree wrote the working state."""

    reason = "DATABASE_TOO_NEW"


@dataclass(frozen=True, slots=True)
class PoolUse:
    """How the connections are used.

    Attributes:
        lent: Connections that calls have now.
        open: Connections that are open.
        most: The most that may be open.
        waiting: Calls that wait for one now.
        waited: How many calls have waited for one so far.
        waited_seconds: How long they have waited, together.
    """

    lent: int
    open: int
    most: int
    waiting: int
    waited: int
    waited_seconds: float


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
        patience: How long a call waits for a connection while PostgreSQL answers. If it does not answer, the call fails
            as soon as that is known.
        after_outage: Awaited before the first use after an outage; an error that it raises ends the call.
        watch: Surrounds each use of a connection, with the wait for it.
    """

    def __init__(
        self,
        conninfo: str,
        *,
        min_size: int = 2,
        max_size: int = 16,
        statement_timeout: timedelta = timedelta(seconds=30),
        patience: timedelta = timedelta(seconds=10),
        after_outage: Callable[[], Awaitable[None]] | None = None,
        watch: Watch = unwatched,
    ) -> None:
        self._conninfo = conninfo
        self._after_outage = after_outage
        self._watch = watch
        self._patience = patience.total_seconds()
        self._lent = 0
        self._doubted = False  # whether the last use of a connection failed, so that the next call asks first
        self._silent = False  # whether PostgreSQL did not answer when it was last asked
        self._asking: asyncio.Task[Reached] | None = None
        milliseconds = int(statement_timeout.total_seconds() * 1000)
        self._pool: AsyncConnectionPool[Connection] = _HotFirstPool(
            conninfo,
            min_size=min_size,
            max_size=max_size,
            open=False,
            # After this the pool gives a failed connection up, and the next call makes it try again at once. With the
            # default, its pauses grow to minutes during an outage, and calls would have to wait for their end.
            reconnect_timeout=_PROBE,
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
            DatabaseRefusedError: It refuses the connection, or the tables.
            DatabaseEncodingError: The database is not UTF-8.
            DatabaseTooNewError: A later version of MemoTree wrote the working state.
        """
        await wait_until_usable(self._conninfo)
        try:
            await self._pool.open(wait=True, timeout=self._patience)
        except psycopg.Error as error:
            raise DatabaseUnavailableError(
                "PostgreSQL accepted one connection and then no more. Check its limits, max_connections above all."
            ) from error
        try:
            async with self.transaction() as conn:
                await conn.execute("select pg_advisory_xact_lock(%s)", (AdvisoryLock.MIGRATION.value,))
                await _migrate_work(conn)
                return await _renew_mirror(conn)
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction) as error:
            raise DatabaseRefusedError(
                f"PostgreSQL does not let this user create its tables: {error.diag.message_primary}. Make the user of "
                "MEMOTREE_POSTGRES_URL the owner of its database."
            ) from error

    async def close(self) -> None:
        """Close every connection."""
        if self._asking is not None:
            self._asking.cancel()
        await self._pool.close()

    @property
    def pool_use(self) -> PoolUse:
        """How the connections are used now."""
        stats = self._pool.get_stats()
        return PoolUse(
            lent=self._lent,
            open=stats.get("pool_size", 0),
            most=self._pool.max_size,
            waiting=stats.get("requests_waiting", 0),
            waited=stats.get("requests_queued", 0),
            waited_seconds=stats.get("requests_wait_ms", 0) / 1000,
        )

    async def renew_broken(self) -> None:
        """After an outage of the server, replace the connections that it dropped, before a call gets one of them."""
        await self._pool.check()

    async def answers(self) -> str:
        """Ask PostgreSQL over a connection of its own, also if all others are lent; return its version.

        Raises:
            DatabaseUnavailableError: PostgreSQL does not answer within a second.
        """
        if self._asking is None:  # all that want to know wait for one answer
            self._asking = asyncio.create_task(reach(self._conninfo, _PROBE))
            self._asking.add_done_callback(self._answered)
        try:
            return (await asyncio.shield(self._asking)).version
        except (DatabaseUnavailableError, DatabaseRefusedError):
            # the cause can name host and user
            raise DatabaseUnavailableError("PostgreSQL does not answer; the server's log has the cause.") from None

    def _answered(self, asking: asyncio.Task[Reached]) -> None:
        self._asking = None
        error = None if asking.cancelled() else asking.exception()
        if error is not None and not self._silent:
            _log.warning("PostgreSQL does not answer", why=str(error))
        elif error is None and self._silent:
            _log.info("PostgreSQL answers again")
        self._silent = error is not None
        self._doubted = self._doubted or self._silent

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection in autocommit mode, for reads.

        Raises:
            ServerBusyError: Other calls held all connections for too long.
            DatabaseUnavailableError: PostgreSQL does not answer.
            TransactionRacedError: PostgreSQL aborted this transaction to resolve a deadlock.
        """
        with self._watch("postgresql"):
            conn = await self._lend()
            self._lent += 1
            try:
                try:
                    yield conn
                except BaseException as error:
                    if not _is_idle(conn):
                        await conn.__aexit__(type(error), error, error.__traceback__)
                    raise
                if not _is_idle(conn):
                    await conn.__aexit__(None, None, None)
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                self._doubted = self._doubted or conn.broken
                raise _translated(error) from error
            finally:
                self._lent -= 1
                await self._pool.putconn(conn)

    async def _lend(self) -> Connection:
        """A connection of the pool; after a failure PostgreSQL is asked first, so that calls in an outage end soon."""
        if self._doubted:
            await self.answers()
            if self._after_outage is not None:
                try:
                    await self._after_outage()
                except psycopg.Error as error:
                    raise _silent() from error
            self._doubted = False
            await self.renew_broken()
        try:
            with suppress(PoolTimeout):
                return await self._pool.getconn(timeout=min(_PROMPT, self._patience))
            if self._lent < self._pool.max_size:
                await self.answers()
            return await self._pool.getconn(timeout=self._patience)
        except PoolTimeout as error:
            raise self._no_connection() from error

    def _no_connection(self) -> UnavailableError:
        """The error for a pool timeout: if all connections are lent, PostgreSQL is not at fault."""
        if self._lent < self._pool.max_size:
            return _silent()
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
        async with self.connection() as conn:  # which ends an open transaction
            await conn.execute("begin isolation level repeatable read, read only")
            yield conn


def _is_idle(conn: Connection) -> bool:
    """Whether no transaction is open; then there is nothing to end, which psycopg takes a while to find out."""
    return conn.pgconn.transaction_status == TransactionStatus.IDLE


def _translated(error: psycopg.Error) -> Exception:
    """The domain error for a lost connection, a full disk, a failing one or a deadlock.

    An error of the query itself is returned unchanged: sending the call again would not help.
    """
    kind = (error.sqlstate or "")[:2]
    if isinstance(error, psycopg.errors.QueryCanceled) or kind in _OF_THE_QUERY:
        return error
    if kind == _NO_RESOURCES and not isinstance(error, psycopg.errors.TooManyConnections):
        _log.error("PostgreSQL has no space left", why=error.diag.message_primary)
        return DatabaseFullError(
            "PostgreSQL has no disk space or memory left, so nothing was changed. Make room, then send the call again."
        )
    if isinstance(error, (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)):
        return TransactionRacedError(
            "This call and another one waited for each other, and PostgreSQL ended this one. Send the same call again; "
            "with a request_id it takes effect only once."
        )
    if kind not in _LOST and kind != _NO_RESOURCES:
        _log.error("PostgreSQL could not carry out a statement", why=error.diag.message_primary, state=error.sqlstate)
        return DatabaseFailedError(
            f"PostgreSQL could not carry this out (SQLSTATE {error.sqlstate}); the server's log has the cause. Mend "
            "that, then send the same call again; with a request_id it takes effect only once."
        )
    return _silent()


def _silent() -> DatabaseUnavailableError:
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
    wanted = {"mirror_format": str(MIRROR_FORMAT), "mirror_definition": definition_digest(_script("mirror.sql"))}
    cursor = await conn.execute("select name, value from work.setting where name = any(%s)", (list(wanted),))
    found = {str(row[0]): str(row[1]) for row in await cursor.fetchall()}
    if there and there[0]:
        if found == wanted:
            return False
        _log.warning("mirror has another format; rebuilding it", found=found, wanted=wanted)
    await conn.execute("drop schema if exists mirror cascade")
    await _run(conn, _script("mirror.sql"))
    for name, value in wanted.items():
        await put_setting(conn, name, value)
    return True


def definition_digest(script: str) -> str:
    """A digest of a definition in SQL, without its comments and blanks: 16 hexadecimal digits."""
    code = " ".join(" ".join(line.partition("--")[0] for line in script.splitlines()).split())
    return hashlib.sha256(code.encode()).hexdigest()[:16]


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


_FETCHED_AT_ONCE: Final = 200


async def fetched(cursor: AsyncCursor[Row]) -> list[Row]:
    """Return all rows of a result; other calls run between pieces of it, since building rows takes time."""
    rows = await cursor.fetchmany(_FETCHED_AT_ONCE)
    while len(rows) < cursor.rowcount:
        await asyncio.sleep(0)
        rows += await cursor.fetchmany(_FETCHED_AT_ONCE)
    return rows
