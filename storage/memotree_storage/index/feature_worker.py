"""Computes everything that the stores take of many versions, in worker processes.

``python -m memotree_storage.index.feature_worker``: a worker reads the texts from Git itself, embeds them with its own
copy of the model, and returns the bytes that the index and PostgreSQL take. So the service's process does little for
each version of an import, and its calls do not wait for the interpreter.
"""

import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import structlog

from memotree_storage.errors import CorruptError
from memotree_storage.git.database import ObjectDatabase
from memotree_storage.git.objects import BLOB, ObjectMissingError, raw_id
from memotree_storage.index import leaf_features
from memotree_storage.index.node_text import embedded_leaf, embedded_text, shown_tokens, text_of
from memotree_storage.index.points import index_point
from memotree_storage.index.term_counts import term_counts
from memotree_storage.index.worker_process import WorkerEndedError, WorkerProcess, serve
from memotree_storage.memory import return_freed_memory
from memotree_storage.model.codec import decode_entry
from memotree_storage.model.node import Node
from memotree_storage.model.paths import node_path
from memotree_storage.ports import PointEncoder, PortableEmbedder
from memotree_storage.postgres.pending import Pending

_MANY: Final = 1000
"""From this many versions in a batch on, a worker pays off: it needs most of a second to start."""

_VERY_MANY: Final = 4000
"""From this many on, each processor gets a worker."""

_MOST_WORKERS: Final = 2
"""Each needs some 150 MB, and the index alone occupies another processor."""

_log = structlog.get_logger(__name__)


class Encoded(NamedTuple):
    """What the stores take of a slice of versions; a tuple, since it comes over a pipe.

    Attributes:
        points: The requests that insert the points into the index.
        leaf_versions: The versions that have leaf features.
        leaf_rows: Their rows (`leaf_features.row`).
        terms: The terms of the versions that are not counted yet, as 64-bit integers.
        documents: In how many of these versions each term occurs, as 64-bit integers.
        counted: How many of these versions there are.
    """

    points: list[bytes]
    leaf_versions: list[int]
    leaf_rows: bytes
    terms: bytes
    documents: bytes
    counted: int


@dataclass(frozen=True, slots=True, eq=False)
class EncodedSlice:
    """Rows of the outbox as they were read, and what the stores take of them."""

    rows: Sequence[Pending]
    encoded: Encoded

    @property
    def ids(self) -> list[int]:
        """The ids of the rows."""
        return [row.outbox_id for row in self.rows]

    def fits(self, held: Mapping[int, Pending]) -> bool:
        """Whether all rows are held and have not changed since they were read."""
        return all(held.get(row.outbox_id) == row for row in self.rows)


class FeatureWorkers:
    """Worker processes that run from the first large request until `rest`.

    Args:
        embedder: The embedding model.
        encoder: Encodes points for the index.
        repository: Returns the path of a workspace's repository.
    """

    def __init__(self, embedder: PortableEmbedder, encoder: PointEncoder, repository: Callable[[str], Path]) -> None:
        self._repository = repository

        def first() -> bytes:
            return pickle.dumps((embedder, encoder))

        count = max(1, min(_MOST_WORKERS, os.cpu_count() or 1))
        self.workers = [WorkerProcess("memotree_storage.index.feature_worker", first) for _ in range(count)]

    def useful(self, versions: int) -> int:
        """Return how many workers pay off for a batch of versions."""
        return 0 if versions < _MANY else 1 if versions < _VERY_MANY else len(self.workers)

    async def made(self, index: int, workspace_id: str, rows: Sequence[Pending], useful: int) -> EncodedSlice | None:
        """Return what the stores take of some versions.

        ``None`` if a worker cannot do it: it was killed, or a text is missing. Then the work is to be done in this
        process, which finds out what is missing.

        Args:
            index: The number of the index.
            workspace_id: The workspace.
            rows: The versions.
            useful: How many workers may run for it, at least one.
        """
        worker = min(self.workers[:useful], key=lambda worker: worker.waiting)

        def request() -> tuple[Any, ...]:
            return str(self._repository(workspace_id)), index, workspace_id, list(map(tuple, rows))

        try:
            answer = await worker.ask(request)
        except WorkerEndedError as error:
            _log.warning("feature worker ended; its work is done in this process", why=str(error))
            return None
        return None if answer is None else EncodedSlice(rows, Encoded(*answer))

    async def rest(self) -> None:
        """End the workers when they have answered the current requests; the next large request starts others."""
        for worker in self.workers:
            await worker.rest()

    async def stop(self) -> None:
        """End the workers immediately."""
        for worker in self.workers:
            await worker.stop()


def encoded(
    embedder: PortableEmbedder,
    encoder: PointEncoder,
    index: int,
    workspace_id: str,
    rows: Sequence[Pending],
    nodes: Sequence[Node],
) -> Encoded:
    """Compute what the stores take of versions for an index; ``nodes`` are their texts, in the order of the rows."""
    texts = [text_of(node) for node in nodes]
    made = [leaf_features.node_terms(text) for text in texts]
    leaves = [place for place, text in enumerate(texts) if text.has_leaf]
    own_texts = [embedded_leaf(nodes[place], texts[place].own_title) for place in leaves]
    own = dict(zip(leaves, embedder.embed_now(own_texts), strict=True))
    vectors = embedder.embed_now([embedded_text(node) for node in nodes])
    points = [
        index_point(workspace_id, row, terms, vector)
        for row, (terms, _), vector in zip(rows, made, vectors, strict=True)
    ]
    leaf_versions, leaf_rows = list[int](), list[bytes]()
    for place, vector in own.items():
        row, leaf = rows[place], made[place][1]
        if leaf is not None:
            tokens = shown_tokens(nodes[place], row.tokens, texts[place].own_title)
            leaf_versions.append(row.version_id)
            leaf_rows.append(leaf_features.row(index, row.version_id, tokens, leaf, vector))
    fresh = [terms for row, (terms, _) in zip(rows, made, strict=True) if not row.counted]
    counts = term_counts(terms.ids for terms in fresh)
    return Encoded(encoder.encoded(points), leaf_versions, b"".join(leaf_rows), *counts, len(fresh))


class _Answers:
    """The worker's side: opens repositories, and answers requests."""

    _embedder: PortableEmbedder
    _encoder: PointEncoder

    def __init__(self) -> None:
        self._databases: dict[str, ObjectDatabase] = {}

    def begin(self, first: bytes) -> None:
        """Take the model and the encoder of the index."""
        self._embedder, self._encoder = pickle.loads(first)  # noqa: S301 - from our own process, over a private pipe

    def answer(self, request: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return the fields of `Encoded`, or ``None`` if a text is missing."""
        path, index, workspace_id, found = request
        rows = [Pending(*row) for row in found]
        if path not in self._databases:
            self._databases = {path: ObjectDatabase(Path(path) / "objects")}
        try:
            nodes = _read(self._databases[path], rows)
        except (ObjectMissingError, CorruptError):
            return None
        if nodes is None:
            return None
        return tuple(encoded(self._embedder, self._encoder, index, workspace_id, rows, nodes))


def _read(database: ObjectDatabase, rows: Sequence[Pending]) -> list[Node] | None:
    nodes = []
    for row in rows:
        entry = decode_entry(node_path(row.entry_id), database.read_kind(raw_id(row.blob, "blob"), BLOB, "blob"))
        if not isinstance(entry, Node):
            return None
        nodes.append(entry)
    return nodes


def main() -> None:
    """Answer requests until the input ends."""
    return_freed_memory()
    answers = _Answers()
    serve(answers.answer, first=answers.begin)


if __name__ == "__main__":
    main()
