"""Conflicting edits, the values of their sides (typed for a program, as a text for a person), and what is chosen."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Self

from memotree.client.enums import ConflictKind, ConflictSide, ConflictSideName, from_wire, to_wire
from memotree.client.node_values import Archive, Node, NodeRef, Relation, Source, node_id
from memotree.v1 import session_service_pb2, types_pb2


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

    def to_wire(self) -> types_pb2.Place:
        """The message."""
        return types_pb2.Place(archive_id=self.archive_id, parent_id=self.parent_id or "", position=self.position)


@dataclass(frozen=True, slots=True)
class ChildNode:
    """A node that one side has directly below the node or archive which the other side deleted or moved."""

    child_id: str


FieldValue = str | Absence | Place | Relation | Source | Node | Archive | ChildNode
"""The value of one side of a conflict: a ``str`` for a field that is a text, and for the value of an attribute."""


@dataclass(frozen=True, slots=True)
class ConflictHunk:
    """A part of a content that both sides changed; ``base``, ``ours`` or ``theirs`` may be empty."""

    base: str
    ours: str
    theirs: str


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
        kind: Why the two exclude each other.
        hunks: Of a content that a session has in conflict: the parts that both sides changed, in order.
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
    kind: ConflictKind = ConflictKind.UNSPECIFIED
    hunks: tuple[ConflictHunk, ...] = ()

    @classmethod
    def from_wire(cls, message: types_pb2.Conflict) -> Self:
        """Reads the message."""
        base, our, their = (
            _from_wire(getattr(message, name)) if message.HasField(name) else None
            for name in ("base_value", "our_value", "their_value")
        )
        texts = (readable(base), readable(our), readable(their))
        kind = from_wire(ConflictKind, message.kind, ConflictKind.UNSPECIFIED)
        hunks = tuple(ConflictHunk(hunk.base, hunk.ours, hunk.theirs) for hunk in message.hunks)
        return cls(message.node_id, message.field, *texts, message.description, base, our, their, kind, hunks)

    def in_words(self) -> dict[str, Any]:
        """All fields as texts, by name."""
        names = ("node_id", "field", "base", "ours", "theirs", "description")
        found: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.kind is not ConflictKind.UNSPECIFIED:
            found["kind"] = str(self.kind)
        if self.hunks:
            found["hunks"] = [{"base": each.base, "ours": each.ours, "theirs": each.theirs} for each in self.hunks]
        return found


@dataclass(frozen=True, slots=True)
class Resolution:
    """What to choose for a conflict of a session: exactly one of ``side``, ``text``, ``place``, ``remove``, ``hunks``.

    Attributes:
        node: The node or archive.
        field: The field; empty for every conflict of the node, if a side is chosen.
        side: The side whose value is taken.
        text: A text of your own; of a relation, its description.
        place: A place of your own, for a conflict about the parent or archive.
        remove: Whether the attribute, relation or source shall go.
        hunks: For each hunk in order: a side, or a text.
    """

    node: NodeRef
    field: str = ""
    side: ConflictSideName | None = None
    text: str | None = None
    place: Place | None = None
    remove: bool = False
    hunks: Sequence[ConflictSide | str] = ()

    def to_wire(self) -> session_service_pb2.ConflictResolution:
        """The message.

        Raises:
            ValueError: Not exactly one choice is given.
        """
        given = (self.side is not None, self.text is not None, self.place is not None, self.remove, bool(self.hunks))
        if sum(given) != 1:
            message = "A resolution has exactly one of side, text, place, remove and hunks."
            raise ValueError(message)
        made = session_service_pb2.ConflictResolution(node_id=node_id(self.node), field=self.field)
        if self.side is not None:
            made.side = to_wire(ConflictSide, self.side)
        elif self.text is not None:
            made.text = self.text
        elif self.place is not None:
            made.place.CopyFrom(self.place.to_wire())
        elif self.remove:
            made.remove = True
        else:
            made.hunks.hunks.extend(map(_hunk_to_wire, self.hunks))
        return made


def _hunk_to_wire(choice: ConflictSide | str) -> session_service_pb2.HunkResolution:
    if isinstance(choice, ConflictSide):
        return session_service_pb2.HunkResolution(side=to_wire(ConflictSide, choice))
    return session_service_pb2.HunkResolution(text=choice)


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
