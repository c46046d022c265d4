"""Filters from Qdrant's messages; every part is understood or refused."""

from typing import Any

import qdrant_edge as edge

from memotree_storage.qdrant.engine.errors import UnsupportedError, only, variant
from memotree_storage.qdrant.engine.values import read_id
from memotree_storage.qdrant.engine.wire import qdrant


def read_filter(message: qdrant.Filter) -> edge.Filter:
    """Convert a filter message into the shard's filter."""
    only(message, "must", "should", "must_not", "min_should")
    least = None
    if message.HasField("min_should"):
        only(message.min_should, "conditions", "min_count")
        least = edge.MinShould(_conditions(message.min_should.conditions) or [], message.min_should.min_count)
    return edge.Filter(
        must=_conditions(message.must),
        should=_conditions(message.should),
        must_not=_conditions(message.must_not),
        min_should=least,
    )


def _conditions(messages: Any) -> list[Any] | None:
    return [_condition(message) for message in messages] or None


def _condition(message: qdrant.Condition) -> Any:
    only(message, "field", "is_empty", "is_null", "has_id", "filter")
    match variant(message, "condition_one_of"):
        case "field":
            return _field(message.field)
        case "has_id":
            only(message.has_id, "has_id")
            return edge.HasIdCondition({read_id(point) for point in message.has_id.has_id})
        case "is_empty":
            return edge.IsEmptyCondition(message.is_empty.key)
        case "is_null":
            return edge.IsNullCondition(message.is_null.key)
        case "filter":
            return read_filter(message.filter)
        case other:
            raise UnsupportedError(f"the condition {other}")


def _field(message: qdrant.FieldCondition) -> edge.FieldCondition:
    only(message, "key", "match", "range")
    if message.HasField("match") == message.HasField("range"):
        raise UnsupportedError("a field condition that is not exactly one match or one range")
    if message.HasField("match"):
        return edge.FieldCondition(message.key, match=_match(message.match))
    return edge.FieldCondition(message.key, range=_range(message.range))


def _match(message: qdrant.Match) -> Any:
    only(message, "keyword", "integer", "boolean", "keywords", "integers", "except_keywords", "except_integers")
    match variant(message, "match_value"):
        case "keyword" | "integer" | "boolean" as kind:
            return edge.MatchValue(getattr(message, kind))
        case "keywords":
            return edge.MatchAny(list(message.keywords.strings))
        case "integers":
            return edge.MatchAny(list(message.integers.integers))
        case "except_keywords":
            return edge.MatchExcept(list(message.except_keywords.strings))
        case "except_integers":
            return edge.MatchExcept(list(message.except_integers.integers))
        case other:
            raise UnsupportedError(f"the match {other}")


def _range(message: qdrant.Range) -> edge.RangeFloat:
    only(message, "lt", "gt", "lte", "gte")
    return edge.RangeFloat(**{field.name: value for field, value in message.ListFields()})
