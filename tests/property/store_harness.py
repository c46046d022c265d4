"""A store for state machines: on a real PostgreSQL, with an event loop of its own and an index in memory.

A state machine of hypothesis is not asynchronous, so the harness runs each operation to its end. A harness is used by
one test; each example works in a workspace of its own, which is removed afterwards.
"""

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import psycopg
from hypothesis.stateful import RuleBasedStateMachine
from memotree_storage.model.node import ID_ALPHABET, ID_LENGTH, new_id
from memotree_storage.model.workspace import WorkspaceInfo
from memotree_storage.ports import (
    IndexEntry,
    IndexHit,
    IndexPoint,
    IndexQuery,
    Override,
    TermVector,
    Vector,
    VectorIndex,
    Vectors,
)
from memotree_storage.postgres import projector, registry
from memotree_storage.postgres.database import Database
from memotree_storage.store import Store
from psycopg import sql
from psycopg.conninfo import make_conninfo

Answer = TypeVar("Answer")


class WorkspaceMachine(RuleBasedStateMachine):
    """A state machine in a workspace of its own, which is removed afterwards."""

    def __init__(self, harness: "StoreHarness") -> None:
        super().__init__()
        self.harness = harness
        self.workspace = harness.run(harness.make_workspace())
        self.count = 0
        """The numbers that were given to what the machine has made."""

    def teardown(self) -> None:
        self.harness.run(self.harness.drop_workspace(self.workspace))


def pick(options: Sequence[Any], number: int) -> Any:
    """One of the options."""
    return options[number % len(options)]


def numbered_id(number: int) -> str:
    """The same id for the same number in each run, so that a failing example can be repeated."""
    digest = hashlib.sha256(b"%d" % number).digest()
    return "".join(ID_ALPHABET[byte & 31] for byte in digest[:ID_LENGTH])


class PositiveEmbedder:
    """Vectors that depend only on the text with only positive components, so that every text is near every other."""

    is_slow = False

    def __init__(self, dimensions: int = 8) -> None:
        self.model = "positive"
        self.dimensions = dimensions

    async def embed(self, texts: Sequence[str]) -> Vectors:
        size = self.dimensions
        rows = [np.frombuffer(hashlib.sha256(text.encode()).digest()[:size], dtype=np.uint8) for text in texts]
        raw = np.asarray(rows, dtype=np.float32).reshape(len(texts), size) + 64
        unit: Vectors = (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32)
        return unit


class MemoryIndex:
    """The port of the index over a dictionary, for tests that are not about the engine."""

    def __init__(self) -> None:
        self._points: dict[str, IndexPoint] = {}

    async def prepare(self) -> None:
        return

    async def remove(self, workspace_ids: Sequence[str]) -> bool:
        for each in workspace_ids:
            await self.delete(each)
        return not self._points

    async def upsert(self, points: Sequence[IndexPoint]) -> None:
        self._points.update({point.point_id: point for point in points})

    async def close_versions(self, ended: Sequence[tuple[str, int]]) -> None:
        for point_id, end in ended:
            if point_id in self._points:
                self._points[point_id] = replace(self._points[point_id], to_seq=end)

    async def override_versions(self, overridden: Sequence[tuple[str, Sequence[Override]]]) -> None:
        for point_id, overrides in overridden:
            if point_id in self._points:
                self._points[point_id] = replace(self._points[point_id], overrides=tuple(overrides))

    async def nearest(self, query: IndexQuery, vector: Vector) -> list[IndexHit]:
        return self._best(query, lambda point: float(np.dot(point.vector, vector)))

    async def best_terms(self, query: IndexQuery, terms: TermVector) -> list[IndexHit]:
        wanted = dict(zip(terms.ids, terms.weights, strict=True))

        def score(point: IndexPoint) -> float:
            return sum(
                wanted.get(term, 0.0) * weight
                for term, weight in zip(point.terms.ids, point.terms.weights, strict=True)
            )

        return [hit for hit in self._best(query, score) if hit.score > 0]

    def _best(self, query: IndexQuery, score: Callable[[IndexPoint], float]) -> list[IndexHit]:
        seqs = {span.line_id: span.seq for span in query.lineage}
        numbers = {span.number: span.seq for span in query.lineage[:-1]}
        hits = [
            IndexHit(point.point_id, point.node_id, point.line_id, point.from_seq, score(point))
            for point in self._points.values()
            if point.workspace_id == query.workspace_id
            and point.line_id in seqs
            and point.from_seq <= seqs[point.line_id]
            and (point.to_seq is None or point.to_seq > seqs[point.line_id])
            and point.node_id not in query.without_ids
            and not any(by.seq <= numbers.get(by.line_number, -1) for by in point.overrides)
        ]
        best = sorted(hits, key=lambda hit: (-hit.score, hit.node_id))
        return best[query.offset : query.offset + query.limit]

    async def scan(self, workspace_id: str) -> AsyncIterator[IndexEntry]:
        for point in list(self._points.values()):
            if point.workspace_id == workspace_id:
                yield IndexEntry(
                    point.point_id, point.node_id, point.line_id, point.from_seq, point.to_seq, point.overrides
                )

    async def count(self, workspace_id: str) -> int:
        return sum(point.workspace_id == workspace_id for point in self._points.values())

    async def delete(
        self, workspace_id: str, *, lines: Sequence[int] | None = None, keep_lines: Sequence[int] | None = None
    ) -> None:
        keep = set(keep_lines or ())
        if lines is not None:
            keep |= {point.line_id for point in self._points.values()} - set(lines)
        self._points = {
            point_id: point
            for point_id, point in self._points.items()
            if point.workspace_id != workspace_id or point.line_id in keep
        }

    async def flush(self) -> None:
        return


@dataclass(slots=True)
class StoreHarness:
    """An open store and its event loop."""

    loop: asyncio.AbstractEventLoop
    store: Store

    @classmethod
    def open(cls, postgres: str, folder: Path, index: VectorIndex | None = None) -> "StoreHarness":
        """A store over a new database of that server."""
        loop = asyncio.new_event_loop()
        url = fresh_database(postgres)
        store = Store(folder, Database(url, max_size=4), index or MemoryIndex(), PositiveEmbedder())
        loop.run_until_complete(store.open())
        return cls(loop, store)

    def close(self) -> None:
        self.run(self.store.close())
        self.end()

    def end(self) -> None:
        """End the loop, when the store is closed."""
        self.run(self.loop.shutdown_asyncgens())
        self.run(self.loop.shutdown_default_executor())
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return self.loop.run_until_complete(work)

    async def make_workspace(self) -> str:
        """The id of a new workspace: one commit on ``main``."""
        info = WorkspaceInfo(new_id(), f"w-{secrets.token_hex(8)}", "", datetime(2024, 1, 1, tzinfo=UTC))
        self.store.repositories.create(info)
        async with self.store.database.transaction() as conn:
            await registry.put_workspace(conn, info)
        await self.store.catch_up(info.workspace_id)
        return info.workspace_id

    async def drop_workspace(self, workspace_id: str) -> None:
        """Remove a workspace from all stores, so that the next example starts with little data."""
        async with self.store.database.transaction() as conn:
            await registry.lock_workspace(conn, workspace_id)
            await projector.forget(conn, workspace_id)
            await registry.remove_workspace(conn, workspace_id)
        await self.store.index.delete(workspace_id)
        self.store.repositories.discard(workspace_id)


def fresh_database(postgres: str) -> str:
    """The conninfo of a new database of a server."""
    name = f"harness_{secrets.token_hex(6)}"
    with psycopg.connect(postgres, autocommit=True) as conn:
        conn.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    return make_conninfo(postgres, dbname=name)
