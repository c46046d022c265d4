"""The indexes of a store: the one that answers, one that is made beside it, and those that are to be deleted."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Final

import structlog

from memotree_storage import faults
from memotree_storage.concurrency.locks import StoreLocks
from memotree_storage.errors import UnavailableError
from memotree_storage.index.model_index import ModelIndex
from memotree_storage.model.workspace import WorkspaceNotFoundError
from memotree_storage.ports import VectorIndex
from memotree_storage.postgres import indexes, registry
from memotree_storage.postgres.database import Database
from memotree_storage.postgres.indexes import IndexRecord, IndexRecords

_PATIENCE: Final = 600.0
"""Seconds that a search may still use an index that does not answer any more, before it is deleted."""

_log = structlog.get_logger(__name__)

OpenPoints = Callable[[str, int], VectorIndex]
"""Opens the points of an index, given the embedding model and the length of its vectors."""


class Indexes:
    """The indexes of a store, each with its embedding model.

    Args:
        database: The database.
        locks: The locks of the store.
        current: The index that answers.
        open_points: Opens the points of the others; without it, those of a model that is no longer used stay.
    """

    def __init__(
        self, database: Database, locks: StoreLocks, current: ModelIndex, open_points: OpenPoints | None = None
    ) -> None:
        self.current = current
        """The index that answers."""
        self.when_switched: list[Callable[[ModelIndex], Awaitable[None]]] = []
        """Called with an index when it begins to answer."""
        self.making = asyncio.Lock()
        """Held by whoever makes an index beside the one that answers, or deletes what was made."""
        self._database = database
        self._locks = locks
        self.open_points = open_points
        """Opens the points of another model; ``None`` if this store cannot."""
        self._next: ModelIndex | None = None
        self._beside: VectorIndex | None = None
        self._earlier: list[ModelIndex] = []
        self._deleting = asyncio.Lock()

    @property
    def points(self) -> list[VectorIndex]:
        """The points of every index that has to hear of a deletion, that of the answering one first."""
        return [self.current.points, *filter(None, [self._beside])]

    async def settle(self, workspace_id: str) -> None:
        """Wait for the writes of a workspace to any index that go on although their transactions have failed."""
        for one in filter(None, (self.current, self._next, *self._earlier)):
            await one.indexer.settle(workspace_id)

    async def delete_points(self, workspace_id: str) -> None:
        """Delete all points of a workspace, in every index."""
        await self.settle(workspace_id)
        for points in self.points:
            await points.delete(workspace_id)

    async def forget_applied(self) -> None:
        """Apply again, after a crash of the engine, what the indexes may have lost."""
        for one in filter(None, (self.current, self._next)):
            await one.indexer.forget_applied()

    async def stop(self) -> None:
        """Stop the background work of the indexes."""
        for one in filter(None, (self.current, self._next, *self._earlier)):
            await one.indexer.stop()

    async def begin(self, workspaces: Iterable[str]) -> None:
        """At a start: note that the current index answers, and take its number.

        If that of another model did so before, the points of an earlier use of this one may be out of date. They are
        deleted; then the counts disagree, and every workspace is indexed again.

        Args:
            workspaces: All workspaces.

        Raises:
            IndexUnavailableError: The index does not answer.
        """
        embedder = self.current.embedder
        mine = IndexRecord(1, embedder.model, embedder.dimensions)
        async with self._database.connection() as conn:
            found = await indexes.read(conn) or IndexRecords(mine)
        if not found.current.is_alike(mine):
            _log.warning(
                "the embedding model has changed, so every workspace is indexed again, which searches by meaning wait "
                "for; `memotree reindex --embedding` makes the new index while the old one answers",
                was=f"{found.current.model} {found.current.dimensions}",
                now=self.current.label,
            )
            for workspace_id in workspaces:
                await self.current.points.delete(workspace_id)
            found = found.abandoned().with_next(mine.model, mine.dimensions).switched()
        self.current.indexer.number = found.current.number
        if found.next is not None and self.open_points is not None:
            self._beside = self.open_points(found.next.model, found.next.dimensions)
            await self._beside.prepare()
        async with self._database.transaction() as conn:
            await indexes.write(conn, found)
            await indexes.leave_counting(conn)
            await indexes.delete_unfed(conn)

    def make(self, made: ModelIndex) -> None:
        """Take note of an index that this process makes now."""
        self._next, self._beside = made, made.points

    async def pause(self) -> None:
        """The index is not made any further by now; what it has stays, and it hears of every change."""
        made, self._next = self._next, None
        if made is not None:
            await made.indexer.stop()

    async def answer_with(self, made: ModelIndex) -> None:
        """Let another index answer; the database knows already that it does."""
        earlier = self.current
        self._earlier.append(earlier)
        self.current, self._next, self._beside = made, None, None
        made.indexer.start()
        await earlier.indexer.stop()
        _log.info("another index answers", was=earlier.label, now=made.label)
        for tell in self.when_switched:
            try:
                await tell(made)
            except UnavailableError as error:
                _log.warning("not all have heard that another index answers; the next start tells", why=error.message)

    async def abandon(self) -> bool:
        """Delete the index that was begun, if there is one that nobody makes now; return whether there was."""
        if self.making.locked():
            return False
        async with self.making:
            return await self.drop_next()

    async def drop_next(self) -> bool:
        """Delete the index that was begun, if there is one; return whether there was. The caller holds `making`."""
        async with self._database.transaction() as conn:
            records = await indexes.read_begun(conn)
            if records.next is None:
                return False
            await indexes.write(conn, records.abandoned())
        faults.point("reindex.abandoned")
        await self.delete_retired()
        self._beside = None
        return True

    async def delete_retired(self) -> None:
        """Delete the indexes that do not answer any more, each completely before it is forgotten.

        It waits for the searches that still use one, and can be repeated after a kill.

        Raises:
            DatabaseUnavailableError: PostgreSQL does not answer.
            IndexUnavailableError: The index does not answer.
        """
        async with self._deleting:
            await self._wait_for_searches()
            while True:
                async with self._database.transaction() as conn:
                    records = await indexes.read_begun(conn)
                    # If the answer to a switch was lost, the earlier one is noted as retired and used until a retry.
                    used = [one for one in records.retired if one.number == self.current.number]
                    old = next((one for one in records.retired if one not in used), None)
                    if old is None:
                        return
                    await indexes.write(conn, records, also_fed=used)  # from here on the old one hears of nothing
                    workspaces = [each.workspace_id for each in await registry.list_workspaces(conn)]
                await self._delete(old, records, workspaces)

    async def _wait_for_searches(self) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                for one in self._earlier:
                    await one.idle()
        except TimeoutError:
            _log.warning("a search has used an earlier index for very long; the index is deleted all the same")
        self._earlier.clear()

    async def _delete(self, old: IndexRecord, records: IndexRecords, workspaces: list[str]) -> None:
        await self._delete_rows(workspaces, old)
        faults.point("reindex.rows-deleted")
        if self.open_points is not None and not any(one.is_alike(old) for one in records.in_use):
            points = self.open_points(old.model, old.dimensions)
            if not await points.remove(workspaces):
                await points.flush()
                _log.info("the index of a model has points of others, and stays", model=old.model)
        faults.point("reindex.points-deleted")
        async with self._database.transaction() as conn:
            now = await indexes.read_begun(conn)
            rest = tuple(one for one in now.retired if one.number != old.number)
            await indexes.write(conn, replace(now, retired=rest))
        _log.info("an index that does not answer any more was deleted", model=old.model, dimensions=old.dimensions)

    async def _delete_rows(self, workspaces: list[str], old: IndexRecord) -> None:
        for workspace_id in workspaces:
            # Its commits wait, so that none can still write rows for this index.
            async with self._locks.workspaces.of(workspace_id), self._database.transaction() as conn:
                with suppress(WorkspaceNotFoundError):  # it was deleted meanwhile
                    await registry.lock_workspace(conn, workspace_id)
                await indexes.leave_counting(conn, workspace_id)
                await indexes.delete_unfed(conn, workspace_id)
            self.current.indexer.notice(workspace_id)
        after: int | None = 0
        while after is not None:
            async with self._database.transaction() as conn:
                after = await indexes.delete_leaf_features(conn, old.number, after)
