"""The stores of one workspace that can be lost one at a time, and come back as an earlier flush left them."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

import psycopg
import pytest
from memotree_storage import faults
from memotree_storage.embedded.qdrant import EmbeddedQdrant
from memotree_storage.postgres import indexes
from memotree_storage.postgres.database import Database
from memotree_storage.qdrant.client import connect
from memotree_storage.qdrant.engine.files import copy_shard
from memotree_storage.qdrant.index import QdrantIndex
from memotree_storage.reindexing import NewModel, reindex_with
from memotree_storage.store import Store
from property.store_harness import PositiveEmbedder, StoreHarness, fresh_database
from qdrant_client import AsyncQdrantClient

LONGER: Final = 12


class _EndedError(Exception):
    """The server's own part has ended."""


class Stores:
    """A store on a real PostgreSQL and a real engine, each of which can be lost and restored."""

    def __init__(self, harness: StoreHarness, postgres: str, folder: Path) -> None:
        self.harness = harness
        self._postgres = postgres
        self._folder = folder
        self._engine: EmbeddedQdrant
        self._client: AsyncQdrantClient
        self._database = fresh_database(postgres)
        self._dimensions = 8
        harness.run(self._start_engine())
        harness.run(self._open())
        harness.run(self._flush_and_keep())

    def close(self) -> None:
        self.harness.run(self.harness.store.close())
        self.harness.run(self._stop_engine())

    async def _start_engine(self) -> None:
        self._engine = EmbeddedQdrant(self._folder / "engine")
        endpoint = await self._engine.start()
        self._client = connect(endpoint.url, endpoint.api_key)

    async def _stop_engine(self) -> None:
        await self._client.close()
        await self._engine.stop()

    async def _open(self) -> None:
        """Open a new store over the data, as after a restart.

        Its background work is stopped, so that it happens only where the model says so: a search that waits for the
        indexer starts it, and a commit that no ref reaches stays mirrored until a step collects it.
        """
        embedder = PositiveEmbedder(self._dimensions)
        index = self._points(embedder.model, embedder.dimensions)
        self.harness.store = Store(
            self._folder / "data", Database(self._database, max_size=4), index, embedder, open_points=self._points
        )
        await self.harness.store.open()
        await self.harness.store.indexer.stop()
        await self.harness.store.maintenance.stop()

    def _points(self, model: str, dimensions: int) -> QdrantIndex:
        return QdrantIndex(self._client, model=model, dimensions=dimensions, flush=self._flush_and_keep)

    async def change_model(self, last_point: str) -> None:
        """Change to vectors of another length; end the server's own part at a point of that, if one is named."""
        embedder = PositiveEmbedder(8 if self._dimensions == LONGER else LONGER)
        store = self.harness.store

        def end(name: str) -> None:
            if name == last_point:
                raise _EndedError

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(faults, "point", end)
            with suppress(_EndedError):
                model = NewModel(embedder, self._points(embedder.model, embedder.dimensions))
                await reindex_with(store, model, lambda *_: None)
        async with store.database.connection() as conn:
            self._dimensions = (await indexes.read_begun(conn)).current.dimensions
        if last_point:
            await self.restart()
        else:
            await self.harness.store.indexer.stop()

    async def restart(self) -> None:
        """Stop and start the server's own part."""
        await self.harness.store.close()
        await self._open()

    async def lose_postgres(self) -> None:
        """Start again with an empty database: the working state is lost too."""
        await self.harness.store.close()
        self._database = fresh_database(self._postgres)
        await self._open()

    async def lose_mirror(self) -> None:
        """Start again with only the working state in the database."""
        await self.harness.store.close()
        async with await psycopg.AsyncConnection.connect(self._database) as conn:
            await conn.execute("drop schema mirror cascade")
        await self._open()

    async def lose_index(self) -> None:
        """Start again with an empty engine."""
        await self.harness.store.close()
        await self._stop_engine()
        shutil.rmtree(self._folder / "engine")
        await self._start_engine()
        await self._open()

    async def _flush_and_keep(self) -> None:
        """Flush the engine, and copy its files."""
        await self._engine.flush()
        _replace(self._folder / "flushed", self._folder / "engine" / "data")

    async def go_back_to_flush(self) -> None:
        """Lose everything that the engine wrote after its last flush, as a power cut may do."""
        await self._stop_engine()
        _replace(self._folder / "engine" / "data", self._folder / "flushed")
        await self._start_engine()
        await self.restart()


def _replace(goal: Path, source: Path) -> None:
    """Replace a folder of the engine's files by another."""
    shutil.rmtree(goal, ignore_errors=True)
    copy_shard(source, goal, lambda: None)
