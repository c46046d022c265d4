"""One data folder per database: its id is noted in the database, and a lock there says that its server runs.

A server deletes the mirror of every workspace that has no repository in its data folder, and takes up all jobs. So a
second data folder on a database would lose both.
"""

import asyncio
import contextlib
import json
import secrets
import socket
from pathlib import Path
from typing import Any, Final

import psycopg
import structlog

from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.embedded.lock import DataFolderUnusableError
from memotree_storage.errors import FailedPreconditionError
from memotree_storage.postgres.database import AdvisoryLock, Connection, get_setting, put_setting

ID_FILE: Final = "folder-id"
"""The file of a data folder with the id that its database notes. It moves with the folder."""

_NOTE: Final = "data_folder"
_PATIENCE: Final = 5.0
"""Seconds in which PostgreSQL notices that a killed server is gone."""

_PAUSE: Final = 0.2
_ANSWER: Final = 1.0
"""Seconds in which a connection that is alive answers, and the end of another one is noticed."""

_ROUND: Final = 10.0
"""Seconds between two looks at the connection that holds the lock."""

_OPTIONS: Final = "-c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3"
_log = structlog.get_logger(__name__)


class DatabaseInUseError(FailedPreconditionError):
    """A server with another data folder uses the database, or has used it."""

    reason = "DATABASE_IN_USE"


class DatabaseOwnership:
    """The use of a database by one data folder, from `acquire` until `release` or the end of the process.

    Args:
        conninfo: The connection string.
        folder: The data folder; its process holds the folder's lock.
    """

    def __init__(self, conninfo: str, folder: Path) -> None:
        self._conninfo = conninfo
        self._folder = folder
        self._folder_id = ""
        self._conn: Connection | None = None
        self._holding: asyncio.Task[None] | None = None
        self._taking = asyncio.Lock()

    async def acquire(self) -> None:
        """Take the lock in the database, and compare the folder with the one that the database notes.

        Raises:
            DatabaseInUseError: The database belongs to another data folder.
            DataFolderUnusableError: The id of the folder cannot be read or written.
        """
        folder_id = await in_store_thread(_folder_id, self._folder)
        conn = await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True, options=_OPTIONS)
        try:
            noted = await _noted(conn)
            is_of_another = noted is not None and noted["id"] != folder_id
            is_free = await _lock(conn, 0 if is_of_another else _PATIENCE)
            # Once more with the lock: another server may have noted its folder meanwhile.
            self._check(folder_id, await _noted(conn), is_free=is_free)
        except BaseException:
            await conn.close()
            raise
        self._conn = conn
        self._folder_id = folder_id
        self._holding = asyncio.create_task(self._hold())
        await self.note()

    async def note(self) -> None:
        """Note the data folder in the database, if that has its tables already."""
        facts = {"id": self._folder_id, "folder": str(self._folder), "host": socket.gethostname()}
        if self._conn is not None and await _has_settings(self._conn):
            await put_setting(self._conn, _NOTE, json.dumps(facts))

    async def release(self) -> None:
        """Release the lock; safe to repeat. The database stays noted as this folder's."""
        if self._holding is not None:
            self._holding.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._holding
        conn, self._conn, self._holding = self._conn, None, None
        if conn is not None:
            await conn.close()

    def _check(self, folder_id: str, noted: dict[str, Any] | None, *, is_free: bool) -> None:
        if noted is not None and noted["id"] != folder_id:
            raise self._of_another(noted, runs=not is_free)
        if not is_free:
            raise DatabaseInUseError(
                "Another server uses this database. Stop it, or give this server another database "
                "(MEMOTREE_POSTGRES_URL)."
            )

    def _of_another(self, noted: dict[str, Any], *, runs: bool) -> DatabaseInUseError:
        host = "" if noted["host"] == socket.gethostname() else f" on {noted['host']}"
        way_out = (
            "Stop that server"
            if runs
            else "If that folder is gone for good, make this one its owner with "
            f"`echo {noted['id']} > {self._folder / ID_FILE}`"
        )
        return DatabaseInUseError(
            f"This database belongs to the data folder {noted['folder']}{host}, not to {self._folder}; two folders "
            f"would delete each other's rows. Give this server another database (MEMOTREE_POSTGRES_URL). {way_out}."
        )

    async def hold_again(self) -> None:
        """Take the lock again if an outage of PostgreSQL ended the connection that had it.

        Nothing is taken after `release`, and whoever leaves while it is taken leaves no connection behind that has it.

        Raises:
            DatabaseInUseError: Another server, with a copy of this folder, has it now.
            psycopg.Error: PostgreSQL does not answer.
        """
        async with self._taking:
            if self._conn is None:
                return
            if not self._conn.closed:
                with contextlib.suppress(psycopg.Error, TimeoutError):
                    async with asyncio.timeout(_ANSWER):  # a network that drops packets answers nothing for a minute
                        await self._conn.execute("select 1")
                    return
                await self._conn.close()
            conn = await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True, options=_OPTIONS)
            is_kept = False
            try:
                if not await _lock(conn, _ANSWER):
                    raise _taken()
                is_kept = self._conn is not None  # or it was released meanwhile
            finally:
                if not is_kept:
                    await conn.close()
            if is_kept:
                self._conn = conn

    async def _hold(self) -> None:
        while True:
            await asyncio.sleep(_ROUND)
            try:
                await self.hold_again()
            except DatabaseInUseError as error:
                _log.error(error.message)
            except psycopg.Error:
                continue


def _taken() -> DatabaseInUseError:
    return DatabaseInUseError(
        "Another server has taken this database during an outage, so this one changes and reads nothing in it. "
        "Stop one of the two. If there is no other, PostgreSQL has not noticed yet that the earlier connection of this "
        "one is gone; send the call again in a minute."
    )


async def _lock(conn: Connection, patience: float) -> bool:
    """Take the lock; ``False`` if another server holds it for that many seconds."""
    deadline = asyncio.get_running_loop().time() + patience
    while True:
        row = await (
            await conn.execute("select pg_try_advisory_lock(%s)", (AdvisoryLock.DATA_FOLDER.value,))
        ).fetchone()
        if row is not None and row[0]:
            return True
        if asyncio.get_running_loop().time() >= deadline:
            return False
        await asyncio.sleep(_PAUSE)


async def _noted(conn: Connection) -> dict[str, Any] | None:
    """The data folder that the database notes; ``None`` for a new database."""
    value = await get_setting(conn, _NOTE) if await _has_settings(conn) else None
    found: dict[str, Any] | None = None if value is None else json.loads(value)
    return found


async def _has_settings(conn: Connection) -> bool:
    row = await (await conn.execute("select to_regclass('work.setting') is not null")).fetchone()
    return row is not None and bool(row[0])


def _folder_id(folder: Path) -> str:
    """The id of a data folder; a new one if it has none."""
    path = folder / ID_FILE
    try:
        with contextlib.suppress(FileNotFoundError):
            if found := path.read_text(encoding="ascii", errors="replace").strip():
                return found
        made = secrets.token_hex(8)
        path.write_text(f"{made}\n", encoding="ascii")
    except OSError as error:
        raise DataFolderUnusableError(folder, error) from error
    return made
