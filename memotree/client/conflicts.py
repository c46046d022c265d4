"""Conflicting edits, and the values of their sides: typed for a program, as a text for a person."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Self

from memotree.client.node_values import Archive, Node, Relation, Source
from memotree.v1 import types_pb2


class Absence(Enum):
    """Why a side has no value. It is no ``str``, so that it equals no text."""

    NONE = "NONE"
    """There is none: no such attribute, relation or source, or the node or archive did not exist."""

    DELETED = "DELETED"
    """This side deleted the node or archive; or the parent or archive under which the other side puts the node."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node stands; ``parent_id`` is ``None`` for a root of the archive."""

    archive_id: str
    parent_id: str | None = None
    position: str = ""

    @classmethod
    def from_wire(cls, message: types_pb2.Place) -> Self:
        """Reads the message."""
        return cls(message.archive_id, message.parent_id or None, message.position)


@dataclass(frozen=True, slots=True)
class ChildNode:
    """A node that one side has directly below the node or archive which the other side deleted or moved."""

    child_id: str


FieldValue = str | Absence | Place | Relation | Source | Node | Archive | ChildNode
"""The value of one side of a conflict: a ``str`` for a field that is a text, and for the value of an attribute."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two conflicting edits of a field; ``field`` is empty if the conflict is about the node as a whole.

    Attributes:
        node_id: The node or archive that both sides changed.
        field: The field that both changed, such as ``"title"``, ``"attributes.colour"`` or ``"parent"``.
        base: The value that both started from, as a text for a person; empty if it is not known.
        ours: The value of the session, or in a merge, revert or cherry-pick that of the branch; likewise.
        theirs: The value on the branch, or in those that of the other side; likewise.
        description: A sentence for a person.
        base_value: The value that both started from; ``None`` if it is not known.
        our_value: That of ``ours``, likewise.
        their_value: That of ``theirs``, likewise.
    """

    node_id: str
    field: str
    base: str
    ours: str
    theirs: str
    description: str
    base_value: FieldValue | None = None
    our_value: FieldValue | None = None
    their_value: FieldValue | None = None

    @classmethod
    def from_wire(cls, message: types_pb2.Conflict) -> Self:
        """Reads the message."""
        base, our, their = (
            _from_wire(getattr(message, name)) if message.HasField(name) else None
            for name in ("base_value", "our_value", "their_value")
        )
        texts = (readable(base), readable(our), readable(their))
        return cls(message.node_id, message.field, *texts, message.description, base, our, their)

    def in_words(self) -> dict[str, str]:
        """All fields that are texts, by name."""
        names = ("node_id", "field", "base", "ours", "theirs", "description")
        return {name: getattr(self, name) for name in names}


def readable(value: FieldValue | None) -> str:
    """A value as a text for a person; empty for ``None`` and for an empty text."""
    return "" if value is None else _WORDS[type(value)](value)


def _source_words(source: Source) -> str:
    page = f"page {source.page}" if source.page else ""
    words = (source.document_id, f"{source.start}-{source.end}", page, source.heading, source.sha256)
    return " ".join(word for word in words if word)


def _place_words(place: Place) -> str:
    if place.parent_id is None:
        return f"a root of archive {place.archive_id}"
    return f"below {place.parent_id} in archive {place.archive_id}"


_WORDS: Final[Mapping[type[Any], Callable[[Any], str]]] = {
    str: str,
    Absence: {Absence.NONE: "not there", Absence.DELETED: "deleted"}.__getitem__,
    Place: _place_words,
    Relation: lambda relation: f"{relation.type} {relation.target_id} {relation.description}".rstrip(),
    Source: _source_words,
    Node: lambda node: node.title or node.id,
    Archive: lambda archive: f"archive {archive.name} ({archive.id})",
    ChildNode: lambda child: f"has {child.child_id} below it",
}


def _absence(number: types_pb2.Absence.ValueType) -> Absence:
    return Absence.DELETED if number == types_pb2.ABSENCE_DELETED else Absence.NONE


_KINDS: Final[Mapping[str, Callable[[Any], FieldValue]]] = {
    "absence": _absence,
    "text": str,
    "place": Place.from_wire,
    "relation": Relation.from_wire,
    "source": Source.from_wire,
    "node": Node.from_wire,
    "archive": Archive.from_wire,
    "child_id": ChildNode,
}


def _from_wire(message: types_pb2.FieldValue) -> FieldValue | None:
    """The value of a message; ``None`` for a kind that this client does not know."""
    kind = message.WhichOneof("kind")
    return None if kind is None else _KINDS[kind](getattr(message, kind))
