"""Qdrant's ``Points`` gRPC service, implemented with the shards."""

from collections.abc import Callable, Iterable
from typing import Any, Final

import grpc
import qdrant_edge as edge

from memotree_storage.qdrant.engine.collection import Collection
from memotree_storage.qdrant.engine.errors import MalformedError, UnsupportedError, only, variant
from memotree_storage.qdrant.engine.filters import read_filter
from memotree_storage.qdrant.engine.shards import Shards
from memotree_storage.qdrant.engine.values import (
    fill_payload,
    read_id,
    read_payload,
    read_payload_selector,
    read_point,
    read_sparse,
    read_vectors_selector,
    write_id,
    write_payload,
    write_vectors,
)
from memotree_storage.qdrant.engine.wire import qdrant

_DEFAULT_LIMIT: Final = 10
_BY_EIGHT_BITS: Final = edge.SearchParams(
    quantization=edge.QuantizationSearchParams(rescore=True, oversampling=8.0),
)
"""Where a shard is optimised, its 8-bit vectors propose eight times the wanted points, which the exact ones then score.

So scores are exact, and so is the order of all that are found. Elsewhere all vectors are compared exactly.
"""

_FIELD_TYPES: Final = {
    qdrant.FieldTypeKeyword: edge.PayloadSchemaType.Keyword,
    qdrant.FieldTypeInteger: edge.PayloadSchemaType.Integer,
    qdrant.FieldTypeFloat: edge.PayloadSchemaType.Float,
    qdrant.FieldTypeBool: edge.PayloadSchemaType.Bool,
    qdrant.FieldTypeDatetime: edge.PayloadSchemaType.Datetime,
    qdrant.FieldTypeUuid: edge.PayloadSchemaType.Uuid,
}
# Writes are applied and readable when they are answered, and one shard has no replicas: these requests always hold.
_WRITE: Final = ("collection_name", "wait", "ordering", "timeout")
_READ: Final = ("collection_name", "read_consistency", "timeout")


class PointsService(qdrant.PointsServicer):
    """Implements the calls of the ``Points`` service that MemoTree uses; all others are UNIMPLEMENTED."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    def Upsert(self, request: qdrant.UpsertPoints, _context: grpc.ServicerContext) -> qdrant.PointsOperationResponse:  # noqa: N802
        """Insert points, replacing those with the same id."""
        only(request, *_WRITE, "points")
        points = [read_point(point) for point in request.points]
        collection = self._shards.get(request.collection_name)
        collection.update(edge.UpdateOperation.upsert_points(points), points=len(points), size=request.ByteSize())
        return _done()

    def Delete(self, request: qdrant.DeletePoints, _context: grpc.ServicerContext) -> qdrant.PointsOperationResponse:  # noqa: N802
        """Remove points by id or filter."""
        only(request, *_WRITE, "points")
        operation = _select(
            request.points,
            edge.UpdateOperation.delete_points,
            edge.UpdateOperation.delete_points_by_filter,
        )
        collection = self._shards.get(request.collection_name)
        collection.update(operation, points=_named(request.points), size=request.ByteSize())
        return _done()

    def SetPayload(  # noqa: N802
        self, request: qdrant.SetPayloadPoints, _context: grpc.ServicerContext
    ) -> qdrant.PointsOperationResponse:
        """Set payload fields of points by id or filter."""
        only(request, *_WRITE, "payload", "points_selector")
        self._set_payload(self._shards.get(request.collection_name), request)
        return _done()

    def UpdateBatch(  # noqa: N802
        self, request: qdrant.UpdateBatchPoints, _context: grpc.ServicerContext
    ) -> qdrant.UpdateBatchResponse:
        """Set several payloads in order."""
        only(request, *_WRITE, "operations")
        collection = self._shards.get(request.collection_name)
        for operation in request.operations:
            only(operation, "set_payload")
            only(operation.set_payload, "payload", "points_selector")
            self._set_payload(collection, operation.set_payload)
        return qdrant.UpdateBatchResponse(result=[_done().result for _ in request.operations])

    @staticmethod
    def _set_payload(collection: Collection, wish: Any) -> None:
        payload = read_payload(wish.payload)
        operation = _select(
            wish.points_selector,
            lambda ids: edge.UpdateOperation.set_payload(ids, payload),
            lambda chosen: edge.UpdateOperation.set_payload_by_filter(chosen, payload),
        )
        collection.update(operation, points=_named(wish.points_selector), size=wish.ByteSize())

    def CreateFieldIndex(  # noqa: N802
        self, request: qdrant.CreateFieldIndexCollection, _context: grpc.ServicerContext
    ) -> qdrant.PointsOperationResponse:
        """Index a payload field; does nothing if the index exists already."""
        only(request, *_WRITE, "field_name", "field_type")
        if request.field_type not in _FIELD_TYPES:
            raise UnsupportedError("payload indexes of this type")
        collection = self._shards.get(request.collection_name)
        if request.field_name not in collection.shard.info().payload_schema:
            kind = _FIELD_TYPES[request.field_type]
            collection.update(edge.UpdateOperation.create_field_index(request.field_name, kind))
        return _done()

    def Query(self, request: qdrant.QueryPoints, _context: grpc.ServicerContext) -> qdrant.QueryResponse:  # noqa: N802
        """Return the filtered points nearest to one dense or sparse vector."""
        hits = self._shards.get(request.collection_name).shard.query(_query(request))
        answer = qdrant.QueryResponse()
        _add_scored(answer, hits)
        return answer

    def QueryBatch(  # noqa: N802
        self, request: qdrant.QueryBatchPoints, _context: grpc.ServicerContext
    ) -> qdrant.QueryBatchResponse:
        """Run several queries in one call."""
        only(request, *_READ, "query_points")
        shard = self._shards.get(request.collection_name).shard
        answer = qdrant.QueryBatchResponse()
        for query in request.query_points:
            _add_scored(answer.result.add(), shard.query(_query(query)))
        return answer

    def Scroll(self, request: qdrant.ScrollPoints, _context: grpc.ServicerContext) -> qdrant.ScrollResponse:  # noqa: N802
        """Return points in id order, page by page."""
        only(request, *_READ, "filter", "offset", "limit", "with_payload", "with_vectors")
        wish = edge.ScrollRequest(
            offset=read_id(request.offset) if request.HasField("offset") else None,
            limit=request.limit if request.HasField("limit") else _DEFAULT_LIMIT,
            filter=read_filter(request.filter) if request.HasField("filter") else None,
            with_payload=read_payload_selector(request.with_payload),
            with_vector=read_vectors_selector(request.with_vectors),
        )
        records, following = self._shards.get(request.collection_name).shard.scroll(wish)
        answer = qdrant.ScrollResponse(result=_records(records))
        if following is not None:
            answer.next_page_offset.CopyFrom(write_id(following))
        return answer

    def Count(self, request: qdrant.CountPoints, _context: grpc.ServicerContext) -> qdrant.CountResponse:  # noqa: N802
        """Return how many points match a filter; always exact."""
        only(request, *_READ, "filter", "exact")
        wish = edge.CountRequest(exact=True, filter=read_filter(request.filter) if request.HasField("filter") else None)
        count = self._shards.get(request.collection_name).shard.count(wish)
        return qdrant.CountResponse(result=qdrant.CountResult(count=count))

    def Get(self, request: qdrant.GetPoints, _context: grpc.ServicerContext) -> qdrant.GetResponse:  # noqa: N802
        """Return points by id; missing ids are left out."""
        only(request, *_READ, "ids", "with_payload", "with_vectors")
        records = self._shards.get(request.collection_name).shard.retrieve(
            [read_id(point) for point in request.ids],
            read_payload_selector(request.with_payload),
            read_vectors_selector(request.with_vectors),
        )
        return qdrant.GetResponse(result=_records(records))


def _done() -> qdrant.PointsOperationResponse:
    # The client fails on an empty result, because it reads the status.
    return qdrant.PointsOperationResponse(result=qdrant.UpdateResult(operation_id=0, status=qdrant.Completed))


def _select(
    selector: qdrant.PointsSelector,
    by_ids: Callable[[list[Any]], edge.UpdateOperation],
    by_filter: Callable[[edge.Filter], edge.UpdateOperation],
) -> edge.UpdateOperation:
    only(selector, "points", "filter")
    if variant(selector, "points_selector_one_of") == "points":
        return by_ids([read_id(point) for point in selector.points.ids])
    return by_filter(read_filter(selector.filter))


def _named(selector: qdrant.PointsSelector) -> int:
    """How many points a selector names, by themselves or in its filter."""
    return len(selector.points.ids) + sum(len(part.has_id.has_id) for part in selector.filter.must)


def _query(request: qdrant.QueryPoints) -> edge.QueryRequest:
    only(
        request,
        *_READ,
        *("query", "using", "filter", "params", "limit", "offset", "with_vectors", "with_payload", "score_threshold"),
    )
    only(request.query, "nearest")
    only(request.params, "exact")
    return edge.QueryRequest(
        limit=request.limit if request.HasField("limit") else _DEFAULT_LIMIT,
        offset=request.offset,
        query=edge.Query.Nearest(_wanted(request.query.nearest), using=request.using or None),
        filter=read_filter(request.filter) if request.HasField("filter") else None,
        params=edge.SearchParams(exact=True) if request.params.exact else _BY_EIGHT_BITS,
        score_threshold=request.score_threshold if request.HasField("score_threshold") else None,
        with_payload=read_payload_selector(request.with_payload),
        with_vector=read_vectors_selector(request.with_vectors),
    )


def _wanted(vector: qdrant.VectorInput) -> Any:
    only(vector, "dense", "sparse")
    match variant(vector, "variant"):
        case "dense":
            return list(vector.dense.data)
        case "sparse":
            return read_sparse(vector.sparse)
    raise MalformedError("A query needs a vector.")


def _add_scored(answer: qdrant.QueryResponse | qdrant.BatchResult, hits: Iterable[edge.ScoredPoint]) -> None:
    """Write hits into an answer; in place, which takes half as long as to build the messages and copy them."""
    for hit in hits:
        point = answer.result.add()
        point.score = hit.score
        point.version = hit.version
        key = hit.id
        if isinstance(key, int):
            point.id.num = key
        else:
            point.id.uuid = str(key)
        fill_payload(point.payload, hit.payload)
        vectors = write_vectors(hit.vector)
        if vectors is not None:
            point.vectors.CopyFrom(vectors)


def _records(records: Iterable[edge.Record]) -> list[qdrant.RetrievedPoint]:
    return [
        qdrant.RetrievedPoint(
            id=write_id(record.id), payload=write_payload(record.payload), vectors=write_vectors(record.vector)
        )
        for record in records
    ]
