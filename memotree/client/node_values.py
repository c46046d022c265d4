"""Nodes, archives and the results of the node tools, as plain values."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol, Self, overload, runtime_checkable

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from memotree.client.enums import Level, RelationName, RelationType, from_wire, to_wire
from memotree.v1 import node_service_pb2, types_pb2


def moment(message: Message, name: str) -> datetime | None:
    """The time in the field ``name`` of ``message``, in UTC; ``None`` if it is absent."""
    if not message.HasField(name):
        return None
    stamp: Timestamp = getattr(message, name)
    return stamp.ToDatetime(tzinfo=UTC)


def stamp(time: datetime | None) -> Timestamp | None:
    """``time`` as a message; a time without a zone is local time."""
    if time is None:
        return None
    message = Timestamp()
    message.FromDatetime(time.astimezone(UTC))
    return message


@dataclass(frozen=True, slots=True)
class Relation:
    """A typed relation from the node that holds it to ``target_id``."""

    type: RelationName
    target_id: str
    description: str = ""

    @classmethod
    def from_wire(cls, message: types_pb2.Relation) -> Self:
        """Reads the message."""
        kind = from_wire(RelationType, message.type, RelationType.REFERENCES)
        return cls(kind, message.target_id, message.description)

    def to_wire(self) -> types_pb2.Relation:
        """Writes the message."""
        return types_pb2.Relation(
            type=to_wire(RelationType, self.type), target_id=self.target_id, description=self.description
        )


@dataclass(frozen=True, slots=True)
class Source:
    """Where a node's content came from: offsets in characters of the document, ``page`` from 1 (0: no pages)."""

    document_id: str
    start: int = 0
    end: int = 0
    page: int = 0
    heading: str = ""
    sha256: str = ""

    @classmethod
    def from_wire(cls, message: types_pb2.Source) -> Self:
        """Reads the message."""
        return cls(message.document_id, message.start, message.end, message.page, message.heading, message.sha256)

    def to_wire(self) -> types_pb2.Source:
        """Writes the message."""
        return types_pb2.Source(
            document_id=self.document_id,
            start=self.start,
            end=self.end,
            page=self.page,
            heading=self.heading,
            sha256=self.sha256,
        )


@dataclass(frozen=True, slots=True)
class Node:
    """A node at one revision, with the text fields up to its ``level``.

    Attributes:
        id: Sixteen characters of lower-case base 32.
        parent_id: The id of its parent, or ``None`` for a root.
        path: The ids of its ancestors, root first.
        etag: Identifies this version; pass it to a change so that it is refused if the node has changed.
        commit_id: The commit that made this version, or ``None`` while it is staged.
        update_time: When that commit was made, or ``None`` while it is staged.
        content_tokens: The tokens of the content by the server's counter, at every level.
        summary_older: Whether a person gave the summary before the content was last changed.
        content_cut: Whether the content, which is derived from the nodes below, was cut short.
    """

    id: str
    archive_id: str = ""
    parent_id: str | None = None
    position: str = ""
    type: str = ""
    title: str = ""
    brief: str = ""
    summary: str = ""
    content: str = ""
    tags: tuple[str, ...] = ()
    relations: tuple[Relation, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)
    source: Source | None = None
    etag: str = ""
    path: tuple[str, ...] = ()
    child_count: int = 0
    commit_id: str | None = None
    update_time: datetime | None = None
    content_tokens: int = 0
    level: Level = Level.TITLE
    content_cut: bool = False
    summary_older: bool = False

    @classmethod
    def from_wire(cls, message: types_pb2.Node) -> Self:
        """Reads the message."""
        return cls(
            id=message.id,
            archive_id=message.archive_id,
            parent_id=message.parent_id or None,
            position=message.position,
            type=message.type,
            title=message.title,
            brief=message.brief,
            summary=message.summary,
            content=message.content,
            tags=tuple(message.tags),
            relations=tuple(Relation.from_wire(relation) for relation in message.relations),
            attributes=dict(message.attributes),
            source=Source.from_wire(message.source) if message.HasField("source") else None,
            etag=message.etag,
            path=tuple(message.path),
            child_count=message.child_count,
            commit_id=message.commit_id or None,
            update_time=moment(message, "update_time"),
            content_tokens=message.content_tokens,
            level=from_wire(Level, message.level, Level.TITLE),
            content_cut=message.content_cut,
            summary_older=message.summary_older,
        )


@runtime_checkable
class HasId(Protocol):
    """Something with the id of a node, such as the result of ``remember``."""

    @property
    def id(self) -> str:
        """The id."""
        ...


NodeRef = HasId | str
"""A node or something else with its id, the id, or any unique prefix of four characters or more.

The calls that remember, revise, forget and restore also take a title or path that no other node has.
"""


def node_id(node: NodeRef | None) -> str:
    """The id (or prefix) of ``node``; empty for ``None``.

    Raises:
        TypeError: It is neither a text nor something with an id, such as a node or the result of ``remember``.
    """
    if node is None or isinstance(node, str):
        return node or ""
    found = getattr(node, "id", None)
    if not isinstance(found, str):
        raise TypeError(f"A node is named by an id or a Node, not by {node!r:.60} ({type(node).__name__}).")
    return found


@dataclass(frozen=True, slots=True)
class Archive:
    """One memory tree (or several roots); ``model_id`` names the agent or model it belongs to.

    ``attributes`` are free attributes by name; they include those of an ingested document.
    """

    id: str
    name: str
    model_id: str = ""
    description: str = ""
    etag: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)

    @classmethod
    def from_wire(cls, message: types_pb2.Archive) -> Self:
        """Reads the message."""
        return cls(
            message.id,
            message.name,
            message.model_id,
            message.description,
            message.etag,
            dict(message.attributes),
        )


ArchiveRef = Archive | str
"""An archive, its id, a unique prefix of it, or its name."""


def archive_id(archive: ArchiveRef | None) -> str:
    """The id (or prefix, or name) of ``archive``; empty for ``None``."""
    if archive is None:
        return ""
    return archive.id if isinstance(archive, Archive) else archive


@dataclass(frozen=True, slots=True)
class RelatedNode:
    """A relation seen from one node, with the node at its other end (``None`` if that is not alive)."""

    source_id: str
    relation: Relation
    node: Node | None
    outgoing: bool

    @classmethod
    def from_wire(cls, message: types_pb2.RelatedNode) -> Self:
        """Reads the message."""
        node = Node.from_wire(message.node) if message.HasField("node") else None
        return cls(message.source_id, Relation.from_wire(message.relation), node, message.outgoing)


@dataclass(frozen=True, slots=True)
class TreeNode:
    """One node of a tree, ``depth`` levels below its top; ``last`` if no sibling follows it."""

    node: Node
    depth: int
    last: bool = False

    @classmethod
    def from_wire(cls, message: node_service_pb2.TreeNode) -> Self:
        """Reads the message."""
        return cls(Node.from_wire(message.node), message.depth, message.last)


@dataclass(frozen=True, slots=True)
class NamedNode:
    """A node that a name may mean, and its path: its archive and the titles above it and its own, parted by "/"."""

    node: Node
    path: str


@dataclass(frozen=True, slots=True)
class Tree:
    """A subtree, parents before children; ``truncated`` is how many nodes did not fit into the answer."""

    nodes: tuple[TreeNode, ...]
    truncated: int = 0

    @classmethod
    def from_wire(cls, message: node_service_pb2.GetTreeResponse) -> Self:
        """Reads the message."""
        return cls(tuple(map(TreeNode.from_wire, message.nodes)), message.truncated)


def confidence_name(value: types_pb2.Confidence.ValueType) -> str:
    """Returns "none", "weak" or "strong"; ``""`` if it was not given."""
    name = types_pb2.Confidence.Name(value).removeprefix("CONFIDENCE_").lower()
    return "" if name == "unspecified" else name


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One found node at level SUMMARY.

    Attributes:
        score: From 0 to 1, comparable within one answer.
        preview: A part of its text, with the matched terms between pairs of asterisks.
        reason: Why it was found.
        lexical_score: The score by words, 0 to 1.
        semantic_score: The score by meaning, 0 to 1.
        relation_path: The path of relations to this node, for RELATION searches.
    """

    node: Node
    score: float
    preview: str = ""
    reason: str = ""
    matched_terms: tuple[str, ...] = ()
    lexical_score: float = 0.0
    semantic_score: float = 0.0
    relation_path: tuple[RelatedNode, ...] = ()

    @classmethod
    def from_wire(cls, message: node_service_pb2.SearchHit) -> Self:
        """Reads the message."""
        return cls(
            Node.from_wire(message.node),
            message.score,
            message.preview,
            message.reason,
            tuple(message.matched_terms),
            message.lexical_score,
            message.semantic_score,
            tuple(RelatedNode.from_wire(step) for step in message.relation_path),
        )


@dataclass(frozen=True, slots=True)
class SearchResult(Sequence[SearchHit]):
    """The hits of a search, best first, and the commit that was searched (for a session, its base).

    ``confidence`` says whether any hit answers the query ("none", "weak" or "strong"; "" for RELATION), ``likelihood``
    how likely that is, from 0 to 1.
    """

    hits: tuple[SearchHit, ...] = ()
    commit_id: str = ""
    warnings: tuple[str, ...] = ()
    confidence: str = ""
    likelihood: float = 0.0

    @classmethod
    def from_wire(cls, message: node_service_pb2.SearchNodesResponse) -> Self:
        """Reads the message."""
        return cls(
            tuple(SearchHit.from_wire(hit) for hit in message.hits),
            message.commit_id,
            tuple(message.warnings),
            confidence_name(message.confidence),
            message.likelihood,
        )

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[SearchHit]:
        return iter(self.hits)

    @overload
    def __getitem__(self, index: int) -> SearchHit: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[SearchHit, ...]: ...

    def __getitem__(self, index: int | slice) -> SearchHit | tuple[SearchHit, ...]:
        return self.hits[index]
