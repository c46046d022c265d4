"""Search at one state: the index proposes candidates, the mirror decides, staged changes are scored separately.

Words are scored by BM25 with the workspace's own document frequencies, meaning by the cosine of summaries. A candidate
counts only if it is exactly the version that is visible at the state: SQL checks nearer lines, deletions and staged
changes.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from memotree_storage.cache import BoundedCache
from memotree_storage.concurrency.threads import in_store_thread, in_thread_if_long
from memotree_storage.index.frequencies import ALL_DOCUMENTS, Frequencies
from memotree_storage.index.indexer import Indexer
from memotree_storage.index.node_text import embedded_text, text_of
from memotree_storage.index.query_weights import max_score, relative_score, term_weights
from memotree_storage.index.terms import QueryTerm, document_terms, query_terms
from memotree_storage.model.node import Node
from memotree_storage.model.tokens import in_pieces
from memotree_storage.ports import Embedder, IndexHit, IndexQuery, IndexSearch, LineSpan, TermVector, Vector
from memotree_storage.postgres import search_reads, staging
from memotree_storage.postgres.database import Database
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.search_reads import SearchBasis
from memotree_storage.postgres.tree import Snapshot, State

_SLACK: Final = 10
"""Candidates requested in addition to the wanted hits, since some may not be visible at the state."""

_MOST_CANDIDATES: Final = 20_000
"""How many candidates are looked at for hits among very many given ids, before the ids are queried batch by batch."""

_MOST_IDS: Final = 2_000
"""The maximum number of ids in one query to the index."""

_FEW_PARTS: Final = 5
"""Up to this many times `_MOST_IDS`, the ids of a query go straight to the index, batch by batch."""

_MOST_TRIES: Final = 4
"""How often a search starts again because its lines were rebuilt in the meantime."""

_FUSION_RANK: Final = 60.0
"""The constant of reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009)."""

_PAST_NODES: Final = 20
"""How many notes of each ranking are the candidates of a question about the past."""

_PAST_ROUNDS: Final = 5
"""How often more candidates are asked for, if the first ones are versions of few notes."""

_PAST_VERSIONS: Final = 2_000
"""The most versions of the candidates."""

_MOST_LINES: Final = 500
"""The most lines of a history that are searched."""

_CACHED_BYTES: Final = 64 << 20
_READ_AT_ONCE: Final = 500
_TOKENS_AT_ONCE: Final = 1 << 20
"""Staged nodes, and tokens of their contents, that are in memory at the same time."""

_FEW_ROWS: Final = 100
"""Up to this many staged nodes are scored directly; more are scored in a thread, so that other calls can run."""


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What to search for and where. Empty filters match everything; ``node_ids=None`` means no limit.

    ``term_counts`` are the frequencies of the terms of the text, if they are not to be read.
    """

    text: str
    limit: int
    words: bool = True
    meaning: bool = False
    types: Collection[str] = ()
    tags: Collection[str] = ()
    archive_ids: Collection[str] = ()
    node_ids: Collection[str] | None = None
    term_counts: Frequencies | None = None


@dataclass(frozen=True, slots=True)
class FoundNode:
    """A hit: its version, its score from 0 to 1, and the parts from words and meaning (0 if not searched)."""

    version: Version
    score: float
    words: float = 0.0
    meaning: float = 0.0


@dataclass(frozen=True, slots=True)
class PastHits:
    """The versions of notes that a question finds in a history.

    Attributes:
        scores: The mean of their scores by words and by meaning, from 0 to 1, by node, line and seq.
        complete: Whether all versions of these notes were scored.
    """

    scores: Mapping[tuple[str, int, int], float]
    complete: bool


@dataclass(frozen=True, slots=True)
class _Scored:
    """The index fields of a staged node: ascending term ids with their weights, and the vector if it was needed."""

    ids: NDArray[np.uint32]
    weights: NDArray[np.float64]
    vector: Vector | None

    def weigh(self) -> int:
        return 500 + self.ids.nbytes + self.weights.nbytes + (0 if self.vector is None else self.vector.nbytes)


_Items = list[tuple[Version, _Scored]]


@dataclass(frozen=True, slots=True)
class _Overlay:
    """The staged changes of a session: the alive nodes that match the filters, and the ids of all changed nodes."""

    items: _Items = field(default_factory=list)
    changed: tuple[str, ...] = ()


_Pairs = list[tuple[Version, float]]
_Ask = Callable[[IndexQuery], Coroutine[Any, Any, list[IndexHit]]]


@dataclass(frozen=True, slots=True)
class _Ranking:
    """One way to find nodes: by words or by meaning.

    Attributes:
        ask: Asks the index for candidates.
        relative: Makes a score from 0 to 1 of one of the index.
        score: Scores a staged node in the same way.
        found: Makes hits, by id, of versions with their scores.
    """

    ask: _Ask
    relative: Callable[[float], float]
    score: Callable[[_Scored], float]
    found: Callable[[_Pairs], dict[str, FoundNode]]


class Search:
    """Finds nodes by words and by meaning at any state of any workspace."""

    def __init__(
        self,
        database: Database,
        index: IndexSearch,
        embedder: Embedder,
        indexer: Indexer,
        in_use: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._in_use = in_use
        self._database = database
        self._index = index
        self._embedder = embedder
        self._indexer = indexer
        self._staged: BoundedCache[str, _Scored] = BoundedCache(_CACHED_BYTES, _Scored.weigh)

    async def find(self, state: State, query: SearchQuery) -> list[FoundNode]:
        """Return the best nodes at a state, best first, ties by id.

        A search by words alone does not use an embedding model on another machine, so it also works while that is away.

        Raises:
            IndexUnavailableError: The index does not answer.
            DatabaseUnavailableError: PostgreSQL does not answer.
            UnavailableError: The search is by meaning, and the embedding model does not answer.
        """
        if query.node_ids is not None and not query.node_ids:
            return []
        with self._in_use():
            return await self._find(state, query)

    async def _find(self, state: State, query: SearchQuery) -> list[FoundNode]:
        # The overlay first: staged rows that a commit takes away after this are found through the index.
        overlay = await self._overlay(state, query)
        terms = await in_thread_if_long(len(query.text), query_terms, query.text) if query.words else []
        if not terms and not query.meaning:
            return []
        basis, *vectors = await self._basis_and_vector(state, query, terms)
        asked = [self._by_words(query, overlay, terms, basis)] if terms else []
        asked += [self._by_meaning(vector) for vector in vectors]
        pairs = await self._checked(state, query, overlay, basis.lineage, [each.ask for each in asked])
        ranks = [
            each.found(some + await _scores(overlay.items, each.score)) for each, some in zip(asked, pairs, strict=True)
        ]
        if query.words and query.meaning:
            ranks = [_fused(*ranks) if terms else _fused({}, *ranks)]
        return sorted(ranks[0].values(), key=lambda hit: (-hit.score, hit.version.entry_id))[: query.limit]

    async def find_in_history(self, state: State, reached: Mapping[int, int], text: str) -> PastHits:
        """Find the notes of all times that a question means, and score all their versions that a commit has behind it.

        Args:
            state: The commit, whose frequencies of words count.
            reached: What it reaches, as `merge_bases.history_of` returns it.
            text: The question.

        Raises:
            IndexUnavailableError: The index does not answer.
            UnavailableError: The embedding model does not answer.
        """
        with self._in_use():
            return await self._find_in_history(state, reached, text)

    async def _find_in_history(self, state: State, reached: Mapping[int, int], text: str) -> PastHits:
        query = SearchQuery(text, _PAST_NODES, meaning=True)
        terms = await in_thread_if_long(len(text), query_terms, text)
        basis, *vectors = await self._basis_and_vector(state, query, terms)
        rankings = [self._by_words(query, _Overlay(), terms, basis)] if terms else []
        rankings += [self._by_meaning(vector) for vector in vectors]
        lines = [LineSpan(line_id, seq) for line_id, seq in list(reached.items())[:_MOST_LINES]]
        part = IndexQuery(state.workspace_id, lines, _PAST_NODES, every=True)
        nodes: set[str] = set()
        for ranking in rankings:
            nodes |= await _best_nodes(ranking.ask, part)
        part = replace(part, limit=_PAST_VERSIONS, node_ids=sorted(nodes))
        scores: dict[tuple[str, int, int], float] = {}
        complete = len(lines) == len(reached)
        for ranking in rankings:
            hits = await ranking.ask(part) if nodes else []
            complete = complete and len(hits) < _PAST_VERSIONS
            for hit in hits:
                key = (hit.node_id, hit.line_id, hit.from_seq)
                scores[key] = scores.get(key, 0.0) + ranking.relative(hit.score) / len(rankings)
        return PastHits({key: score for key, score in scores.items() if score > 0}, complete)

    async def _basis_and_vector(
        self, state: State, query: SearchQuery, terms: Sequence[QueryTerm]
    ) -> tuple[SearchBasis, *tuple[Vector, ...]]:
        """Return what a search needs before it asks the index: the basis, and for one by meaning the query's vector."""
        reading = self._basis(state, query, terms)
        if not query.meaning:
            return (await reading,)
        basis, vectors = await asyncio.gather(reading, self._embedder.embed([query.text]))
        return basis, vectors[0]

    async def _basis(self, state: State, query: SearchQuery, terms: Sequence[QueryTerm]) -> SearchBasis:
        """Return the basis as it is when the index reflects every row that was committed before this call."""
        basis = await self._read_basis(state, query, terms)
        if basis.is_behind:
            await self._indexer.current(state.workspace_id, meaning=query.meaning)
            basis = await self._read_basis(state, query, terms)
        return basis

    async def _read_basis(self, state: State, query: SearchQuery, terms: Sequence[QueryTerm]) -> SearchBasis:
        after = self._indexer.known_until(state.workspace_id, meaning=query.meaning)
        wanted = [ALL_DOCUMENTS, *(term.id for term in terms)] if query.term_counts is None else []
        async with self._database.connection() as conn:
            snapshot, number = Snapshot(conn, state), self._indexer.number
            return await search_reads.basis(snapshot, index=number, after=after, terms=wanted)

    def _by_words(
        self, query: SearchQuery, overlay: _Overlay, terms: Sequence[QueryTerm], basis: SearchBasis
    ) -> _Ranking:
        found = query.term_counts or Frequencies.of(basis.counts)
        known, documents = found.having, found.versions + len(overlay.items)
        weights = term_weights(terms, known, documents)
        best = max_score(terms, known, documents)
        return _Ranking(
            ask=lambda part: self._index.best_terms(part, weights),
            relative=lambda score: relative_score(score, best) if score > 0 else 0.0,
            score=lambda item: _dot(weights, item),
            found=lambda pairs: {
                version.entry_id: FoundNode(version, relative, words=relative)
                for version, score in pairs
                if score > 0 and (relative := relative_score(score, best)) > 0
            },
        )

    def _by_meaning(self, vector: Vector) -> _Ranking:
        return _Ranking(
            ask=lambda part: self._index.nearest(part, vector),
            relative=lambda cosine: min(1.0, max(0.0, cosine)),
            score=lambda item: _cosine(vector, item),
            found=lambda pairs: {
                version.entry_id: FoundNode(version, score, meaning=score)
                for version, cosine in pairs
                if (score := min(1.0, max(0.0, cosine))) > 0
            },
        )

    async def _checked(
        self, state: State, query: SearchQuery, overlay: _Overlay, lineage: list[LineSpan], asks: Sequence[_Ask]
    ) -> list[_Pairs]:
        """Return for each ranking its candidates that are really visible at the state.

        If there are very many ids, query without them first, which needs fewer queries if many of the best hits are
        among the ids. Only for rankings in which that does not find enough, query the ids batch by batch.
        """
        ids = None if query.node_ids is None else sorted(query.node_ids)
        good: dict[int, _Pairs] = {}
        if ids is None or len(ids) > _FEW_PARTS * _MOST_IDS:
            found, lineage = await self._asked(state, query, overlay, lineage, None, asks)
            good = {number: pairs for number, (pairs, complete) in enumerate(found) if complete or ids is None}
        rest = [number for number in range(len(asks)) if number not in good]
        for start in range(0, len(ids or ()) if rest else 0, _MOST_IDS):
            some = (ids or [])[start : start + _MOST_IDS]
            found, lineage = await self._asked(state, query, overlay, lineage, some, [asks[each] for each in rest])
            for number, (pairs, _) in zip(rest, found, strict=True):
                good[number] = good.get(number, []) + pairs
        return [good.get(number, []) for number in range(len(asks))]

    async def _asked(
        self,
        state: State,
        query: SearchQuery,
        overlay: _Overlay,
        lineage: list[LineSpan],
        ids: list[str] | None,
        asks: Sequence[_Ask],
    ) -> tuple[list[tuple[_Pairs, bool]], list[LineSpan]]:
        """Return the visible candidates of each ranking, and whether they are complete; and the lineage they are from.

        More candidates are requested until they are. Complete means that there are enough, or no more. The index itself
        leaves out what a nearer line or the session hides, so candidates that are not visible are few: those of
        versions that ended while it was not told. Only a search without the ids of its query gives up early, since the
        caller can ask for these ids instead.

        No connection is held while the index is queried. If the lines were rebuilt in the meantime, their points may
        have been deleted before the index was queried, so the query is repeated along the new lines.
        """
        # Fusing two rankings needs more than the wanted hits of each: second place in one may be the best in both.
        first, tries = (2 if query.words and query.meaning else 1) * (query.limit + _SLACK), 0
        wanted = dict.fromkeys(range(len(asks)), first)
        done: dict[int, tuple[_Pairs, bool]] = {}
        while wanted:
            part = IndexQuery(
                workspace_id=state.workspace_id,
                lineage=lineage,
                limit=first,
                types=sorted(query.types),
                tags=sorted(query.tags),
                archive_ids=sorted(query.archive_ids),
                node_ids=ids,
                without_ids=overlay.changed,
            )
            lists = await _all_of([asks[number](replace(part, limit=most)) for number, most in wanted.items()])
            async with self._database.connection() as conn:
                named = {hit.node_id for candidates in lists for hit in candidates}
                shown = await search_reads.shown_versions(Snapshot(conn, state), named)
            if shown.lineage != lineage and tries < _MOST_TRIES:
                lineage, tries = shown.lineage, tries + 1
                await self._indexer.current(state.workspace_id, meaning=query.meaning)
                continue
            for (number, most), candidates in zip(list(wanted.items()), lists, strict=True):
                good = _good(candidates, shown.versions, query)
                complete = len(good) >= query.limit or len(candidates) < most
                wanted[number] = 4 * most
                if complete or (ids is None and query.node_ids is not None and most >= _MOST_CANDIDATES):
                    done[number] = (good, complete)
                    del wanted[number]
        return [done[number] for number in range(len(asks))], lineage

    async def _overlay(self, state: State, query: SearchQuery) -> _Overlay:
        """Return the staged changes, with terms and vectors of the nodes that match; only uncached ones are read."""
        if state.session_id is None:
            return _Overlay()
        async with self._database.connection() as conn:
            rows = await staging.staged(conn, state.session_id, data=False)
        found: _Items = []
        missing: list[Version] = []
        for row in rows:
            if row.version.dead or row.version.is_archive or not _matches(row.version, query):
                continue
            cached = self._staged.get(row.version.blob)
            if cached is None or (query.meaning and cached.vector is None):
                missing.append(row.version)
            else:
                found.append((row.version, cached))
        for some in in_pieces(missing, _READ_AT_ONCE, _TOKENS_AT_ONCE):
            found += await self._overlaid(state.session_id, [version.entry_id for version in some], query)
        return _Overlay(found, tuple(row.version.entry_id for row in rows if not row.version.is_archive))

    async def _overlaid(self, session_id: str, ids: Sequence[str], query: SearchQuery) -> _Items:
        """Read and score some staged nodes; one that has been committed since is found through the index."""
        async with self._database.connection() as conn:
            rows = await staging.staged(conn, session_id, ids=ids)
        entries = await in_store_thread(lambda: [row.entry for row in rows])
        pairs = [
            (row.version, entry)
            for row, entry in zip(rows, entries, strict=True)
            if isinstance(entry, Node) and _matches(row.version, query)
        ]
        if not pairs:
            return []
        vectors: Iterable[Vector | None] = repeat(None, len(pairs))
        if query.meaning or not self._embedder.is_slow:
            vectors = await self._embedder.embed([embedded_text(node) for _, node in pairs])
        terms = await in_store_thread(_terms_of, [node for _, node in pairs])
        made: _Items = []
        for (version, _), vector, term in zip(pairs, vectors, terms, strict=True):
            # A copy: a view of one row would keep the whole batch in memory.
            own = None if vector is None else vector.copy()
            item = _Scored(np.array(term.ids, np.uint32), np.array(term.weights, np.float64), own)
            self._staged.put(version.blob, item)
            made.append((version, item))
        return made


def _good(candidates: Sequence[IndexHit], shown: Mapping[str, Version], query: SearchQuery) -> _Pairs:
    """The candidates that are exactly the versions visible at the state."""
    return [
        (version, hit.score)
        for hit in candidates
        if (version := shown.get(hit.node_id)) is not None
        and (version.line_id, version.from_seq) == (hit.line_id, hit.from_seq)
        and _matches(version, query)
    ]


async def _best_nodes(ask: _Ask, part: IndexQuery) -> set[str]:
    """The nodes with the best versions; one with many versions does not keep others out."""
    found: set[str] = set()
    for _ in range(_PAST_ROUNDS):
        hits = await ask(replace(part, without_ids=sorted(found)))
        found |= {hit.node_id for hit in hits}
        if len(found) >= part.limit or len(hits) < part.limit:
            break
    return found


async def _all_of(asked: Sequence[Coroutine[Any, Any, list[IndexHit]]]) -> list[list[IndexHit]]:
    """Await all at once; a single one in this task, since another would only cost time."""
    return [await asked[0]] if len(asked) == 1 else await asyncio.gather(*asked)


async def _scores(items: _Items, score: Callable[[_Scored], float]) -> _Pairs:
    def scored() -> _Pairs:
        return [(version, score(item)) for version, item in items]

    return await in_store_thread(scored) if len(items) > _FEW_ROWS else scored()


def _terms_of(nodes: Sequence[Node]) -> list[TermVector]:
    return [document_terms(text_of(node)) for node in nodes]


def _matches(version: Version, query: SearchQuery) -> bool:
    return (
        (not query.types or version.type in query.types)
        and (not query.tags or set(query.tags) <= set(version.tags))
        and (not query.archive_ids or version.archive_id in query.archive_ids)
        and (query.node_ids is None or version.entry_id in query.node_ids)
    )


def _cosine(wanted: Vector, item: _Scored) -> float:
    return 0.0 if item.vector is None else float(np.dot(wanted, item.vector))


def _dot(wanted: TermVector, item: _Scored) -> float:
    if not len(item.ids):
        return 0.0
    ids = np.array(wanted.ids, np.uint32)
    places = np.minimum(np.searchsorted(item.ids, ids), len(item.ids) - 1)
    return float(np.sum(np.where(item.ids[places] == ids, item.weights[places], 0.0) * np.array(wanted.weights)))


def _fused(words: Mapping[str, FoundNode], meaning: Mapping[str, FoundNode]) -> dict[str, FoundNode]:
    """Combine both rankings by reciprocal rank fusion, with each share weighted by the hit's score in that ranking.

    With ranks alone, the first hit of a search that found nothing relevant would get the score of a perfect one. So
    only a hit that is first in both rankings, has every word of the query and a cosine of 1 gets a score of 1.
    """
    scores: dict[str, float] = {}
    for ranking in (words, meaning):
        ordered = sorted(ranking.values(), key=lambda hit: (-hit.score, hit.version.entry_id))
        for rank, hit in enumerate(ordered, start=1):
            scores[hit.version.entry_id] = scores.get(hit.version.entry_id, 0.0) + hit.score / (_FUSION_RANK + rank)
    top = 2.0 / (_FUSION_RANK + 1)
    return {
        entry_id: FoundNode(
            version=(words.get(entry_id) or meaning[entry_id]).version,
            score=min(1.0, score / top),
            words=words[entry_id].words if entry_id in words else 0.0,
            meaning=meaning[entry_id].meaning if entry_id in meaning else 0.0,
        )
        for entry_id, score in scores.items()
    }
