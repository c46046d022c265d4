"""Writes conflicts as messages of the wire contract, each value as the kind that it is.

The gateway on standard input and output loads this before the server starts, so it loads no store.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final

from memotree_storage.conflicts import (
    Absence,
    ArchiveValue,
    ChildValue,
    Conflict,
    FieldValue,
    NodeValue,
    Place,
    RelationValue,
    SourceValue,
)

from memotree.v1 import types_pb2

Shorten = Callable[[str], str]


def conflict_message(conflict: Conflict, shorten: Shorten = str) -> types_pb2.Conflict:
    """The message of a conflict; ``shorten`` is applied to every text in it."""
    return types_pb2.Conflict(
        kind=types_pb2.ConflictKind.Value(f"CONFLICT_KIND_{conflict.kind.value}"),
        node_id=shorten(conflict.node_id),
        field=shorten(conflict.field),
        description=shorten(conflict.description),
        base_value=_value_message(conflict.base, shorten),
        our_value=_value_message(conflict.ours, shorten),
        their_value=_value_message(conflict.theirs, shorten),
    )


def _value_message(value: FieldValue | None, shorten: Shorten) -> types_pb2.FieldValue | None:
    """The message of a value; ``None`` if it is not known."""
    if value is None:
        return None
    if isinstance(value, str):
        return types_pb2.FieldValue(text=shorten(value))
    if isinstance(value, Absence):
        return types_pb2.FieldValue(absence=types_pb2.Absence.Value(f"ABSENCE_{value.value}"))
    if isinstance(value, ChildValue):
        return types_pb2.FieldValue(child_id=shorten(value.child_id))
    if isinstance(value, RelationValue):
        kind = types_pb2.RelationType.Value(f"RELATION_TYPE_{value.type}")
        return types_pb2.FieldValue(
            relation=types_pb2.Relation(
                type=kind, target_id=shorten(value.target_id), description=shorten(value.description)
            )
        )
    name, message, further = _MESSAGES[type(value)]
    fields = {field: shorten(each) if isinstance(each, str) else each for field, each in asdict(value).items()}
    return types_pb2.FieldValue(**{name: message(**fields, **further)})


_MESSAGES: Final[Mapping[type[Any], tuple[str, Any, Mapping[str, Any]]]] = {
    Place: ("place", types_pb2.Place, {}),
    SourceValue: ("source", types_pb2.Source, {}),
    NodeValue: ("node", types_pb2.Node, {"level": types_pb2.LEVEL_OF_DETAIL_TITLE}),
    ArchiveValue: ("archive", types_pb2.Archive, {}),
}
"""For each kind of value with the fields of its message: the field of FieldValue, the message, and further fields."""
