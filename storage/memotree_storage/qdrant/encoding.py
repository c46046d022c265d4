"""The encoding of points and queries as Qdrant's messages, and the filters of a lineage."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from qdrant_client import grpc as wire
from qdrant_client import models
from qdrant_client.conversions.conversion import RestToGrpc

from memotree_storage.ports import IndexEntry, IndexHit, IndexPoint, IndexQuery, Override, TermVector, Vector

SUMMARY: Final = "summary"
"""The name of a point's dense vector."""

TEXT: Final = "text"
"""The name of a point's sparse vector; the weights of a query contain the idf."""

ALIVE: Final = 2**53
"""``to_seq`` of a version that is alive at its line's tip: the greatest integer up to which doubles are exact."""

PAYLOAD_INDEXES: Final = {
    "tip": models.PayloadSchemaType.KEYWORD,
    "workspace": models.PayloadSchemaType.KEYWORD,
    "line": models.PayloadSchemaType.INTEGER,
    "from_seq": models.PayloadSchemaType.FLOAT,
    "to_seq": models.PayloadSchemaType.FLOAT,
    "overrides": models.PayloadSchemaType.FLOAT,
    "node_id": models.PayloadSchemaType.KEYWORD,
    "archive_id": models.PayloadSchemaType.KEYWORD,
    "type": models.PayloadSchemaType.KEYWORD,
    "tags": models.PayloadSchemaType.KEYWORD,
}
"""The fields that filters use; without these indexes a filtered search reads payloads and is five times slower."""

ENTRY_FIELDS: Final = ["node_id", "line", "from_seq", "to_seq", "overrides"]
HIT_FIELDS: Final = ["node_id", "line", "from_seq"]

_SEQS: Final = 2**26
"""Line number and seq of an override in one number: ``number * _SEQS + seq``, below 2^53."""

_SLICE_BYTES: Final = 2 * 1024 * 1024
_PAYLOAD_BYTES: Final = 512


def slices(points: Sequence[IndexPoint]) -> Iterator[list[IndexPoint]]:
    """Split points into slices of about two MiB on the wire: far below any server's limit, and quick to encode."""
    piece: list[IndexPoint] = []
    size = 0
    for point in points:
        piece.append(point)
        size += 4 * (0 if point.vector is None else len(point.vector)) + 8 * len(point.terms.ids) + _PAYLOAD_BYTES
        if size >= _SLICE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def encode(point: IndexPoint) -> wire.PointStruct:
    """Encode a point as a message, directly, which is three times as fast as through the client's models."""
    message = wire.PointStruct(id=wire.PointId(uuid=point.point_id))
    message.vectors.vectors.SetInParent()
    vectors = message.vectors.vectors.vectors
    if point.vector is not None:
        vectors[SUMMARY].dense.data.extend(point.vector.tolist())
    if point.terms.ids:
        terms = vectors[TEXT].sparse
        terms.indices.extend(point.terms.ids)
        terms.values.extend(point.terms.weights)
    payload = message.payload  # set in place: a value that is made first is copied
    payload["workspace"].string_value = point.workspace_id
    payload["node_id"].string_value = point.node_id
    payload["line"].integer_value = point.line_id
    payload["from_seq"].double_value = point.from_seq
    payload["to_seq"].double_value = ALIVE if point.to_seq is None else point.to_seq
    for name in ("overrides", "tags"):
        payload[name].list_value.SetInParent()  # present also if it is empty
    payload["overrides"].list_value.values.extend(_number(one) for one in point.overrides)
    payload["archive_id"].string_value = point.archive_id
    payload["type"].string_value = point.type
    payload["node_type"].string_value = point.type.upper()  # for other readers of the collection: LEAF_CHUNK, ...
    if point.to_seq is None:
        payload["tip"].string_value = _tip(point.workspace_id, point.line_id)
    else:
        payload["tip"].null_value = wire.NULL_VALUE
    payload["tags"].list_value.values.extend(_text(tag) for tag in point.tags)
    return message


@dataclass(frozen=True, slots=True)
class CollectionEncoder:
    """A `PointEncoder` for a collection: its requests are ``UpsertPoints`` messages."""

    collection: str

    def encoded(self, points: Sequence[IndexPoint]) -> list[bytes]:
        """Return the requests that insert points with different ids."""
        return [upsert_request(self.collection, piece).SerializeToString() for piece in slices(points)]


def upsert_request(collection: str, points: Sequence[IndexPoint]) -> wire.UpsertPoints:
    """Build the request that inserts points and waits until they can be found."""
    return wire.UpsertPoints(collection_name=collection, points=[encode(point) for point in points], wait=True)


def _text(value: str) -> wire.Value:
    return wire.Value(string_value=value)


def _number(override: Override) -> wire.Value:
    return wire.Value(double_value=_packed(override))


def _packed(override: Override) -> float:
    return float(override.line_number * _SEQS + override.seq)


def dense(vector: Vector) -> wire.VectorInput:
    """Encode a vector to search for."""
    return wire.VectorInput(dense=wire.DenseVector(data=vector.tolist()))


def sparse(terms: TermVector) -> wire.VectorInput:
    """Encode weighted terms to search for."""
    return wire.VectorInput(sparse=wire.SparseVector(indices=terms.ids, values=terms.weights))


def question(
    collection: str, wanted: wire.VectorInput, using: str, condition: models.Filter, limit: int
) -> wire.QueryPoints:
    """Build the request for the best points that match a filter, with the payload fields that a hit needs."""
    return wire.QueryPoints(
        collection_name=collection,
        query=wire.Query(nearest=wanted),
        using=using,
        filter=RestToGrpc.convert_filter(condition),
        limit=limit,
        with_payload=wire.WithPayloadSelector(include=wire.PayloadIncludeSelector(fields=HIT_FIELDS)),
    )


def hit(found: wire.ScoredPoint) -> IndexHit:
    """Decode a search result that has ``HIT_FIELDS``."""
    payload = found.payload
    return IndexHit(
        found.id.uuid,
        payload["node_id"].string_value,
        _whole(payload["line"]),
        _whole(payload["from_seq"]),
        found.score,
    )


def _whole(value: wire.Value) -> int:
    """An integer in a payload, which may come back as either kind of number."""
    return value.integer_value or int(value.double_value)


def entry(record: models.Record) -> IndexEntry:
    """Decode a scrolled point that has ``ENTRY_FIELDS``."""
    payload = record.payload or {}
    end = int(payload["to_seq"])
    return IndexEntry(
        str(record.id),
        payload["node_id"],
        int(payload["line"]),
        int(payload["from_seq"]),
        None if end == ALIVE else end,
        tuple(Override(*divmod(int(packed), _SEQS)) for packed in payload.get("overrides") or ()),
    )


def tip_filter(query: IndexQuery, *, strict: bool) -> models.Filter:
    """The points alive at the tips of the lineage's lines; ``strict`` leaves out points created after the state.

    The shape of the filter decides the speed, measured with 1e5 points. With the four conditions of the definition as
    ``must``, the engine walks the index of a range and jumps around in the vectors (25 ms; 13 ms for a common term).
    One keyword for workspace and line together lets it walk them in storage order (8 ms and 1.2 ms). Points that are
    too young are best excluded with ``must_not`` (9 to 20 ms, depending on where the numbers are in memory).
    """
    tips = [_tip(query.workspace_id, span.line_id) for span in query.lineage]
    must: list[Any] = [match("tip", tips[0]) if len(tips) == 1 else match_any("tip", tips), *_caller_filters(query)]
    hidden = _hidden(query)
    if not strict:
        return models.Filter(must=must, must_not=hidden or None)
    too_young: list[Any] = [_range("from_seq", gt=query.lineage[0].seq)]
    if len(tips) > 1:
        too_young = [_all_of(match("line", span.line_id), _range("from_seq", gt=span.seq)) for span in query.lineage]
    return models.Filter(must=must, must_not=[*too_young, *hidden])


def past_filter(query: IndexQuery) -> models.Filter:
    """The points that were alive at the state and have ended since.

    If all lines are at their tips there are none, which the engine finds out immediately.
    """
    spans = [
        _all_of(match("line", span.line_id), _range("from_seq", lte=span.seq), _range("to_seq", gt=span.seq, lt=ALIVE))
        for span in query.lineage
    ]
    either = spans[0] if len(spans) == 1 else models.Filter(should=list(spans))
    must: list[Any] = [match("workspace", query.workspace_id), either, *_caller_filters(query)]
    return models.Filter(must=must, must_not=_hidden(query) or None)


def every_filter(query: IndexQuery) -> models.Filter:
    """The points that the lines had up to their seqs, whether they have ended or not."""
    spans = [_all_of(match("line", span.line_id), _range("from_seq", lte=span.seq)) for span in query.lineage]
    either = spans[0] if len(spans) == 1 else models.Filter(should=list(spans))
    left_out: list[Any] = [match_any("node_id", query.without_ids)] if query.without_ids else []
    must: list[Any] = [match("workspace", query.workspace_id), either, *_caller_filters(query)]
    return models.Filter(must=must, must_not=left_out or None)


def _hidden(query: IndexQuery) -> list[Any]:
    """The conditions of points that must not be found: overridden by a line of the lineage, or left out.

    The farthest line overrides nothing. A range matches a list if one of its values is inside.
    """
    conditions: list[Any] = [
        _range("overrides", gte=_packed(Override(span.number, 0)), lte=_packed(Override(span.number, span.seq)))
        for span in query.lineage[:-1]
    ]
    if query.without_ids:
        conditions.append(match_any("node_id", query.without_ids))
    return conditions


def _all_of(*conditions: Any) -> models.Filter:
    return models.Filter(must=list(conditions))


def _caller_filters(query: IndexQuery) -> list[Any]:
    """The conditions for the filters that the caller gave."""
    conditions: list[Any] = []
    if query.types:
        conditions.append(match_any("type", query.types))
    if query.archive_ids:
        conditions.append(match_any("archive_id", query.archive_ids))
    conditions += [match("tags", tag) for tag in query.tags]
    if query.node_ids is not None:
        conditions.append(match_any("node_id", query.node_ids))
    return conditions


def _tip(workspace_id: str, line_id: int) -> str:
    """The payload key of the points alive at a line's tip: workspace and line in one keyword."""
    return f"{workspace_id}/{line_id}"


def _range(key: str, **bounds: float) -> models.FieldCondition:
    return models.FieldCondition(key=key, range=models.Range(**bounds))


def ended(seq: int) -> dict[str, Any]:
    """Return the payload fields that end a version at ``seq``."""
    return {"to_seq": float(seq), "tip": None}


def overridden(overrides: Sequence[Override]) -> dict[str, Any]:
    """Return the payload field that says which lines override a version."""
    return {"overrides": [_packed(one) for one in overrides]}


def match(key: str, value: str | int) -> models.FieldCondition:
    """Condition: the field has (or, if it is a list, contains) the value."""
    return models.FieldCondition(key=key, match=models.MatchValue(value=value))


def match_any(key: str, values: Sequence[str] | Sequence[int]) -> models.FieldCondition:
    """Condition: the field has one of the values."""
    alternatives: Any = list(values)
    return models.FieldCondition(key=key, match=models.MatchAny(any=alternatives))
