"""Two edits that exclude each other, with the value that each side has: a text, a place, a relation and so on."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Final


class Absence(Enum):
    """Why a side has no value."""

    NONE = "NONE"
    """There is none: no such attribute, relation or source, or the node or archive did not exist."""

    DELETED = "DELETED"
    """This side deleted the node or archive; or the parent or archive under which the other side puts the node."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node stands; ``parent_id`` is ``""`` for a root of the archive."""

    archive_id: str
    parent_id: str = ""
    position: str = ""


@dataclass(frozen=True, slots=True)
class RelationValue:
    """The relation to one target; only its description can differ."""

    type: str
    target_id: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class SourceValue:
    """Where the content came from; the fields of `model.node.Source`."""

    document_id: str
    start: int = 0
    end: int = 0
    page: int = 0
    heading: str = ""
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class NodeValue:
    """A whole node, without its texts below the title."""

    id: str
    archive_id: str
    parent_id: str = ""
    position: str = ""
    type: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class ArchiveValue:
    """A whole archive, without its attributes."""

    id: str
    name: str
    model_id: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class ChildValue:
    """A node that this side has directly below the node or archive."""

    child_id: str


FieldValue = str | Absence | Place | RelationValue | SourceValue | NodeValue | ArchiveValue | ChildValue
"""The value of one side; a ``str`` for a field that is a text, and for the value of an attribute."""


class ConflictKind(Enum):
    """Why two edits exclude each other."""

    BOTH_CHANGED = "BOTH_CHANGED"
    """Both sides changed the field differently."""

    CHANGED_AND_DELETED = "CHANGED_AND_DELETED"
    """One side deleted the node or archive, and the other changed it."""

    CREATED_TWICE = "CREATED_TWICE"
    """Both sides created a node or archive with this id, with different values of the field."""

    PARENT_DELETED = "PARENT_DELETED"
    """One side puts a node below a parent, or into an archive, that the other side deleted."""

    PARENT_MOVED = "PARENT_MOVED"
    """One side puts a node below a parent that the other side moved to another archive."""

    CYCLE = "CYCLE"
    """A node would be below itself."""

    TOO_DEEP = "TOO_DEEP"
    """A node would be deeper than the limit."""

    HAS_CHILDREN = "HAS_CHILDREN"
    """One side deleted or moved a node or archive below which the other side has a node."""

    NAME_TAKEN = "NAME_TAKEN"
    """Both sides have an archive of this name."""

    @property
    def is_of_values(self) -> bool:
        """Whether one of two values has to be chosen. The others are about the tree, and end as soon as it is whole."""
        return self in _OF_VALUES


_OF_VALUES: Final = {ConflictKind.BOTH_CHANGED, ConflictKind.CHANGED_AND_DELETED, ConflictKind.CREATED_TWICE}


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two edits of the same thing that exclude each other.

    Attributes:
        kind: Why they do.
        node_id: The node (or archive) that both sides changed.
        field: The field that both changed, or ``""`` if the conflict is about the whole node.
        base: The value that both started from; ``None`` if it is not known.
        ours: The value in the session, or in a merge of commits that of the branch; likewise.
        theirs: The value on the branch, or in those that of the other side; likewise.
        description: A sentence for a person.
    """

    kind: ConflictKind
    node_id: str
    field: str
    base: FieldValue | None
    ours: FieldValue | None
    theirs: FieldValue | None
    description: str


_KINDS: Final[Mapping[str, type[Any]]] = {
    "absence": Absence,
    "place": Place,
    "relation": RelationValue,
    "source": SourceValue,
    "node": NodeValue,
    "archive": ArchiveValue,
    "child": ChildValue,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


def value_to_json(value: FieldValue | None) -> Any:
    """A value as JSON: a text as it is; any other value as its kind and its fields."""
    if value is None or isinstance(value, str):
        return value
    return [_NAMES[type(value)], value.value if isinstance(value, Absence) else asdict(value)]


def value_from_json(kept: Any) -> Any:
    """Read what `value_to_json` wrote."""
    if kept is None or isinstance(kept, str):
        return kept
    name, fields = kept
    return Absence(fields) if name == "absence" else _KINDS[name](**fields)
