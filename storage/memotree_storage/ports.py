"""The ports of the store: what the service needs from Git and from the index, whatever implements them.

``conformance/`` has one suite of tests per port; an implementation is correct if it passes that suite.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from memotree_storage.errors import UnavailableError

Vector = NDArray[np.float32]
"""One embedding: a unit vector of shape (dimensions,)."""

Vectors = NDArray[np.float32]
"""A batch of embeddings, shape (texts, dimensions)."""


Watch = Callable[[str], AbstractContextManager[object]]
"""What surrounds a use of a store, given its name; whoever wants to know how long that takes gives one."""

_UNWATCHED: Final = nullcontext()


def unwatched(_store: str) -> AbstractContextManager[object]:
    """A `Watch` that does nothing."""
    return _UNWATCHED


# --- Git -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Signature:
    """Name, address and time of an author; ``when`` has a time zone and a precision of seconds."""

    name: str
    email: str
    when: datetime


@dataclass(frozen=True, slots=True)
class TagDraft:
    """An annotated tag to write into the same pack as its commit."""

    name: str
    message: str
    tagger: Signature


FileContent = bytes | Callable[[], bytes]
"""The bytes of a file, or a function that makes them when they are written, so that not all are in memory at once."""


@dataclass(frozen=True, slots=True)
class CommitDraft:
    """A commit to write.

    Attributes:
        parent: Its first parent, whose files it changes; ``None`` for a first commit.
        changes: For each path its new content, or ``None`` to remove the file.
        message: The whole message.
        author: Its author.
        committer: Its committer.
        tag: An annotated tag object to write with it.
        merged: Its further parents, in order.
    """

    parent: str | None
    changes: Mapping[str, FileContent | None]
    message: str
    author: Signature
    committer: Signature
    tag: TagDraft | None = None
    merged: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class WrittenCommit:
    """A commit that no ref points to yet, with the ids of its new blobs by path and of its tag object."""

    commit_id: str
    blobs: Mapping[str, str]
    tag_id: str | None = None


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """A commit as Git stores it; ids are 40 hex digits.

    Anybody may push commits, so names and addresses are cut after 1,000 characters, and the message after 32,768: it
    keeps its beginning and its trailers.
    """

    commit_id: str
    tree_id: str
    parents: tuple[str, ...]
    author: Signature
    committer: Signature
    message: str


@dataclass(frozen=True, slots=True)
class CommitParents:
    """A commit of a history, and its parents; ids are 40 hex digits."""

    commit_id: str
    parents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PathChange:
    """One file that differs between two commits; ``None`` for a side that does not have the file."""

    path: str
    old_blob: str | None
    new_blob: str | None


class OpenPack(AbstractContextManager["OpenPack"], Protocol):
    """Commits that become durable together, in one synced pack. A context manager: leaving it drops what is not synced.

    Each commit may have an earlier one of the pack as its parent. What was written is read through the repository at
    once, so only a caller that keeps others from reading its ids may use it.
    """

    @property
    def size(self) -> int:
        """Bytes of the objects written so far, which are kept in memory."""
        ...

    def write_commit(self, draft: CommitDraft) -> WrittenCommit:
        """Write blobs, trees, commit and tag object; nothing is durable yet. For its errors see `CommitWriter`."""
        ...

    def finish(self) -> None:
        """Sync everything; when this returns, it survives a power cut. No ref moves."""
        ...


class CommitWriter(Protocol):
    """Writes the history of one workspace. Methods block; call them from a thread.

    Every write is durable when the method returns, except into an open pack. Errors: ``ObjectMissingError`` for an id
    that the repository lacks, ``RepositoryUnavailableError`` if the disk refuses (full, read-only),
    ``InvalidRefNameError`` for a name that Git refuses.
    """

    def write_commit(self, draft: CommitDraft) -> WrittenCommit:
        """Write blobs, trees, commit and tag object as one synced pack. No ref moves, so no reader sees it yet."""
        ...

    def open_pack(self) -> OpenPack:
        """Begin a pack of several commits; nothing of it is durable before its ``finish``."""
        ...

    def write_tag(self, draft: TagDraft, commit_id: str) -> str:
        """Write an annotated tag object for a commit and return its id. No ref moves."""
        ...

    def move_ref(self, ref: str, old: str | None, new: str | None) -> bool:
        """Compare and swap: set ``ref`` to ``new`` if it is at ``old`` (``None``: absent); return whether it was."""
        ...


class PathScope(Protocol):
    """The part of a tree that a walk looks at; the rest costs nothing, whatever people have pushed there."""

    def names(self, folder: str) -> str | None:
        """What the wanted names in a folder begin with ("" if all are wanted); ``None`` if the folder is outside.

        ``folder`` is a path that ends with a slash.
        """
        ...

    def beginning_below(self, folder: str) -> str | None:
        """What wanted names in the folders of a folder begin with, followed by the name of their own folder.

        ``None`` if that cannot be said of the folder. Else no wanted name is in the folder itself.
        """
        ...


class ObjectReader(Protocol):
    """Reads the objects of one workspace by id. Methods block; call them from a thread.

    Errors: ``ObjectMissingError`` for an id that the repository lacks, ``RepositoryUnavailableError`` if the disk
    refuses.
    """

    def exists(self, object_id: str) -> bool:
        """Whether the repository has this object."""
        ...

    def commit_info(self, commit_id: str) -> CommitInfo:
        """Return a commit; the id of a tag object is peeled to its commit."""
        ...

    def read_tag(self, object_id: str) -> TagDraft | None:
        """Return the annotated tag with this id; ``None`` if the id names another kind of object."""
        ...

    def read_blob(self, blob_id: str) -> bytes:
        """Return the bytes of a blob."""
        ...

    def read_path(self, commit_id: str, path: str) -> bytes | None:
        """Return the file at ``path`` in a commit; ``None`` if there is none."""
        ...

    def files_beginning(self, commit_id: str, beginnings: Iterable[str]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """Yield each text with the files of a commit whose paths begin with it: path and blob id, by path.

        Only the last name may be incomplete: ``notes/a`` finds ``notes/a.md`` but not ``notes/a/b.md``. A text is taken
        when the files of the one before were. Texts in the order of paths cost least.
        """
        ...

    def diff(self, old: str | None, new: str, scope: "PathScope | None" = None) -> Iterator[PathChange]:
        """Yield the files that differ between two commits, by path; ``old=None`` yields all files of ``new``.

        With a scope, folders outside it are not read, and differences outside it may be left out.
        """
        ...


class CommitReader(ObjectReader, Protocol):
    """Reads the history of one workspace: its refs, the commits that they reach, and their objects."""

    def refs(self, *folders: str) -> dict[str, str]:
        """Return every ref except ``HEAD`` with the object id that it holds, or only those below some folders.

        A folder is like ``refs/heads``, without a slash at its end.
        """
        ...

    def ref(self, name: str) -> str | None:
        """Return the object id that a ref holds, given its full name; ``None`` if there is none."""
        ...

    def peel(self, object_id: str) -> str | None:
        """Return the id of the commit that an object is, or that it names as a tag; ``None`` if it leads to none.

        A tag may name a tag, and so on up to ten; what stands behind more is not looked for.
        """
        ...

    def history(self, tips: Sequence[str], known: Callable[[str], bool]) -> list[CommitParents]:
        """Return all commits that ``tips`` reach and that are not known, each once, parents before children.

        The walk does not go past a known commit; a tip that does not lead to a commit is skipped.
        """
        ...


class CommitStore(CommitWriter, CommitReader, Protocol):
    """Writes and reads the history of one workspace. Its test suite is ``conformance.commit_store``."""


# --- The index of vectors and terms ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TermVector:
    """A text as weighted terms: ``ids`` are 32-bit term hashes, ascending and unique, each with its weight."""

    ids: tuple[int, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LineSpan:
    """The part of a line that is visible at a state: the versions of ``line_id`` that are alive at ``seq``.

    A line is a first-parent chain of commits; see ``docs/explanation/lines.md``. ``number`` is the small number that
    `Override` names it by; 0 if nothing can be overridden by it.
    """

    line_id: int
    seq: int
    number: int = 0


class Override(NamedTuple):
    """A line, by its number in the workspace, that hides a version from ``seq`` on, since it has a newer one.

    Numbers count from 1 to at most 2^27, seqs to at most 2^26: an index may keep both in one double.
    """

    line_number: int
    seq: int


@dataclass(frozen=True, slots=True)
class IndexPoint:
    """One committed version of a node in the index; alive on its line from ``from_seq`` (inclusive) to ``to_seq``.

    ``point_id`` is a UUID; ``to_seq=None`` means alive at the tip. A point without a vector is found by its terms only.
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
    overrides: tuple[Override, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """The fields of a point without its vectors, for ``verify``."""

    point_id: str
    node_id: str
    line_id: int
    from_seq: int
    to_seq: int | None
    overrides: tuple[Override, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexHit:
    """A candidate of a search. The score is the cosine (vector) or the dot product (terms)."""

    point_id: str
    node_id: str
    line_id: int
    from_seq: int
    score: float


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """Where to search: a workspace, the lineage of one state (nearest line first), and optional filters.

    Empty filters match everything. Several types or archives are alternatives; tags must all match; ``node_ids``, if
    not ``None``, limits the search to those nodes, and ``without_ids`` leaves nodes out. A version that a line of the
    lineage overrides at its seq or before is not found.

    With ``every`` all versions are found that the lines had up to their seqs, whether they have ended or not.
    """

    workspace_id: str
    lineage: Sequence[LineSpan]
    limit: int
    offset: int = 0
    types: Sequence[str] = ()
    tags: Sequence[str] = ()
    archive_ids: Sequence[str] = ()
    node_ids: Sequence[str] | None = None
    without_ids: Sequence[str] = ()
    every: bool = False


class IndexUnavailableError(UnavailableError):
    """The index of vectors and terms does not answer."""

    reason = "INDEX_UNAVAILABLE"

    def __init__(self, detail: str) -> None:
        super().__init__(
            "The search index does not answer. Nothing is lost; send the call again, and check Qdrant if that keeps "
            "failing: the log of the server says how."
        )
        self.detail = detail
        """The error of the connection, for the log; never shown to a client."""


class IndexWriter(Protocol):
    """Writes vectors and terms of versions to the index; ``IndexUnavailableError`` if it does not answer."""

    async def prepare(self) -> None:
        """Create what is missing (collection, payload indexes, alias); safe to repeat."""
        ...

    async def remove(self, workspace_ids: Sequence[str]) -> bool:
        """Remove the points of workspaces, and the index if it has no others; return whether it is gone."""
        ...

    async def upsert(self, points: Sequence[IndexPoint]) -> None:
        """Insert points, replacing those with the same id; visible to searches when this returns."""
        ...

    async def close_versions(self, ended: Sequence[tuple[str, int]]) -> None:
        """Set ``to_seq`` of points given as (id, to_seq); missing ids are ignored."""
        ...

    async def override_versions(self, overridden: Sequence[tuple[str, Sequence[Override]]]) -> None:
        """Set all overrides of points given as (id, overrides); missing ids are ignored."""
        ...

    async def delete(
        self, workspace_id: str, *, lines: Sequence[int] | None = None, keep_lines: Sequence[int] | None = None
    ) -> None:
        """Remove the points of a workspace: all, only those of ``lines``, or all except those of ``keep_lines``.

        A caller of ``keep_lines`` must prevent new lines from being opened meanwhile, or their points are removed too.
        """
        ...

    async def flush(self) -> None:
        """Return when everything that was written before is on stable storage."""
        ...


class PointEncoder(Protocol):
    """Encodes points as an index takes them; can be pickled, so that another process encodes."""

    def encoded(self, points: Sequence[IndexPoint]) -> list[bytes]:
        """Return the requests that insert points with different ids."""
        ...


@runtime_checkable
class EncodedIndexWriter(Protocol):
    """An `IndexWriter` that takes points which another process has encoded.

    Errors: ``IndexUnavailableError`` if the index does not answer.
    """

    @property
    def encoder(self) -> PointEncoder:
        """What encodes points for this index."""
        ...

    async def upsert_encoded(self, requests: Sequence[bytes]) -> None:
        """Insert points as ``upsert`` does, from what the encoder has returned for them."""
        ...


class IndexSearch(Protocol):
    """Searches the versions that are alive along a lineage.

    The index only proposes candidates, since it may not have heard yet that a version ended or is overridden; the
    mirror decides. Errors: ``IndexUnavailableError`` if the index does not answer.
    """

    async def nearest(self, query: IndexQuery, vector: Vector) -> list[IndexHit]:
        """Return the alive points nearest by cosine, best first, ties by node id."""
        ...

    async def best_terms(self, query: IndexQuery, terms: TermVector) -> list[IndexHit]:
        """Return the alive points with the greatest dot product over the terms, if above 0; ties by node id."""
        ...


class IndexInventory(Protocol):
    """Lists the content of the index, to compare it with the mirror.

    Errors: ``IndexUnavailableError`` if the index does not answer.
    """

    def scan(self, workspace_id: str) -> AsyncIterator[IndexEntry]:
        """Yield every point of a workspace, in any order."""
        ...

    async def count(self, workspace_id: str) -> int:
        """Return the exact number of points of a workspace."""
        ...


class VectorIndex(IndexWriter, IndexSearch, IndexInventory, Protocol):
    """Vectors and weighted terms of committed versions. Its test suite is ``conformance.vector_index``."""


class Embedder(Protocol):
    """Turns texts into unit vectors of one model."""

    @property
    def model(self) -> str:
        """The name of the model; vectors of different models are never compared."""
        ...

    @property
    def dimensions(self) -> int:
        """The number of dimensions of a vector."""
        ...

    @property
    def is_slow(self) -> bool:
        """Whether vectors may take long: the model is large, or on another machine and perhaps away.

        Work that needs no vectors must then not wait for them.
        """
        ...

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector per text, in order; an empty text gives a fixed unit vector."""
        ...


@runtime_checkable
class PortableEmbedder(Protocol):
    """An `Embedder` that can be pickled; its copy in another process returns the same vectors."""

    def embed_now(self, texts: Sequence[str]) -> Vectors:
        """Return what ``embed`` does, in the calling thread."""
        ...
