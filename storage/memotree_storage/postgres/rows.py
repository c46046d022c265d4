"""The columns of a version, shared by nodes and archives, in the mirror and in the staged changes."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Final, Self

from psycopg.types.json import Jsonb

from memotree_storage.model import trailers
from memotree_storage.model.node import Archive, Entry, Node, Relation, Source
from memotree_storage.model.tokens import count_tokens
from memotree_storage.ports import CommitInfo

FIELDS: Final = (
    "entry_id",
    "is_archive",
    "dead",
    "blob",
    "archive_id",
    "parent_id",
    "position",
    "type",
    "title",
    "brief",
    "summary",
    "tags",
    "attributes",
    "relations",
    "source",
    "tokens",
)
"""The columns that `mirror.version` and `work.staged` have in common, in the order of `Version`."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of an entry in the mirror: all fields except the content, which is read from Git by ``blob``.

    ``parent_id`` is ``""`` for a root. ``commit_id``, ``committed_at``, ``line_id`` and ``from_seq`` are ``None`` while
    the version is staged. The row of an archive has the same columns; read it as an `ArchiveVersion`. Versions are
    equal whatever line they are on, since a line may be joined with another one.
    """

    entry_id: str
    is_archive: bool
    dead: bool
    blob: str
    archive_id: str
    parent_id: str
    position: str
    type: str
    title: str
    brief: str
    summary: str
    tags: list[str]
    attributes: Mapping[str, str]
    relations: list[list[str]]
    source: Mapping[str, Any] | None
    tokens: int
    commit_id: str | None = None
    committed_at: datetime | None = None
    line_id: int | None = field(default=None, compare=False)
    from_seq: int | None = field(default=None, compare=False)

    def to_archive(self) -> Archive:
        """Return the archive that this row describes; title, type and summary are its name, model and description."""
        return Archive(self.entry_id, self.title, self.type, self.summary, self.attributes)

    def to_node(self, content: str = "") -> Node:
        """Return the node that this row describes, with the given content."""
        return Node(
            id=self.entry_id,
            archive_id=self.archive_id,
            parent_id=self.parent_id or None,
            position=self.position,
            type=self.type,
            title=self.title,
            brief=self.brief,
            summary=self.summary,
            content=content,
            tags=tuple(self.tags),
            relations=tuple(Relation(*relation) for relation in self.relations),
            attributes=self.attributes,
            source=Source(**self.source) if self.source else None,
        )


@dataclass(frozen=True, slots=True)
class ArchiveVersion:
    """One version of an archive: the archive, and the row it was read from."""

    archive: Archive
    version: Version

    @classmethod
    def of(cls, version: Version) -> Self:
        """Read the row of an archive."""
        return cls(version.to_archive(), version)

    @property
    def entry_id(self) -> str:
        """The archive's id."""
        return self.archive.id

    @property
    def name(self) -> str:
        """The archive's name."""
        return self.archive.name

    @property
    def model_id(self) -> str:
        """The agent or model that the archive belongs to."""
        return self.archive.model_id


def row_of(entry: Entry, blob: str) -> tuple[Any, ...]:
    """Return the values of `FIELDS` for an entry, adapted for PostgreSQL."""
    if isinstance(entry, Archive):
        return (
            *(entry.id, True, False, blob, entry.id, "", "", entry.model_id, entry.name, "", entry.description),
            *([], Jsonb(dict(entry.attributes)), Jsonb([]), None, 0),
        )
    relations = [[relation.type, relation.target_id, relation.description] for relation in entry.relations]
    return (
        *(entry.id, False, False, blob, entry.archive_id, entry.parent_id or "", entry.position, entry.type),
        *(entry.title, entry.brief, entry.summary, list(entry.tags), Jsonb(dict(entry.attributes)), Jsonb(relations)),
        *(Jsonb(_source_row(entry.source)) if entry.source else None, count_tokens(entry.content)),
    )


def staged_version(node: Node, blob: str) -> Version:
    """Return the version of a node that has just been staged."""
    return Version(
        entry_id=node.id,
        is_archive=False,
        dead=False,
        blob=blob,
        archive_id=node.archive_id,
        parent_id=node.parent_id or "",
        position=node.position,
        type=node.type,
        title=node.title,
        brief=node.brief,
        summary=node.summary,
        tags=list(node.tags),
        attributes=node.attributes,
        relations=[[relation.type, relation.target_id, relation.description] for relation in node.relations],
        source=_source_row(node.source) if node.source else None,
        tokens=count_tokens(node.content),
    )


def _source_row(source: Source) -> dict[str, Any]:
    # Not `asdict`, which copies deeply: it took a third of the time that an import needs for its rows.
    return {name: getattr(source, name) for name in _SOURCE_FIELDS}


_SOURCE_FIELDS: Final = tuple(field.name for field in fields(Source))


def tombstone_of(last: Version) -> tuple[Any, ...]:
    """Return the values of `FIELDS` that mark an entry as deleted; the title stays the last one."""
    return (
        *(last.entry_id, last.is_archive, True, "", last.archive_id, last.parent_id, last.position, last.type),
        *(last.title, "", "", [], Jsonb({}), Jsonb([]), None, 0),
    )


def targets_of(entry: Entry) -> list[str]:
    """Return the ids that an entry's relations point to."""
    return [] if isinstance(entry, Archive) else sorted({relation.target_id for relation in entry.relations})


FACTS: Final = (
    *("parents", "author_name", "author_email", "authored_at", "committed_at"),
    *("message", "session_id", "request_id"),
)
"""The columns of `mirror.commit` after its place, in the order of `commit_facts`."""


def commit_facts(commit: CommitInfo) -> tuple[Any, ...]:
    """The values of `FACTS`.

    Everybody who can push writes commits, so marks that cannot be are none.
    """
    marks = trailers.marks_of(commit.message)
    return (
        *(list(commit.parents), commit.author.name, commit.author.email),
        *(commit.author.when, commit.committer.when, commit.message),
        *(marks.session_id, marks.request_id),
    )
