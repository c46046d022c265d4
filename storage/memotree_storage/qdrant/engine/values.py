"""Ids, payloads and vectors between Qdrant's messages and the shard's own types."""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import qdrant_edge as edge

from memotree_storage.qdrant.engine.errors import MalformedError, UnsupportedError, only, variant
from memotree_storage.qdrant.engine.wire import qdrant

_KINDS: Final = {bool: "bool_value", int: "integer_value", float: "double_value", str: "string_value"}

PointKey = int | UUID
"""A point's id as the shard wants it."""


def read_id(message: qdrant.PointId) -> PointKey:
    """The id in a message; ``MalformedError`` for text that is no UUID."""
    if variant(message, "point_id_options") == "num":
        return int(message.num)
    try:
        return UUID(message.uuid)
    except ValueError:
        raise MalformedError(f"Unable to parse UUID: {message.uuid}") from None


def write_id(key: PointKey | str) -> qdrant.PointId:
    """The message for an id."""
    return qdrant.PointId(num=key) if isinstance(key, int) else qdrant.PointId(uuid=str(key))


def read_payload(entries: Mapping[str, qdrant.Value]) -> dict[str, Any]:
    """The payload as plain values."""
    return {name: read_value(value) for name, value in entries.items()}


def read_value(value: qdrant.Value) -> Any:
    """One payload value as a plain one."""
    kind = value.WhichOneof("kind")
    if kind is None or kind == "null_value":
        return None
    if kind == "list_value":
        return [read_value(item) for item in value.list_value.values]
    if kind == "struct_value":
        return read_payload(value.struct_value.fields)
    return getattr(value, kind)


def write_payload(payload: Mapping[str, Any] | None) -> dict[str, qdrant.Value]:
    """The messages of a payload."""
    return {name: write_value(value) for name, value in (payload or {}).items()}


def write_value(value: Any) -> qdrant.Value:
    """The message of one payload value."""
    if value is None:
        return qdrant.Value(null_value=qdrant.NULL_VALUE)
    if isinstance(value, list):
        return qdrant.Value(list_value=qdrant.ListValue(values=[write_value(item) for item in value]))
    if isinstance(value, dict):
        return qdrant.Value(struct_value=qdrant.Struct(fields=write_payload(value)))
    return qdrant.Value(**{_KINDS[type(value)]: value})


def read_point(message: qdrant.PointStruct) -> edge.Point:
    """A point to be stored."""
    only(message, "id", "payload", "vectors")
    return edge.Point(read_id(message.id), _read_vectors(message.vectors), read_payload(message.payload))


def _read_vectors(message: qdrant.Vectors) -> dict[str, Any]:
    if message.WhichOneof("vectors_options") == "vector":
        raise UnsupportedError("unnamed vectors")
    return {name: _read_vector(vector) for name, vector in message.vectors.vectors.items()}


def _read_vector(message: qdrant.Vector) -> Any:
    kind = message.WhichOneof("vector")
    if kind == "dense":
        return list(message.dense.data)
    if kind == "sparse":
        return read_sparse(message.sparse)
    if kind is not None:
        raise UnsupportedError(f"{kind} vectors")
    only(message, "data", "indices")  # the older form of the same
    if message.HasField("indices"):
        return edge.SparseVector(list(message.indices.data), list(message.data))
    return list(message.data)


def read_sparse(message: qdrant.SparseVector) -> edge.SparseVector:
    """A sparse vector; ``MalformedError`` when indices and values do not go together."""
    if len(message.indices) != len(message.values):
        raise MalformedError("A sparse vector needs as many indices as values.")
    return edge.SparseVector(list(message.indices), list(message.values))


def write_vectors(vectors: Any) -> qdrant.VectorsOutput | None:
    """The message of a stored point's named vectors, ``None`` when they were not asked for."""
    if vectors is None:
        return None
    named = {
        name: qdrant.VectorOutput(sparse=qdrant.SparseVector(indices=vector.indices, values=vector.values))
        if isinstance(vector, edge.SparseVector)
        else qdrant.VectorOutput(dense=qdrant.DenseVector(data=vector))
        for name, vector in vectors.items()
    }
    return qdrant.VectorsOutput(vectors=qdrant.NamedVectorsOutput(vectors=named))


def read_payload_selector(message: qdrant.WithPayloadSelector) -> Any:
    """Which payload fields an answer carries; none when the request does not say."""
    kind = message.WhichOneof("selector_options")
    if kind == "include":
        return list(message.include.fields)
    if kind == "exclude":
        return edge.PayloadSelector.Exclude(list(message.exclude.fields))
    return bool(message.enable)


def read_vectors_selector(message: qdrant.WithVectorsSelector) -> bool | list[str]:
    """Which vectors an answer carries; none when the request does not say."""
    return list(message.include.names) if message.WhichOneof("selector_options") == "include" else bool(message.enable)
