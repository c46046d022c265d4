"""The values of nodes and archives as a conflict has them; what is not there is `Absence.NONE`."""

from dataclasses import asdict

from memotree_storage.conflicts import Absence, ArchiveValue, FieldValue, NodeValue, Place, SourceValue
from memotree_storage.model.node import Entry, Node


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
