"""The index features of a version: computed from its text before the transaction that writes them to the index.

An embedding may come from another machine, or may not come at all. So it is computed while no row is locked and no
connection is held, and the terms of a text are available without it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import structlog

from memotree_storage.concurrency.cancellation import cancel_and_wait
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import CorruptError
from memotree_storage.git.objects import ObjectMissingError
from memotree_storage.index import leaf_features
from memotree_storage.index.feature_worker import EncodedSlice, FeatureWorkers
from memotree_storage.index.leaf_features import LeafFeatures
from memotree_storage.index.node_text import embedded_text, shown_tokens
from memotree_storage.index.term_worker import TermMaker
from memotree_storage.mirror.entries import EntryReader
from memotree_storage.model.node import Node
from memotree_storage.model.paths import node_path
from memotree_storage.ports import Embedder, EncodedIndexWriter, IndexWriter, PortableEmbedder, TermVector, Vector
from memotree_storage.postgres.pending import Pending

_AHEAD: Final = 2
"""Slices that are processed before they are taken; as many for each worker process."""

_log = structlog.get_logger(__name__)

_Piece = TypeVar("_Piece")
_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True, eq=False)
class VersionFeatures:
    """The features of one version; without vector and leaf features if only words were requested."""

    terms: TermVector
    vector: Vector | None
    leaf: LeafFeatures | None


@dataclass(frozen=True, slots=True, eq=False)
class FeatureSlice:
    """Rows of the outbox, and their features by id; a row whose text is missing in Git has no features."""

    ids: tuple[int, ...]
    features: dict[int, VersionFeatures]

    def held(self, rows: Mapping[int, Pending]) -> list[tuple[Pending, VersionFeatures]]:
        """Return the features of rows that are held; a rebuild or another caller has processed the others."""
        return [(rows[number], features) for number, features in self.features.items() if number in rows]


class FeatureMaker:
    """Computes the features of versions from their texts in Git."""

    def __init__(self, embedder: Embedder, entries: EntryReader, index: IndexWriter) -> None:
        self._embedder = embedder
        self._entries = entries
        self._terms = TermMaker()
        self._workers: FeatureWorkers | None = None
        if isinstance(embedder, PortableEmbedder) and isinstance(index, EncodedIndexWriter):
            self._workers = FeatureWorkers(embedder, index.encoder, entries.repository_path)

    async def encoded(
        self, index: int, workspace_id: str, rows: Sequence[Pending], *, among: int
    ) -> FeatureSlice | EncodedSlice:
        """Return versions ready for the stores if a worker process pays off and can do it, else their features.

        Args:
            index: The number of the index.
            workspace_id: The workspace.
            rows: A slice of the versions.
            among: How many versions there are to process.
        """
        if self._workers is not None and (useful := self._workers.useful(among)):
            made = await self._workers.made(index, workspace_id, rows, useful)
            if made is not None:
                return made
        return await self.made(workspace_id, rows)

    def ahead(self, among: int) -> int:
        """Return how many slices are best processed at the same time, given how many versions there are."""
        return _AHEAD * max(1, self._workers.useful(among) if self._workers is not None else 0)

    async def rest(self) -> None:
        """End the worker processes when they have answered the current requests."""
        await self._terms.rest()
        if self._workers is not None:
            await self._workers.rest()

    async def stop(self) -> None:
        """End the worker processes immediately."""
        await self._terms.stop()
        if self._workers is not None:
            await self._workers.stop()

    async def made(self, workspace_id: str, rows: Sequence[Pending], *, only_words: bool = False) -> FeatureSlice:
        """Return the features of versions; one whose text is missing in Git has none, and `verify` reports it."""
        read = await self._read(workspace_id, rows)
        nodes = [node for _, node in read]
        if only_words:
            terms = await self._terms.terms_of(nodes)
            found = [VersionFeatures(term, None, None) for term, _ in terms]
        else:
            vectors, own, terms, tokens = await asyncio.gather(
                self._embedder.embed([embedded_text(node) for node in nodes]),
                leaf_features.leaf_vectors(nodes, self._embedder),
                self._terms.terms_of(nodes),
                in_store_thread(lambda: [shown_tokens(node, row.tokens) for row, node in read]),
            )
            found = [
                VersionFeatures(term, vector, leaf_features.made(count, leaf, content))
                for count, vector, content, (term, leaf) in zip(tokens, vectors, own, terms, strict=True)
            ]
        by_id = {row.outbox_id: features for (row, _), features in zip(read, found, strict=True)}
        return FeatureSlice(tuple(row.outbox_id for row in rows), by_id)

    async def _read(self, workspace_id: str, rows: Sequence[Pending]) -> list[tuple[Pending, Node]]:
        try:
            entries = await self._entries.read(workspace_id, {row.blob: node_path(row.entry_id) for row in rows})
        except (ObjectMissingError, CorruptError) as error:
            if len(rows) > 1:
                return [pair for row in rows for pair in await self._read(workspace_id, [row])]
            _log.error("version not indexed", workspace=workspace_id, node=rows[0].entry_id, why=error.message)
            return []
        return [(row, node) for row in rows if isinstance(node := entries[row.blob], Node)]


class Prefetcher(Generic[_Piece, _Made]):
    """Processes items in order, a few ahead of the consumer.

    Args:
        pieces: The items.
        make: Processes one item.
        ahead: How many items are processed before they are taken.
    """

    def __init__(
        self, pieces: Iterable[_Piece], make: Callable[[_Piece], Awaitable[_Made]], ahead: int = _AHEAD
    ) -> None:
        self._pieces = deque(pieces)
        self._make = make
        self._ahead = ahead
        self._making: deque[asyncio.Task[_Made]] = deque()

    @property
    def over(self) -> bool:
        """Whether everything was consumed."""
        return not self._pieces and not self._making

    async def take(self) -> _Made | None:
        """Wait for the next result; ``None`` after the last one. Raises what processing the item raised."""
        self.begin()
        if not self._making:
            return None
        await asyncio.wait([self._making[0]])
        return await self._making.popleft()

    async def take_soon(self, seconds: float) -> _Made | None:
        """Wait up to ``seconds`` for the next result; ``None`` if it is not ready or failed (`take` raises)."""
        self.begin()
        if not self._making:
            return None
        await asyncio.wait([self._making[0]], timeout=seconds)
        if not self._making[0].done() or self._making[0].cancelled() or self._making[0].exception() is not None:
            return None
        return self._making.popleft().result()

    async def stop(self) -> None:
        """Cancel the work in progress."""
        await cancel_and_wait(self._making)

    def begin(self) -> None:
        """Begin with the first items."""
        while self._pieces and len(self._making) < self._ahead:
            self._making.append(asyncio.create_task(self._one(self._pieces.popleft())))

    async def _one(self, piece: _Piece) -> _Made:
        return await self._make(piece)
