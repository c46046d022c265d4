"""An index with the embedding model that made its vectors, and all that belongs to the two.

Vectors of two models cannot be compared. So whoever compares some takes the model, the points and the leaf features
from one `ModelIndex`, and says while it does so (`ModelIndex.in_use`) that they are needed.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from memotree_storage.index import frequencies, leaf_features
from memotree_storage.index.indexer import Indexer
from memotree_storage.index.search import Search
from memotree_storage.mirror.entries import EntryReader
from memotree_storage.ports import Embedder, VectorIndex
from memotree_storage.postgres.database import Database


class ModelIndex:
    """One index and its embedding model.

    Args:
        database: The database.
        points: The vectors and terms.
        embedder: Makes the vectors.
        entries: Reads the texts.
        number: The number of the index, by which its rows in the database are known.
    """

    def __init__(
        self, database: Database, points: VectorIndex, embedder: Embedder, entries: EntryReader, number: int = 1
    ) -> None:
        self._database = database
        self.points = points
        self.embedder = embedder
        self.indexer = Indexer(database, points, embedder, entries, number)
        self.search = Search(database, points, embedder, self.indexer, self.in_use)
        self._users = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def number(self) -> int:
        """The number of the index."""
        return self.indexer.number

    @property
    def label(self) -> str:
        """The model, with the length of its vectors."""
        return f"{self.embedder.model} {self.embedder.dimensions}"

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """While this is entered, the index is not deleted, although another one may answer by then."""
        self._users += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._idle.set()

    async def idle(self) -> None:
        """Wait until nobody uses the index."""
        await self._idle.wait()

    async def agrees(self, workspace_id: str) -> bool:
        """Whether it has as many points of a workspace as it should (pending ones may exist), leaf features, and terms.

        Raises:
            IndexUnavailableError: The index does not answer.
        """
        async with self._database.connection() as conn:
            cursor = await conn.execute(
                "select count(*) filter (where not exists (select from mirror.outbox o where"
                " o.version_id = v.version_id and o.index_number = %(index)s and not o.changed)), count(*),"
                " count(*) filter (where not exists (select from mirror.outbox o where o.version_id = v.version_id"
                " and not o.changed and not o.counted))"
                " from mirror.version v join mirror.line l using (line_id) where l.workspace_id = %(workspace)s"
                " and not v.dead and not v.is_archive",
                {"workspace": workspace_id, "index": self.number},
            )
            row = await cursor.fetchone()
            if await leaf_features.missing(conn, self.number, workspace_id, 1):
                return False
            counted = (await frequencies.read(conn, workspace_id, ())).versions
        if row is None or (row[2] and not counted):
            return False
        return int(row[0]) <= await self.points.count(workspace_id) <= int(row[1])
