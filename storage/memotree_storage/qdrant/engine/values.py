"""Conversion of ids, payloads and vectors between Qdrant's messages and the shard's own types."""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import qdrant_edge as edge

from memotree_storage.qdrant.engine.errors import MalformedError, UnsupportedError, only, variant
from memotree_storage.qdrant.engine.wire import qdrant

_KINDS: Final = {bool: "bool_value", int: "integer_value", float: "double_value", str: "string_value"}

PointKey = int | UUID
"""A point's id in the shard's type."""


def read_id(message: qdrant.PointId) -> PointKey:
    """Convert an id from a message; ``MalformedError`` for text that is not a UUID."""
    if variant(message, "point_id_options") == "num":
        return int(message.num)
    try:
        return UUID(message.uuid)
    except ValueError:
        raise MalformedError(f"Unable to parse UUID: {message.uuid}") from None


def write_id(key: PointKey | str) -> qdrant.PointId:
    """Convert an id to a message."""
    return qdrant.PointId(num=key) if isinstance(key, int) else qdrant.PointId(uuid=str(key))


def read_payload(entries: Mapping[str, qdrant.Value]) -> dict[str, Any]:
    """Convert a payload to plain values."""
    return {name: read_value(value) for name, value in entries.items()}


def read_value(value: qdrant.Value) -> Any:
    """Convert one payload value to a plain value."""
    kind = value.WhichOneof("kind")
    if kind is None or kind == "null_value":
        return None
    if kind == "list_value":
        return [read_value(item) for item in value.list_value.values]
    if kind == "struct_value":
        return read_payload(value.struct_value.fields)
    return getattr(value, kind)


def write_payload(payload: Mapping[str, Any] | None) -> dict[str, qdrant.Value]:
    """Convert a payload to messages."""
    return {name: write_value(value) for name, value in (payload or {}).items()}


def fill_payload(messages: Any, payload: Mapping[str, Any] | None) -> None:
    """Convert a payload into the map of a message that is there already."""
    for name, value in (payload or {}).items():
        kind = _KINDS.get(type(value))
        if kind is None:
            messages[name].CopyFrom(write_value(value))
        else:
            setattr(messages[name], kind, value)


def write_value(value: Any) -> qdrant.Value:
    """Convert one payload value to a message."""
    if value is None:
        return qdrant.Value(null_value=qdrant.NULL_VALUE)
    if isinstance(value, list):
        return qdrant.Value(list_value=qdrant.ListValue(values=[write_value(item) for item in value]))
    if isinstance(value, dict):
        return qdrant.Value(struct_value=qdrant.Struct(fields=write_payload(value)))
    return qdrant.Value(**{_KINDS[type(value)]: value})


def read_point(message: qdrant.PointStruct) -> edge.Point:
    """Convert a point that is to be stored."""
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
    only(message, "data", "indices")  # the older form of the same message
    if message.HasField("indices"):
        return edge.SparseVector(list(message.indices.data), list(message.data))
    return list(message.data)


def read_sparse(message: qdrant.SparseVector) -> edge.SparseVector:
    """Convert a sparse vector; ``MalformedError`` if it does not have as many indices as values."""
    if len(message.indices) != len(message.values):
        raise MalformedError("A sparse vector needs as many indices as values.")
    indices: Any = message.indices  # the engine reads any sequence; to make a list of it takes four times as long
    values: Any = message.values
    return edge.SparseVector(indices, values)


def write_vectors(vectors: Any) -> qdrant.VectorsOutput | None:
    """Convert a stored point's named vectors to a message; ``None`` if they were not requested."""
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
    """Convert the selection of payload fields for an answer; none unless the request says otherwise."""
    kind = message.WhichOneof("selector_options")
    if kind == "include":
        return list(message.include.fields)
    if kind == "exclude":
        return edge.PayloadSelector.Exclude(list(message.exclude.fields))
    return bool(message.enable)


def read_vectors_selector(message: qdrant.WithVectorsSelector) -> bool | list[str]:
    """Convert the selection of vectors for an answer; none unless the request says otherwise."""
    return list(message.include.names) if message.WhichOneof("selector_options") == "include" else bool(message.enable)
