"""The ports of the store: what the service needs from Git and from the index, whatever implements it.

``conformance/`` holds one suite per port; an implementation is right when it passes that suite.
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from memotree_storage.errors import UnavailableError

Vector = NDArray[np.float32]
"""One embedding: a unit vector of shape (dimensions,)."""

Vectors = NDArray[np.float32]
"""A batch of embeddings, shape (texts, dimensions)."""


# --- Git -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Signature:
    """Who did it and when; ``when`` carries a time zone, seconds precise."""

    name: str
    email: str
    when: datetime


@dataclass(frozen=True, slots=True)
class TagDraft:
    """An annotated tag to be written into the same pack as its commit."""

    name: str
    message: str
    tagger: Signature


@dataclass(frozen=True, slots=True)
class CommitDraft:
    """A commit to be written: ``changes`` maps a path to its new bytes, or to ``None`` to remove it."""

    parent: str | None
    changes: Mapping[str, bytes | None]
    message: str
    author: Signature
    committer: Signature
    tag: TagDraft | None = None


@dataclass(frozen=True, slots=True)
class WrittenCommit:
    """A durable commit that no ref names yet, with the ids of its new blobs by path and of its tag object."""

    commit_id: str
    blobs: Mapping[str, str]
    tag_id: str | None = None


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """A commit as Git has it; ids are 40 hex digits."""

    commit_id: str
    tree_id: str
    parents: tuple[str, ...]
    author: Signature
    committer: Signature
    message: str


@dataclass(frozen=True, slots=True)
class PathChange:
    """One file that differs between two commits; a side that lacks the file has ``None``."""

    path: str
    old_blob: str | None
    new_blob: str | None


class CommitStore(Protocol):
    """The history of one workspace. Methods block; call them from a thread.

    Errors: ``ObjectMissingError`` for an id the repository lacks, ``RepositoryUnavailableError`` when the disk refuses
    (full, read-only), ``InvalidRefNameError`` for a name Git refuses. Every write is durable when the method returns.
    """

    def write_commit(self, draft: CommitDraft) -> WrittenCommit:
        """Write blobs, trees, commit and tag object as one synced pack; no ref moves, so nobody sees it yet."""
        ...

    def write_tag(self, draft: TagDraft, commit_id: str) -> str:
        """Write an annotated tag object of a commit and give its id; no ref moves."""
        ...

    def move_ref(self, ref: str, old: str | None, new: str | None) -> bool:
        """Compare and swap: point ``ref`` at ``new`` if it is at ``old`` (``None``: absent); ``False`` if not."""
        ...

    def refs(self) -> dict[str, str]:
        """Every ref of the repository with the object id it holds, ``HEAD`` left out."""
        ...

    def commit_info(self, commit_id: str) -> CommitInfo:
        """The commit (a tag object's id is peeled to its commit)."""
        ...

    def diff(self, old: str | None, new: str) -> Iterator[PathChange]:
        """The files that differ between two commits, by path; ``old=None`` lists all files of ``new``."""
        ...

    def read_blob(self, blob_id: str) -> bytes:
        """The bytes of a blob."""
        ...

    def read_path(self, commit_id: str, path: str) -> bytes | None:
        """The file at ``path`` in a commit, or ``None``."""
        ...


# --- The index of vectors and terms ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TermVector:
    """A text as weighted terms: ``ids`` are 32-bit term hashes, ascending and unique; ``weights`` go with them."""

    ids: tuple[int, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LineSpan:
    """The part of a line that a state sees: versions of ``line_id`` alive at ``seq``."""

    line_id: int
    seq: int


@dataclass(frozen=True, slots=True)
class IndexPoint:
    """One committed version of a node in the index; alive on its line from ``from_seq`` until before ``to_seq``.

    ``point_id`` is a UUID; ``to_seq=None`` means alive at the tip. One without a vector is found by its terms alone.
    """

    point_id: str
    workspace_id: str
    node_id: str
    line_id: int
    from_seq: int
    to_seq: int | None
    archive_id: str
    type: str
    tags: tuple[str, ...]
    vector: Vector | None
    terms: TermVector


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """What the index remembers of a point without its vectors; for ``verify``."""

    point_id: str
    node_id: str
    line_id: int
    from_seq: int
    to_seq: int | None


@dataclass(frozen=True, slots=True)
class IndexHit:
    """A candidate of a search. The score is the cosine (dense) or the dot product (terms)."""

    point_id: str
    node_id: str
    line_id: int
    from_seq: int
    score: float


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """Where to search: a workspace, the lineage of one state (nearest line first), and optional filters.

    Empty filters match everything; several types or archives are alternatives; every tag must be there; ``node_ids``
    (when not ``None``) limits the search to those nodes.
    """

    workspace_id: str
    lineage: Sequence[LineSpan]
    limit: int
    offset: int = 0
    types: Sequence[str] = ()
    tags: Sequence[str] = ()
    archive_ids: Sequence[str] = ()
    node_ids: Sequence[str] | None = None


class IndexUnavailableError(UnavailableError):
    """The index of vectors and terms does not answer."""

    reason = "INDEX_UNAVAILABLE"

    def __init__(self, detail: str) -> None:
        super().__init__(
            "The search index does not answer. Nothing is lost; send the call again, and check Qdrant if that keeps "
            "failing: the log of the server says how."
        )
        self.detail = detail
        """What the connection said; for the log, never for a client."""


class VectorIndex(Protocol):
    """Vectors and weighted terms of committed versions, searched along a lineage.

    The index proposes, the mirror decides: a hit may be overridden by a nearer line. Errors: ``IndexUnavailableError``
    when it does not answer.
    """

    async def prepare(self) -> None:
        """Create what is missing (collection, payload indexes, alias); safe to repeat."""
        ...

    async def upsert(self, points: Sequence[IndexPoint]) -> None:
        """Put points, replacing those of the same id; visible to searches when this returns."""
        ...

    async def close_versions(self, ended: Sequence[tuple[str, int]]) -> None:
        """Set ``to_seq`` of points (id, to_seq); a missing id is passed over."""
        ...

    async def nearest(self, query: IndexQuery, vector: Vector) -> list[IndexHit]:
        """The alive points nearest by cosine, best first, ties by node id."""
        ...

    async def best_terms(self, query: IndexQuery, terms: TermVector) -> list[IndexHit]:
        """The alive points with the greatest dot product over the terms (all greater than 0), ties by node id."""
        ...

    def scan(self, workspace_id: str) -> AsyncIterator[IndexEntry]:
        """Every point of a workspace, in no order."""
        ...

    async def count(self, workspace_id: str) -> int:
        """How many points a workspace has, exactly."""
        ...

    async def delete(
        self, workspace_id: str, *, lines: Sequence[int] | None = None, keep_lines: Sequence[int] | None = None
    ) -> None:
        """Remove the workspace's points; with ``lines`` only those of these, with ``keep_lines`` those of others.

        ``keep_lines`` is for a caller that keeps new lines from being opened meanwhile; their points would go, too.
        """
        ...

    async def flush(self) -> None:
        """Return when all that was put before is on stable storage."""
        ...


class Embedder(Protocol):
    """Turns texts into unit vectors of one model."""

    @property
    def model(self) -> str:
        """The name of the model; vectors of different models never meet."""
        ...

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        ...

    @property
    def remote(self) -> bool:
        """Whether it is on another machine: then it may keep who asks waiting, and what needs no vector goes on."""
        ...

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit row per text, in order; an empty text gives a fixed unit vector."""
        ...
