"""The whole store in one object: Git, mirror, working state and index, opened, recovered and closed together.

This is the library's front door. The service builds on it; so can any program that wants versioned trees without gRPC.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psycopg
import structlog

from memotree_storage.catchup import Report, catch_up, replay_within
from memotree_storage.entries import EntryReader
from memotree_storage.errors import AlreadyExistsError, CorruptError, InvalidInputError
from memotree_storage.indexer import Indexer
from memotree_storage.ports import Embedder, VectorIndex
from memotree_storage.postgres import projector, registry
from memotree_storage.postgres.database import Connection, Database
from memotree_storage.search import Search
from memotree_storage.upkeep import Upkeep
from memotree_storage.workspaces import Repositories, WorkspaceInfo

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RowCounts:
    """How many rows the mirror of a workspace has."""

    commits: int
    versions: int
    placements: int


class Store:
    """Git repositories below a data folder, mirrored in a database and an index.

    Args:
        data_folder: Holds ``workspaces/`` (the repositories) and ``trash/``.
        database: The PostgreSQL database.
        index: The index of vectors and terms.
        embedder: Makes the vectors.
        request_retention: How long the result of a request id is remembered.
    """

    def __init__(
        self,
        data_folder: Path,
        database: Database,
        index: VectorIndex,
        embedder: Embedder,
        *,
        request_retention: timedelta = timedelta(days=7),
    ) -> None:
        self.data_folder = data_folder
        self.database = database
        self.index = index
        self.embedder = embedder
        self.repositories = Repositories(data_folder / "workspaces", data_folder / "trash")
        self.entries = EntryReader(self.repositories)
        self.indexer = Indexer(database, index, embedder, self.entries)
        self.upkeep = Upkeep(database, self.repositories, index, request_retention)
        self.search = Search(database, index, embedder, self.indexer)

    async def open(self) -> None:
        """Connect, recover from whatever happened before, and bring the mirrors to where Git is.

        Raises:
            DatabaseUnavailableError: PostgreSQL does not answer.
            IndexUnavailableError: The index does not answer.
        """
        await self.database.open()
        await self.index.prepare()
        await asyncio.to_thread(self.repositories.clear_unfinished)
        for info in await asyncio.to_thread(lambda: list(self.repositories.described())):
            try:
                await self._recover(info)
            except (CorruptError, InvalidInputError, psycopg.IntegrityError) as error:
                _log.error("a workspace could not be mirrored; verify it", workspace=info.name, why=str(error))
        await self._forget_missing()
        await self.indexer.forget_applied()
        self.indexer.start()
        self.upkeep.start()

    async def close(self) -> None:
        """Stop the background work and give back every resource; nothing acknowledged is lost."""
        await self.upkeep.stop()
        await self.indexer.stop()
        await self.database.close()
        await asyncio.to_thread(self.repositories.close)

    async def catch_up(self, workspace_id: str, report: Report | None = None) -> int:
        """Mirror what Git has and the mirror lacks; the number of new commits is returned."""
        repository = await asyncio.to_thread(self.repositories.get, workspace_id)
        result = await catch_up(self.database, workspace_id, repository, report)
        if result.refs_changed:
            self.indexer.notice(workspace_id)
        return result.commits

    async def rebuild(self, workspace_id: str, report: Report | None = None) -> None:
        """Make the rows and the index of a workspace anew from Git. Sessions and what they staged stay.

        Reads see the old rows until all new ones are there; a search then waits for the index.
        """
        info = await asyncio.to_thread(self.repositories.describe, workspace_id)
        repository = await asyncio.to_thread(self.repositories.get, workspace_id)
        async with self.database.transaction() as conn:
            await conn.execute("set local statement_timeout = 0")
            await conn.execute("delete from mirror.workspace where workspace_id = %s", (workspace_id,))
            await registry.put_workspace(conn, info)
            await replay_within(conn, workspace_id, repository, report)
            lines = await projector.line_ids(conn, workspace_id)
        # Points of the lines before go; those that a waiting search has put meanwhile stand on the new ones and stay.
        await self.index.delete(workspace_id, keep_lines=lines)
        await self._index(workspace_id, report)

    async def reindex(self, workspace_id: str, report: Report | None = None) -> None:
        """Make the index of a workspace anew from the mirror and Git."""
        await self.index.delete(workspace_id)
        async with self.database.transaction() as conn:
            await conn.execute("set local statement_timeout = 0")
            await registry.lock_workspace(conn, workspace_id)
            await self.indexer.enqueue_all(conn, workspace_id)
        await self._index(workspace_id, report)

    async def _index(self, workspace_id: str, report: Report | None) -> None:
        total = await self.indexer.pending(workspace_id)
        tell = _told(report, "index", total)
        tell(0)
        await self.indexer.drain(workspace_id, tell)
        tell(total)  # another one, who waited for a search, may have done a part
        await self.indexer.flush()

    async def _recover(self, info: WorkspaceInfo) -> None:
        workspace_id = info.workspace_id
        repository = await asyncio.to_thread(self.repositories.get, workspace_id)
        for sentence in await asyncio.to_thread(repository.recover, exclusive=True):
            _log.warning("recovered", workspace=info.name, what=sentence)
        try:
            async with self.database.transaction() as conn:
                await registry.put_workspace(conn, info)
        except AlreadyExistsError as error:
            _log.error("a workspace is left out", workspace=workspace_id, why=error.message)
            return
        if not await self._counts_agree(workspace_id):
            _log.warning("the mirror of a workspace has lost rows and is built again", workspace=info.name)
            await self.rebuild(workspace_id)
            return
        await self.catch_up(workspace_id)
        if not await self._index_agrees(workspace_id):
            _log.warning("the index of a workspace lacks points and is built again", workspace=info.name)
            await self.reindex(workspace_id)

    async def _counts_agree(self, workspace_id: str) -> bool:
        async with self.database.transaction() as conn:
            noted = await counts(conn, workspace_id)
            await projector.count_rows(conn, workspace_id)
            return noted == await counts(conn, workspace_id)

    async def _index_agrees(self, workspace_id: str) -> bool:
        """Whether the index holds as many points as it should, the pending ones aside."""
        async with self.database.connection() as conn:
            cursor = await conn.execute(
                "select count(*) from mirror.version v join mirror.line l using (line_id) where l.workspace_id = %s"
                " and not v.dead and not v.is_archive and not exists (select from mirror.outbox o"
                " where o.version_id = v.version_id and not o.ends)",
                (workspace_id,),
            )
            row = await cursor.fetchone()
        return row is not None and await self.index.count(workspace_id) >= int(row[0])

    async def _forget_missing(self) -> None:
        """Forget the mirror of workspaces whose repository is not there any more."""
        present = set(await asyncio.to_thread(self.repositories.ids))
        async with self.database.transaction() as conn:
            for workspace in await registry.list_workspaces(conn):
                if workspace.workspace_id not in present:
                    _log.warning("a workspace has no repository any more", workspace=workspace.name)
                    await conn.execute(
                        "delete from mirror.workspace where workspace_id = %s", (workspace.workspace_id,)
                    )


async def counts(conn: Connection, workspace_id: str) -> RowCounts:
    """The row counts that the watermark of a workspace notes."""
    cursor = await conn.execute(
        "select commit_count, version_count, placement_count from mirror.workspace where workspace_id = %s",
        (workspace_id,),
    )
    row = await cursor.fetchone()
    return RowCounts(*row) if row else RowCounts(0, 0, 0)


def _told(report: Report | None, step: str, total: int) -> Callable[[int], None]:
    def tell(done: int) -> None:
        if report is not None:
            report(step, done, total)

    return tell
