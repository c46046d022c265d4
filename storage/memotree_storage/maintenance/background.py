"""Background maintenance of a store: packs repositories, renews statistics, closes sessions, collects lines."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

import psycopg
import structlog

from memotree_storage.concurrency.cancellation import cancel_and_wait
from memotree_storage.concurrency.locks import StoreLocks
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import MemoTreeError
from memotree_storage.git.maintenance import PACK_LIMIT, MaintenanceReport, count_packs, maintain
from memotree_storage.git.workspaces import Repositories
from memotree_storage.maintenance.line_collection import collect_unreachable_lines
from memotree_storage.model.workspace import KEEP_PREFIX, WorkspaceNotFoundError
from memotree_storage.ports import IndexWriter
from memotree_storage.postgres import answers, conversations, projector, registry, requests, sessions
from memotree_storage.postgres.database import Database
from memotree_storage.postgres.planner_statistics import renew_statistics

_PERIOD: Final = 3600.0
_PAUSE: Final = 2.0
"""Seconds between two looks at how much the mirror has grown."""

_LOOSE_REFS: Final = 50
"""Above so many branches and tags with a file each, they are packed: every commit reads each of the files."""

_log = structlog.get_logger(__name__)


class BackgroundMaintenance:
    """Packs the refs and objects of a repository when they are many files, and tells the planner what has grown.

    Once an hour it closes what has expired.

    Args:
        database: The database.
        repositories: The repositories.
        indexes: Returns the indexes that have to hear of every change.
        retention: How long the result of a request id is kept.
        locks: The locks of the store.
    """

    def __init__(
        self,
        database: Database,
        repositories: Repositories,
        indexes: Callable[[], Sequence[IndexWriter]],
        retention: timedelta,
        locks: StoreLocks,
    ) -> None:
        self._database = database
        self._repositories = repositories
        self._indexes = indexes
        self._retention = retention
        self._locks = locks
        self._waiting: set[str] = set()
        self._wake = asyncio.Event()
        self._written = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._repacking: asyncio.Task[MaintenanceReport] | None = None
        self._ownerless: set[tuple[str, str]] = set()

    def start(self) -> None:
        """Start the background tasks."""
        self._tasks = [
            asyncio.create_task(self._repack(), name="memotree-repack"),
            asyncio.create_task(self._renew_statistics(), name="memotree-statistics"),
            asyncio.create_task(self._tidy_often(), name="memotree-tidy"),
        ]

    async def stop(self) -> None:
        """Stop the background tasks; wait for a repack that is running."""
        tasks, self._tasks = self._tasks, []
        await cancel_and_wait(tasks)
        if self._repacking is not None:
            await asyncio.wait([self._repacking])

    def notice(self, workspace_id: str) -> None:
        """Note that a workspace has a new commit or ref: its repository may need packing, and its rows be many."""
        self._waiting.add(workspace_id)
        self._wake.set()
        self._written.set()

    async def tidy(self) -> int:
        """Close expired sessions, delete what was not used for long, and collect unreachable lines.

        Unused are old request results, answers of models, and conversations.

        Returns:
            How many sessions were closed.
        """
        async with self._database.transaction() as conn:
            expired = await sessions.close_expired(conn)
            await requests.forget_old_requests(conn, self._retention)
            await answers.forget_unused(conn, answers.UNUSED)
            await conversations.forget_unused(conn, conversations.UNUSED)
        for workspace_id, session_id in expired:
            await in_store_thread(self._release, workspace_id, f"{KEEP_PREFIX}{session_id}")
        async with self._database.connection() as conn:
            workspaces = [workspace.workspace_id for workspace in await registry.list_workspaces(conn)]
        ownerless: set[tuple[str, str]] = set()
        for workspace_id in workspaces:
            try:
                ownerless |= await self._ownerless_holds(workspace_id)
                await self._collect(workspace_id)
            except (MemoTreeError, psycopg.Error) as error:
                _log.warning(
                    "the maintenance of a workspace failed; it is tried again in an hour",
                    workspace=workspace_id,
                    why=str(error),
                )
        await self._release_ownerless(ownerless)
        await remove_gone_points(self._database, self._indexes())
        return len(expired)

    async def _collect(self, workspace_id: str) -> None:
        repository = await in_store_thread(self._repositories.get, workspace_id)
        gone = await collect_unreachable_lines(
            self._database, workspace_id, repository, self._locks.workspaces.of(workspace_id)
        )
        if gone:
            _log.info("collected lines that no ref or session reaches", workspace=workspace_id, lines=len(gone))

    async def release_ownerless(self, workspace_id: str) -> None:
        """Delete the refs that hold the base of a session that nobody has, while no session can be opened."""
        for _, ref in await self._ownerless_holds(workspace_id):
            await in_store_thread(self._release, workspace_id, ref)

    async def _ownerless_holds(self, workspace_id: str) -> set[tuple[str, str]]:
        """The refs that hold the base of a session that is closed or was never created."""
        # Refs are read first, so that the ref of a session that is opened meanwhile is not among them.
        refs = await in_store_thread(lambda: self._repositories.get(workspace_id).refs(KEEP_PREFIX.rstrip("/")))
        held = set(refs)
        async with self._database.connection() as conn:
            unclosed, bringing = await sessions.unclosed_ids(conn, workspace_id)
        ownerless = set()
        for name in held:
            session_id, _, brought = name.removeprefix(KEEP_PREFIX).partition(".")
            if session_id not in (bringing if brought else unclosed):
                ownerless.add((workspace_id, name))
        return ownerless

    async def _release_ownerless(self, found: set[tuple[str, str]]) -> None:
        """Delete the refs that had no session in the previous round either: a session's ref is made before its row."""
        for workspace_id, ref in found & self._ownerless:
            await in_store_thread(self._release, workspace_id, ref)
        self._ownerless = found

    def _release(self, workspace_id: str, ref: str) -> None:
        try:
            repository = self._repositories.get(workspace_id)
            repository.move_ref(ref, repository.ref(ref), None)
        except MemoTreeError as error:
            _log.warning("the ref that holds a session's base could not be deleted", ref=ref, why=error.message)

    async def _repack(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                workspace_id = self._waiting.pop()
                try:
                    await self._repack_one(workspace_id)
                except (FileNotFoundError, WorkspaceNotFoundError):
                    continue  # the workspace was deleted
                except MemoTreeError as error:
                    _log.warning("a repack failed", workspace=workspace_id, why=error.message)
                except Exception:  # noqa: BLE001 - one damaged repository must not stop the background work
                    _log.exception("a repack failed", workspace=workspace_id)

    async def _repack_one(self, workspace_id: str) -> None:
        repository = await in_store_thread(self._repositories.get, workspace_id)
        await in_store_thread(repository.pack_refs, _LOOSE_REFS)
        path = self._repositories.path(workspace_id)
        if await in_store_thread(count_packs, path) <= PACK_LIMIT:
            return
        self._repacking = asyncio.create_task(in_store_thread(maintain, path))
        report = await asyncio.shield(self._repacking)
        _log.info("repacked", workspace=workspace_id, packs=report.packs, note=report.note)

    async def _renew_statistics(self) -> None:
        while True:
            await self._written.wait()
            self._written.clear()
            try:
                grown = await renew_statistics(self._database)
            except (MemoTreeError, psycopg.Error) as error:
                _log.warning("the statistics of the mirror were not renewed; PostgreSQL does it later", why=str(error))
            except Exception:  # noqa: BLE001 - one failed round must not stop the background work
                _log.exception("the statistics of the mirror were not renewed; PostgreSQL does it later")
            else:
                if grown:
                    _log.debug("renewed the statistics of the mirror", tables=grown)
            await asyncio.sleep(_PAUSE)

    async def _tidy_often(self) -> None:
        while True:
            try:
                await self.tidy()
            except MemoTreeError as error:
                _log.warning("tidying failed; it is tried again in an hour", why=error.message)
            except Exception:  # noqa: BLE001 - one failed round must not stop the background work
                _log.exception("tidying failed; it is tried again in an hour")
            await asyncio.sleep(_PERIOD)


async def remove_gone_points(
    database: Database, indexes: Sequence[IndexWriter], workspace_id: str | None = None
) -> None:
    """Delete the points of lines that the mirror has removed, in one workspace or in all.

    Selects by the removed lines, not by the remaining ones, because a concurrent commit may open a new line. The
    removed lines stay noted until the index has flushed, so the next call repeats what fails here.

    Raises:
        IndexUnavailableError: The index does not answer.
    """
    async with database.connection() as conn:
        gone = await projector.gone_lines(conn, workspace_id)
    for index in indexes if gone else ():
        for owner, lines in gone.items():
            await index.delete(owner, lines=lines)
        await index.flush()
    if gone:
        async with database.connection() as conn:
            for owner, lines in gone.items():
                await projector.forget_gone(conn, owner, lines)
