"""Collecting the lines that no ref, tag or session reaches: their rows go, and their terms off the frequencies.

Texts are read before the workspace is held, since a branch that is given up may be as big as an import; what changed
until it is held is counted then. Both go in one transaction, so that the frequencies are at any time those that a
rebuild would count.
"""

from typing import Final

import structlog

from memotree_storage.index import frequencies
from memotree_storage.index.frequencies import TermCountUpdate, TextGoneError
from memotree_storage.mirror.catch_up import is_behind
from memotree_storage.ports import CommitReader
from memotree_storage.postgres import projector, registry
from memotree_storage.postgres.database import Connection, Database

_log: Final = structlog.get_logger(__name__)


async def collect_unreachable_lines(database: Database, workspace_id: str, repository: CommitReader) -> list[int]:
    """Remove the lines that nothing reaches; their ids are returned.

    None goes while the mirror is behind: commits are mirrored before the refs that reach them. When ``git gc`` has
    taken texts of what goes, the terms of what stays are counted from nothing.

    Raises:
        WorkspaceNotFoundError: The workspace is gone.
        DatabaseUnavailableError: PostgreSQL does not answer.
    """
    try:
        return await _LineCollection(workspace_id, repository, anew=False).run(database)
    except TextGoneError as error:
        _log.info("terms are counted anew", workspace=workspace_id, why=error.message)
        return await _LineCollection(workspace_id, repository, anew=True).run(database)


class _LineCollection:
    """One attempt: with the terms of what goes, or ``anew`` with the terms of what stays."""

    def __init__(self, workspace_id: str, repository: CommitReader, *, anew: bool) -> None:
        self._workspace_id = workspace_id
        self._repository = repository
        self._anew = anew
        self._tally = TermCountUpdate(repository, skip_lost=anew)

    async def run(self, database: Database) -> list[int]:
        async with database.connection() as conn:
            if not await self._find(conn):
                return []
        async with database.transaction() as conn:
            await conn.execute("set local statement_timeout = 0")  # a batch of the indexer may take longer
            # The indexer marks versions as counted: which ones it has, must hold until their counts are taken off.
            await registry.lock_workspace(conn, self._workspace_id, alone=True)
            lines = await self._find(conn)
            if lines:
                await projector.remove_lines(conn, self._workspace_id, lines)
                change = frequencies.replace if self._anew else frequencies.subtract
                await change(conn, self._workspace_id, self._tally.counts)
            return lines

    async def _find(self, conn: Connection) -> list[int]:
        """The lines that go, with the tally brought to where they are now."""
        if await is_behind(conn, self._workspace_id, self._repository):
            return []
        gone = await projector.unreached_lines(conn, self._workspace_id)
        if gone:
            lines = set(gone)
            if self._anew:
                lines = set(await projector.line_ids(conn, self._workspace_id)) - lines
            await self._tally.bring_to(conn, await frequencies.counted_versions(conn, lines))
        return gone
