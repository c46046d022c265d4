"""The fields of nodes and archives by the names and with the values that a conflict has.

What is not there is `Absence.NONE`. A place is compared without its position, which never conflicts.
"""

from dataclasses import asdict, replace

from memotree_storage.conflicts import Absence, ArchiveValue, FieldValue, NodeValue, Place, RelationValue, SourceValue
from memotree_storage.model.node import Archive, Entry, Node, Relation, Source

_OF_PLACE = ("parent", "archive")
_OF_NODES = ("type", "title", "brief", "summary", "content")
ARCHIVE_FIELDS = ("name", "model_id", "description")
"""The fields of an archive beside its attributes."""


def entry_value(entry: Entry | None) -> FieldValue:
    """A whole node or archive, without its longer texts."""
    if entry is None:
        return Absence.NONE
    if isinstance(entry, Node):
        return NodeValue(entry.id, entry.archive_id, entry.parent_id or "", entry.position, entry.type, entry.title)
    return ArchiveValue(entry.id, entry.name, entry.model_id, entry.description)


def place_value(node: Node | None) -> FieldValue:
    """The place of a node."""
    return Absence.NONE if node is None else Place(node.archive_id, node.parent_id or "", node.position)


def source_value(node: Node | None) -> FieldValue:
    """The source of a node."""
    return Absence.NONE if node is None or node.source is None else SourceValue(**asdict(node.source))


def field_value(entry: Entry, field: str) -> FieldValue:
    """The value of the field that a conflict names; of an entry without such a field, `Absence.NONE`."""
    name, _, key = field.partition(".")
    if name == "attributes":
        return entry.attributes.get(key, Absence.NONE)
    if isinstance(entry, Archive):
        return getattr(entry, field) if field in ARCHIVE_FIELDS else Absence.NONE
    if field in _OF_PLACE:
        return place_value(entry)
    if field == "source":
        return source_value(entry)
    if name == "relations":
        kind, _, target = key.partition(".")
        found = (one for one in entry.relations if (one.type, one.target_id) == (kind, target))
        return next((RelationValue(one.type, one.target_id, one.description) for one in found), Absence.NONE)
    return getattr(entry, field) if field in _OF_NODES else Absence.NONE


def is_same_value(one: FieldValue | None, other: FieldValue | None) -> bool:
    """Whether two values of a field are the same."""
    if isinstance(one, Place) and isinstance(other, Place):
        return (one.archive_id, one.parent_id) == (other.archive_id, other.parent_id)
    return one == other


def with_field_value(entry: Entry, field: str, value: FieldValue) -> Entry | None:
    """The entry with another value of a field; ``None`` if it cannot have such a value.

    A place is not set: to move a node is more than that.
    """
    name, _, key = field.partition(".")
    if name == "attributes":
        return _with_attribute(entry, key, value)
    if isinstance(entry, Node) and name == "relations":
        return _with_relation(entry, key, value)
    if isinstance(entry, Node) and field == "source":
        return _with_source(entry, value)
    texts = _OF_NODES if isinstance(entry, Node) else ARCHIVE_FIELDS
    if field not in texts or not isinstance(value, str):
        return None
    changed: Entry = replace(entry, **{field: value})  # type: ignore[arg-type] # these fields of both are texts
    return changed


def _with_attribute(entry: Entry, name: str, value: FieldValue) -> Entry | None:
    others = {each: text for each, text in entry.attributes.items() if each != name}
    if isinstance(value, str):
        return replace(entry, attributes={**others, name: value})
    return replace(entry, attributes=others) if isinstance(value, Absence) else None


def _with_relation(node: Node, key: str, value: FieldValue) -> Node | None:
    kind, _, target = key.partition(".")
    others = tuple(one for one in node.relations if (one.type, one.target_id) != (kind, target))
    if isinstance(value, RelationValue):
        return replace(node, relations=(*others, Relation(kind, target, value.description)))
    return replace(node, relations=others) if isinstance(value, Absence) else None


def _with_source(node: Node, value: FieldValue) -> Node | None:
    if isinstance(value, SourceValue):
        return replace(node, source=Source(**asdict(value)))
    return replace(node, source=None) if isinstance(value, Absence) else None
