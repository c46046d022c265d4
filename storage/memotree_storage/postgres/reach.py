"""Connects to PostgreSQL once, to learn why it cannot be used before anything else is started.

libpq gives no SQLSTATE for a connection that failed, so the cause is read from the server's message. A message in
another language is not recognised; it counts as final and is told as it is.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import psycopg
import structlog
from psycopg.conninfo import conninfo_to_dict
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_fixed

from memotree_storage.errors import FailedPreconditionError, UnavailableError

ATTEMPT_SECONDS: Final = 2.0
"""How long one attempt to connect may take."""

_PAUSE_SECONDS: Final = 0.25
_NEEDED_ENCODING: Final = "UTF8"
_log = structlog.get_logger(__name__)


class DatabaseUnavailableError(UnavailableError):
    """PostgreSQL does not answer."""

    reason = "DATABASE_UNAVAILABLE"

    def __init__(self, message: str, patience: timedelta = timedelta()) -> None:
        super().__init__(message)
        self.patience = patience
        """How long a start waits for the cause to pass on its own."""


class DatabaseRefusedError(FailedPreconditionError):
    """PostgreSQL refuses the connection, and will refuse it again: the URL or the database needs a change."""

    reason = "DATABASE_REFUSED"


class DatabaseEncodingError(FailedPreconditionError):
    """The database does not store text as UTF-8."""

    reason = "DATABASE_ENCODING"

    def __init__(self, database: str, encoding: str) -> None:
        super().__init__(
            f"The database {database} stores text as {encoding}, and MemoTree needs {_NEEDED_ENCODING}. Create another "
            f"one (createdb --template=template0 --encoding={_NEEDED_ENCODING} --locale=C.UTF-8 NAME) and name it in "
            "MEMOTREE_POSTGRES_URL."
        )


@dataclass(frozen=True, slots=True)
class _Cause:
    """A cause that a message of libpq or of the server shows.

    Attributes:
        marks: Texts of which one is in the message.
        advice: What to do.
        patience: How long the cause may pass on its own.
    """

    marks: tuple[str, ...]
    advice: str
    patience: timedelta = timedelta()


_CAUSES: Final = (
    _Cause(
        ("starting up", "not yet accepting connections", "in recovery mode", "shutting down"),
        "Start MemoTree again when it is ready.",
        timedelta(seconds=60),
    ),
    _Cause(
        ("too many clients", "connection slots are reserved", "too many connections for"),
        "Close connections of others, or raise max_connections there.",
        timedelta(seconds=10),
    ),
    _Cause(("timeout expired",), "Check host and port in MEMOTREE_POSTGRES_URL.", timedelta(seconds=10)),
    _Cause(
        ("Connection refused", "No such file or directory", "failed to resolve host", "unreachable"),
        "Check host and port in MEMOTREE_POSTGRES_URL, and whether PostgreSQL runs there.",
        timedelta(seconds=1),
    ),
    _Cause(("password", "no pg_hba.conf entry", "role "), "Correct user and password in MEMOTREE_POSTGRES_URL."),
    _Cause(("database ",), "Create that database, or correct its name in MEMOTREE_POSTGRES_URL."),
)
"""The first one that matches counts."""

_UNKNOWN: Final = _Cause((), "Correct MEMOTREE_POSTGRES_URL, or the configuration of PostgreSQL.")


@dataclass(frozen=True, slots=True)
class Reached:
    """What a database that answers says about itself."""

    version: str
    encoding: str


async def reach(conninfo: str, limit: float = ATTEMPT_SECONDS, **options: Any) -> Reached:
    """Connect once.

    Args:
        conninfo: The URL or connection string.
        limit: Seconds for this attempt.
        options: Further parameters of the connection.

    Raises:
        DatabaseUnavailableError: PostgreSQL does not answer, or not yet.
        DatabaseRefusedError: It refuses the connection.
    """
    try:
        async with asyncio.timeout(limit):
            conn = await psycopg.AsyncConnection.connect(conninfo, autocommit=True, **options)
        async with conn:
            found = conn.pgconn.parameter_status
            return Reached((found(b"server_version") or b"").decode(), (found(b"server_encoding") or b"").decode())
    except TimeoutError:
        raise _error(conninfo, f"timeout expired after {limit:g} seconds") from None
    except psycopg.ProgrammingError:  # its message can repeat a part of the URL, and so of the password
        raise DatabaseRefusedError(
            "MEMOTREE_POSTGRES_URL cannot be read; write it like postgresql://user:password@host:5432/database, with "
            "special characters percent-encoded."
        ) from None
    except psycopg.Error as error:
        raise _error(conninfo, str(error)) from None


async def wait_until_usable(conninfo: str, log_wait: Callable[[str], None] | None = None) -> None:
    """Connect, and try again for a while if the cause can pass on its own: a server that starts, above all.

    Args:
        conninfo: The URL or connection string.
        log_wait: Called once for each cause that is waited for; by default it is logged.

    Raises:
        DatabaseUnavailableError: PostgreSQL does not answer; the message has the last cause.
        DatabaseRefusedError: It refuses the connection.
        DatabaseEncodingError: The database is not UTF-8.
    """
    tell = log_wait or _log_wait
    told: set[str] = set()

    def before_sleep(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if str(error) not in told:
            told.add(str(error))
            tell(str(error))

    retrying = AsyncRetrying(
        retry=retry_if_exception_type(DatabaseUnavailableError),
        stop=_out_of_patience,
        wait=wait_fixed(_PAUSE_SECONDS),
        before_sleep=before_sleep,
        reraise=True,
    )
    reached: Reached = await retrying(reach, conninfo)
    if reached.encoding != _NEEDED_ENCODING:
        raise DatabaseEncodingError(_place(conninfo)[1], reached.encoding)


def _out_of_patience(state: RetryCallState) -> bool:
    error = state.outcome.exception() if state.outcome else None
    patience = error.patience.total_seconds() if isinstance(error, DatabaseUnavailableError) else 0
    return (state.seconds_since_start or 0) >= patience


def _log_wait(why: str) -> None:
    _log.warning("waiting for PostgreSQL", why=why)


def _error(conninfo: str, message: str) -> DatabaseUnavailableError | DatabaseRefusedError:
    """The error for a message of libpq: what to do, and whether it can pass on its own."""
    cause = next((each for each in _CAUSES if any(mark in message for mark in each.marks)), _UNKNOWN)
    host, _ = _place(conninfo)
    sentence = f"PostgreSQL at {host} cannot be used: {_plain(message)}. {cause.advice}"
    return DatabaseUnavailableError(sentence, cause.patience) if cause.patience else DatabaseRefusedError(sentence)


def _plain(message: str) -> str:
    """The cause in a message, in one line: without the attempts and addresses around it."""
    line = message.strip().splitlines()[-1 if "FATAL:" in message.strip().splitlines()[-1] else 0]
    for before in ("FATAL:", " failed:"):
        line = line.rpartition(before)[2]
    return line.strip().rstrip(".")


def _place(conninfo: str) -> tuple[str, str]:
    """Host with port, and the name of the database. Never the password."""
    known = conninfo_to_dict(conninfo)
    host, port = known.get("host") or known.get("hostaddr") or "the local socket", known.get("port") or 5432
    return f"{host}:{port}", str(known.get("dbname") or known.get("user") or "")
