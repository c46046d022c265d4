"""The index of vectors and terms in Qdrant: one collection per embedding model, searched along a lineage."""

import asyncio
import hashlib
import re
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from qdrant_client import AsyncQdrantClient, models
from qdrant_client import grpc as wire
from qdrant_client.conversions.conversion import GrpcToRest, RestToGrpc

from memotree_storage.cache import BoundedCache
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import FailedPreconditionError
from memotree_storage.ports import (
    IndexEntry,
    IndexHit,
    IndexPoint,
    IndexQuery,
    Override,
    PointEncoder,
    TermVector,
    Vector,
    Watch,
    unwatched,
)
from memotree_storage.qdrant import encoding
from memotree_storage.qdrant.batches import QuestionBatches
from memotree_storage.qdrant.client import failures

ALIAS: Final = "memory_forest"
"""The alias under which people and other programs find the current collection."""

SERVER_FLUSH_INTERVAL: Final = 5.0
"""Seconds between a Qdrant server's own flushes in its default configuration."""

_PAGE: Final = 1000
_SPARE: Final = 4
"""Extra hits to fetch, so that all hits with the score at the limit are seen and can be ordered by node id."""
_MOST: Final = 10_000
_REMEMBERED: Final = 10_000
_IN_FLIGHT: Final = 2
"""Slices that are sent concurrently: when the engine finishes one, the next is already there."""

_T = TypeVar("_T")


class IndexShapeError(FailedPreconditionError):
    """The collection was created for vectors of another size."""

    reason = "INDEX_SHAPE_MISMATCH"

    def __init__(self, collection: str, found: int, needed: int) -> None:
        super().__init__(
            f"The collection {collection} holds vectors of {found} dimensions and the embedding model gives {needed}; "
            "delete the collection and rebuild the index from Git."
        )


class QdrantIndex:
    """A ``VectorIndex`` in Qdrant, either a server or the embedded engine.

    Args:
        client: A ready client (see ``client.connect``), over gRPC or ``:memory:``; the caller closes it.
        model: Name of the embedding model; each model has its own collection.
        dimensions: Size of its vectors.
        flush: Makes everything written durable (``EmbeddedQdrant.flush``). A Qdrant server has no such call: it writes
            a log that survives a kill and syncs it at an interval. So without ``flush``, this index's ``flush()``
            waits until two such intervals have passed since the last write.
        flush_interval: That interval in seconds.
        watch: Surrounds each search.
    """

    def __init__(
        self,
        client: AsyncQdrantClient,
        *,
        model: str,
        dimensions: int,
        flush: Callable[[], Awaitable[None]] | None = None,
        flush_interval: float = SERVER_FLUSH_INTERVAL,
        watch: Watch = unwatched,
    ) -> None:
        self._client = client
        self._dimensions = dimensions
        self._collection = collection_name(model, dimensions)
        self._flush = flush
        self._watch = watch
        self._settle = 2 * flush_interval
        self._last_write: float | None = None
        self._born_later: BoundedCache[int, int] = BoundedCache(_REMEMBERED)
        self._in_process = _is_in_process(client)
        self._batches = QuestionBatches(self._send)
        self._timeout: float | None = client.init_options.get("timeout")

    @property
    def collection(self) -> str:
        """The name of the collection for this index's model."""
        return self._collection

    async def prepare(self) -> None:
        """Create what is missing (collection, payload indexes, alias); safe to repeat."""
        with failures(self._collection):
            if not await self._client.collection_exists(self._collection):
                await self._create()
            known = await self._check_shape()
            for field, kind in encoding.PAYLOAD_INDEXES.items():
                if field not in known and not self._in_process:
                    await self._client.create_payload_index(self._collection, field, kind, wait=True)
            aliases = (await self._client.get_aliases()).aliases
        if all(alias.alias_name != ALIAS for alias in aliases):
            await self.make_current()

    async def remove(self, workspace_ids: Sequence[str]) -> bool:
        """Remove the points of workspaces, and the index if it has no others; return whether it is gone.

        Others may use the same server. To delete a collection takes the engine a moment, and to delete its points long.
        """
        with failures(self._collection):
            if not await self._client.collection_exists(self._collection):
                return True
            total = (await self._client.count(self._collection, exact=True)).count
        if total > sum([await self.count(each) for each in workspace_ids]):
            for each in workspace_ids:
                await self.delete(each)
            return False
        with failures(self._collection):
            await self._client.delete_collection(self._collection)
        return True

    async def make_current(self) -> None:
        """Point the alias ``memory_forest`` to this index's collection, in one step."""
        create = models.CreateAlias(collection_name=self._collection, alias_name=ALIAS)
        with failures(self._collection):
            await self._client.update_collection_aliases([models.CreateAliasOperation(create_alias=create)])

    async def _create(self) -> None:
        await self._client.create_collection(
            self._collection,
            vectors_config={
                encoding.SUMMARY: models.VectorParams(size=self._dimensions, distance=models.Distance.COSINE)
            },
            sparse_vectors_config={encoding.TEXT: models.SparseVectorParams()},
        )

    async def _check_shape(self) -> set[str]:
        """Refuse a collection of another shape; return the fields that are indexed."""
        info = await self._client.get_collection(self._collection)
        vectors: Any = info.config.params.vectors
        found = vectors[encoding.SUMMARY].size
        if found != self._dimensions:
            raise IndexShapeError(self._collection, found, self._dimensions)
        return set(info.payload_schema)

    async def upsert(self, points: Sequence[IndexPoint]) -> None:
        """Insert points, replacing those with the same id; visible to searches when this returns."""
        # Deduplicated by id, so that no id is in two slices, which may arrive in any order.
        latest = {point.point_id: point for point in points}
        pieces = encoding.slices(list(latest.values()))
        await self._put_all(partial(encoding.upsert_request, self._collection, piece) for piece in pieces)

    @property
    def encoder(self) -> PointEncoder:
        """What encodes points for this index."""
        return encoding.CollectionEncoder(self._collection)

    async def upsert_encoded(self, requests: Sequence[bytes]) -> None:
        """Insert points as `upsert` does, from what the encoder has returned for them."""
        await self._put_all(partial(wire.UpsertPoints.FromString, request) for request in requests)

    async def _put_all(self, requests: Iterable[Callable[[], wire.UpsertPoints]]) -> None:
        """Send requests, a few at the same time; each is made in a thread just before."""
        under_way: deque[asyncio.Task[None]] = deque()
        try:
            for make in requests:
                request = await in_store_thread(make)
                if len(under_way) == _IN_FLIGHT:
                    await under_way.popleft()
                under_way.append(asyncio.create_task(self._put(request)))
            while under_way:
                await under_way.popleft()
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _put(self, request: wire.UpsertPoints) -> None:
        with failures(self._collection):
            if self._in_process:
                points = [GrpcToRest.convert_point_struct(one) for one in request.points]
                await self._client.upsert(self._collection, points)
            else:
                # The client's own stub: its upsert() first builds every point as a model, at three times the cost.
                await self._client.grpc_points.Upsert(request, timeout=self._timeout)
        self._wrote()

    async def close_versions(self, ended: Sequence[tuple[str, int]]) -> None:
        """Set ``to_seq`` of points given as (id, to_seq); missing ids are ignored."""
        by_end: dict[int, list[str]] = defaultdict(list)
        for point_id, end in dict(ended).items():
            by_end[end].append(point_id)
        await self._set_payloads((encoding.ended(end), ids) for end, ids in by_end.items())

    async def override_versions(self, overridden: Sequence[tuple[str, Sequence[Override]]]) -> None:
        """Set all overrides of points given as (id, overrides); missing ids are ignored."""
        by_overrides: dict[tuple[Override, ...], list[str]] = defaultdict(list)
        for point_id, overrides in {point_id: tuple(overrides) for point_id, overrides in overridden}.items():
            by_overrides[overrides].append(point_id)
        await self._set_payloads((encoding.overridden(some), ids) for some, ids in by_overrides.items())

    async def _set_payloads(self, changes: Iterable[tuple[dict[str, Any], list[str]]]) -> None:
        """Set fields of points, given as the fields and the ids of the points that get them."""
        # By filter: with ids, a missing point makes the call fail after it has changed the others.
        operations = [
            models.SetPayloadOperation(
                set_payload=models.SetPayload(
                    payload=fields,
                    filter=models.Filter(must=[models.HasIdCondition(has_id=list(some))]),
                )
            )
            for fields, ids in changes
            for some in _pages(ids)
        ]
        for some in _pages(operations):
            with failures(self._collection):
                await self._client.batch_update_points(self._collection, some, wait=True)
            self._wrote()

    async def nearest(self, query: IndexQuery, vector: Vector) -> list[IndexHit]:
        """Return the alive points nearest by cosine, best first, ties by node id."""
        with self._watch("qdrant"):
            return await self._search(query, encoding.dense(vector), encoding.SUMMARY)

    async def best_terms(self, query: IndexQuery, terms: TermVector) -> list[IndexHit]:
        """Return the alive points with the greatest dot product over the terms, if above 0; ties by node id."""
        if not terms.ids:
            return []
        wanted = encoding.sparse(terms)
        with self._watch("qdrant"):
            return [hit for hit in await self._search(query, wanted, encoding.TEXT) if hit.score > 0]

    async def _search(self, query: IndexQuery, wanted: wire.VectorInput, using: str) -> list[IndexHit]:
        if query.limit <= 0 or not query.lineage or (query.node_ids is not None and not query.node_ids):
            return []
        end = query.offset + query.limit
        ask = end + _SPARE
        while True:
            lists = await self._look(query, wanted, using, ask)
            merged = {hit.point_id: hit for hits in lists for hit in hits}
            best = sorted(merged.values(), key=lambda hit: (-hit.score, hit.node_id, hit.line_id, hit.from_seq))
            # All hits with the score of the last one inside the limit have been seen once a worse hit has.
            if ask >= _MOST or all(len(hits) < ask or hits[-1].score < best[end - 1].score for hits in lists):
                return best[query.offset : end]
            ask = min(2 * ask, max(_MOST, end))

    async def _look(self, query: IndexQuery, wanted: wire.VectorInput, using: str, ask: int) -> list[list[IndexHit]]:
        """Search the lines' tips, and the versions that have ended since the state.

        Both filters go in one request, tips first: a version that ends in between is then in both results, never in
        neither. The plain tip filter also finds points created after the state; if none of them is among the best, the
        result is correct. If one is, the lines concerned are remembered, so that states far behind a tip pay for the
        failed attempt only once.
        """
        if query.every:
            return await self._query([encoding.every_filter(query)], wanted, using, ask)
        past = encoding.past_filter(query)
        if all(span.seq >= (self._born_later.get(span.line_id) or 0) for span in query.lineage):
            lists = await self._query([encoding.tip_filter(query, strict=False), past], wanted, using, ask)
            seqs = {span.line_id: span.seq for span in query.lineage}
            young = [hit for hit in lists[0] if hit.from_seq > seqs[hit.line_id]]
            if not young:
                return lists
            for line_id, seq in {hit.line_id: hit.from_seq for hit in young}.items():
                self._born_later.put(line_id, seq)
        return await self._query([encoding.tip_filter(query, strict=True), past], wanted, using, ask)

    async def _query(
        self, conditions: list[models.Filter], wanted: wire.VectorInput, using: str, ask: int
    ) -> list[list[IndexHit]]:
        questions = [encoding.question(self._collection, wanted, using, condition, ask) for condition in conditions]
        with failures(self._collection):
            if self._in_process:
                return [await self._query_here(question) for question in questions]
            answers = await self._batches.ask(questions)
        return [[encoding.hit(point) for point in batch.result] for batch in answers]

    async def _send(self, questions: list[wire.QueryPoints]) -> Sequence[wire.BatchResult]:
        # The client's own stub, as in _put: its models would double the time of a query.
        request = wire.QueryBatchPoints(collection_name=self._collection, query_points=questions)
        answer: wire.QueryBatchResponse = await self._client.grpc_points.QueryBatch(request, timeout=self._timeout)
        return answer.result

    async def _query_here(self, question: wire.QueryPoints) -> list[IndexHit]:
        """The same query through the in-process client."""
        found = await self._client.query_points(
            self._collection,
            query=GrpcToRest.convert_query(question.query),
            using=question.using,
            query_filter=GrpcToRest.convert_filter(question.filter),
            limit=question.limit,
            with_payload=encoding.HIT_FIELDS,
        )
        return [encoding.hit(RestToGrpc.convert_scored_point(point)) for point in found.points]

    async def scan(self, workspace_id: str) -> AsyncIterator[IndexEntry]:
        """Yield every point of a workspace, in any order."""
        condition = models.Filter(must=[encoding.match("workspace", workspace_id)])
        position: Any = None
        while True:
            with failures(self._collection):
                records, position = await self._client.scroll(
                    self._collection,
                    scroll_filter=condition,
                    limit=_PAGE,
                    offset=position,
                    with_payload=encoding.ENTRY_FIELDS,
                )
            for record in records:
                yield encoding.entry(record)
            if position is None:
                return

    async def count(self, workspace_id: str) -> int:
        """Return the exact number of points of a workspace."""
        condition = models.Filter(must=[encoding.match("workspace", workspace_id)])
        with failures(self._collection):
            return (await self._client.count(self._collection, count_filter=condition, exact=True)).count

    async def delete(
        self, workspace_id: str, *, lines: Sequence[int] | None = None, keep_lines: Sequence[int] | None = None
    ) -> None:
        """Remove the points of a workspace: all, only those of ``lines``, or all except those of ``keep_lines``."""
        parts: list[list[int]] = [[]] if lines is None else list(_pages(list(lines)))
        for part in parts:
            condition = models.Filter(
                must=[encoding.match("workspace", workspace_id), *([encoding.match_any("line", part)] if part else [])],
                must_not=[encoding.match_any("line", keep_lines)] if keep_lines else None,
            )
            with failures(self._collection):
                await self._client.delete(self._collection, models.FilterSelector(filter=condition), wait=True)
            self._wrote()

    async def flush(self) -> None:
        """Return when everything that was written before is on stable storage."""
        if self._flush is not None:
            await self._flush()
        elif self._last_write is not None and not self._in_process:
            await asyncio.sleep(max(0.0, self._last_write + self._settle - time.monotonic()))

    def _wrote(self) -> None:
        self._last_write = time.monotonic()


def collection_name(model: str, dimensions: int) -> str:
    """Return ``memory_forest__<slug>-<hash>``: readable, and distinct even for models with similar names."""
    slug = re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")[:48]
    mark = hashlib.sha256(f"{model}\0{dimensions}".encode()).hexdigest()[:8]
    return f"{ALIAS}__{slug}-{mark}"


def _pages(items: list[_T]) -> Iterator[list[_T]]:
    return (items[start : start + _PAGE] for start in range(0, len(items), _PAGE))


def _is_in_process(client: AsyncQdrantClient) -> bool:
    """Whether the client is the in-process one (``:memory:``), which takes models only and has no payload indexes."""
    options = client.init_options
    return options.get("location") == ":memory:" or options.get("path") is not None
