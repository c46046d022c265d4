"""Garbage collection of lines that no ref, tag or session reaches: removes their rows and their terms' frequencies.

Texts are read before the workspace is locked, since an abandoned branch may be as big as an import. Changes made
before the lock is taken are counted under the lock. Rows and frequencies are removed in one transaction, so that the
frequencies always equal those that a rebuild would count.
"""

import asyncio
from typing import Final

import structlog

from memotree_storage.index import frequencies
from memotree_storage.index.frequencies import TermCountUpdate, TextGoneError
from memotree_storage.mirror.catch_up import is_behind
from memotree_storage.ports import CommitReader
from memotree_storage.postgres import projector, registry
from memotree_storage.postgres.database import Connection, Database

_log: Final = structlog.get_logger(__name__)


async def collect_unreachable_lines(
    database: Database, workspace_id: str, repository: CommitReader, lock: asyncio.Lock
) -> list[int]:
    """Remove the lines that no ref, tag or session reaches, and return their ids.

    Removes nothing while the mirror is behind, because commits are mirrored before the refs that reach them. If
    ``git gc`` has deleted texts of these lines, the terms of the remaining lines are counted from zero instead.

    Args:
        database: The database.
        workspace_id: The workspace.
        repository: Its repository.
        lock: The lock of the workspace, taken before the connection that changes rows.

    Raises:
        WorkspaceNotFoundError: The workspace is gone.
        DatabaseUnavailableError: PostgreSQL does not answer.
    """
    try:
        return await _LineCollection(workspace_id, repository, lock, anew=False).run(database)
    except TextGoneError as error:
        _log.info("terms are counted again from the remaining lines", workspace=workspace_id, why=error.message)
        return await _LineCollection(workspace_id, repository, lock, anew=True).run(database)


class _LineCollection:
    """One attempt: subtracts the terms of the removed lines, or with ``anew`` counts those of the remaining ones."""

    def __init__(self, workspace_id: str, repository: CommitReader, lock: asyncio.Lock, *, anew: bool) -> None:
        self._workspace_id = workspace_id
        self._repository = repository
        self._lock = lock
        self._anew = anew
        self._tally = TermCountUpdate(repository, skip_lost=anew)

    async def run(self, database: Database) -> list[int]:
        async with database.connection() as conn:
            if not await self._find(conn):
                return []
        async with self._lock, database.transaction() as conn:
            await conn.execute("set local statement_timeout = 0")  # a batch of the indexer may take longer
            # The indexer marks versions as counted; that set must not change until their counts are subtracted.
            await registry.lock_workspace(conn, self._workspace_id, alone=True)
            lines = await self._find(conn)
            if lines:
                await projector.remove_lines(conn, self._workspace_id, lines)
                change = frequencies.replace if self._anew else frequencies.subtract
                await change(conn, self._workspace_id, self._tally.counts)
            return lines

    async def _find(self, conn: Connection) -> list[int]:
        """The unreachable lines; brings the tally up to date with their versions."""
        if await is_behind(conn, self._workspace_id, self._repository):
            return []
        gone = await projector.unreached_lines(conn, self._workspace_id)
        if gone:
            lines = set(gone)
            if self._anew:
                lines = set(await projector.line_ids(conn, self._workspace_id)) - lines
            await self._tally.bring_to(conn, await frequencies.counted_versions(conn, lines))
        return gone
