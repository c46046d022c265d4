"""What a store does for itself in the background: few packs, no expired sessions, no lines that nothing reaches."""

import asyncio
import contextlib
from datetime import timedelta
from typing import Final

import structlog

from memotree_storage.errors import MemoTreeError
from memotree_storage.git.maintenance import PACK_LIMIT, count_packs, maintain
from memotree_storage.ports import VectorIndex
from memotree_storage.postgres import projector, registry, requests, staging
from memotree_storage.postgres.database import Database
from memotree_storage.workspaces import KEEP_PREFIX, Repositories

_PERIOD: Final = 3600.0
_log = structlog.get_logger(__name__)


class Upkeep:
    """Repacks a repository when it has many packs, and looks once an hour for what has had its time.

    Args:
        database: The database.
        repositories: The repositories.
        index: The index.
        retention: How long the result of a request id is remembered.
    """

    def __init__(
        self, database: Database, repositories: Repositories, index: VectorIndex, retention: timedelta
    ) -> None:
        self._database = database
        self._repositories = repositories
        self._index = index
        self._retention = retention
        self._waiting: set[str] = set()
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to work in the background."""
        self._tasks = [
            asyncio.create_task(self._repack(), name="memotree-repack"),
            asyncio.create_task(self._tidy_often(), name="memotree-tidy"),
        ]

    async def stop(self) -> None:
        """Stop the work in the background; a repack that runs is waited for."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def notice(self, workspace_id: str) -> None:
        """Tell that a workspace has a new commit."""
        self._waiting.add(workspace_id)
        self._wake.set()

    async def tidy(self) -> int:
        """Close the sessions whose time ran out, forget old results, and collect the lines that nothing reaches.

        Returns:
            How many sessions were closed.
        """
        async with self._database.transaction() as conn:
            expired = await staging.close_expired(conn)
            await requests.forget_old_requests(conn, self._retention)
        for workspace_id, session_id in expired:
            await asyncio.to_thread(self._release, workspace_id, session_id)
        async with self._database.connection() as conn:
            workspaces = [workspace.workspace_id for workspace in await registry.list_workspaces(conn)]
        for workspace_id in workspaces:
            await self._collect(workspace_id)
        return len(expired)

    async def _collect(self, workspace_id: str) -> None:
        async with self._database.transaction() as conn:
            await registry.lock_workspace(conn, workspace_id)
            gone = await projector.collect_lines(conn, workspace_id)
            left = await projector.line_ids(conn, workspace_id)
        if gone:
            await self._index.delete(workspace_id, keep_lines=left)
            _log.info("collected lines that no ref or session reaches", workspace=workspace_id, lines=len(gone))

    def _release(self, workspace_id: str, session_id: str) -> None:
        try:
            repository = self._repositories.get(workspace_id)
            ref = f"{KEEP_PREFIX}{session_id}"
            repository.move_ref(ref, repository.refs().get(ref), None)
        except MemoTreeError as error:
            _log.warning("a session's hold on its base stays", session=session_id, why=error.message)

    async def _repack(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                workspace_id = self._waiting.pop()
                path = self._repositories.path(workspace_id)
                with contextlib.suppress(FileNotFoundError, MemoTreeError):
                    if await asyncio.to_thread(count_packs, path) > PACK_LIMIT:
                        report = await asyncio.shield(asyncio.to_thread(maintain, path))
                        _log.info("repacked", workspace=workspace_id, packs=report.packs_after, note=report.note)

    async def _tidy_often(self) -> None:
        while True:
            try:
                await self.tidy()
            except MemoTreeError as error:
                _log.warning("tidying waits for the next hour", why=error.message)
            await asyncio.sleep(_PERIOD)
