"""Search at one state: the index proposes along the lineage, the mirror decides, staged changes are scored beside it.

Words are BM25 with the workspace's own document frequencies, meaning is the cosine of summaries. A candidate counts
only when it is the very version that the state shows: SQL has looked at nearer lines, deletions and staged changes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from memotree_storage.git.cache import BoundedCache
from memotree_storage.indexer import ALL_DOCUMENTS, Indexer, embedded_text
from memotree_storage.node import Node
from memotree_storage.ports import Embedder, IndexHit, IndexQuery, LineSpan, TermVector, Vector, VectorIndex
from memotree_storage.postgres import staging, tree
from memotree_storage.postgres.database import Connection, Database
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import State
from memotree_storage.terms import QueryTerm, document_terms, max_score, query_terms, relative_score, term_weights

_SLACK: Final = 20
_MOST_CANDIDATES: Final = 20_000
_MOST_IDS: Final = 2_000
_FUSION_RANK: Final = 60.0
"""The constant of reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009)."""

_CACHED_ROWS: Final = 20_000


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What to search for and where; empty filters match everything, ``node_ids=None`` is no limit."""

    text: str
    limit: int
    words: bool = True
    meaning: bool = False
    types: Collection[str] = ()
    tags: Collection[str] = ()
    archive_ids: Collection[str] = ()
    node_ids: Collection[str] | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """A hit: its version, its score from 0 to 1, and the share of words and meaning (0 when not asked for)."""

    version: Version
    score: float
    words: float = 0.0
    meaning: float = 0.0


@dataclass(frozen=True, slots=True)
class _Overlay:
    """A staged node with what the index would hold of it."""

    version: Version
    terms: TermVector
    vector: Vector


_Ask = Callable[[IndexQuery], Awaitable[list[IndexHit]]]


class Search:
    """Finds nodes by words and meaning at any state of any workspace."""

    def __init__(self, database: Database, index: VectorIndex, embedder: Embedder, indexer: Indexer) -> None:
        self._database = database
        self._index = index
        self._embedder = embedder
        self._indexer = indexer
        self._staged: BoundedCache[str, _Overlay] = BoundedCache(_CACHED_ROWS, lambda _: 1)

    async def find(self, state: State, query: SearchQuery) -> list[Found]:
        """The best nodes of a state, best first, equals by id.

        Raises:
            IndexUnavailableError: The index does not answer.
            DatabaseUnavailableError: PostgreSQL does not answer.
        """
        if query.node_ids is not None and not query.node_ids:
            return []
        # In this order: what a commit takes away from the staged rows meanwhile is found through the index as well.
        async with self._database.connection() as conn:
            overlay = await self._overlay(conn, state, query)
        await self._indexer.current(state.workspace_id)
        async with self._database.connection() as conn:
            lineage = await lineage_of(conn, state)
            ranks: list[dict[str, Found]] = []
            if query.words:
                ranks.append(await self._by_words(conn, state, query, lineage, overlay))
            if query.meaning:
                ranks.append(await self._by_meaning(conn, state, query, lineage, overlay))
        found = ranks[0] if len(ranks) == 1 else _fused(*ranks)
        return sorted(found.values(), key=lambda hit: (-hit.score, hit.version.entry_id))[: query.limit]

    async def _by_words(
        self, conn: Connection, state: State, query: SearchQuery, lineage: list[LineSpan], overlay: list[_Overlay]
    ) -> dict[str, Found]:
        terms = query_terms(query.text)
        if not terms:
            return {}
        frequencies, documents = await _frequencies(conn, state.workspace_id, terms)
        documents += len(overlay)
        weights = term_weights(terms, frequencies, documents)
        best = max_score(terms, frequencies, documents)
        wanted = dict(zip(weights.ids, weights.weights, strict=True))
        scores = {item.version.entry_id: _dot(wanted, item.terms) for item in overlay}
        hits = await self._checked(conn, state, query, lineage, lambda part: self._index.best_terms(part, weights))
        hits += [(item.version, scores[item.version.entry_id]) for item in overlay]
        return {
            version.entry_id: Found(version, relative, words=relative)
            for version, score in hits
            if score > 0 and (relative := relative_score(score, best)) > 0
        }

    async def _by_meaning(
        self, conn: Connection, state: State, query: SearchQuery, lineage: list[LineSpan], overlay: list[_Overlay]
    ) -> dict[str, Found]:
        vector = (await self._embedder.embed([query.text]))[0]
        hits = await self._checked(conn, state, query, lineage, lambda part: self._index.nearest(part, vector))
        hits += [(item.version, float(np.dot(vector, item.vector))) for item in overlay]
        return {
            version.entry_id: Found(version, score, meaning=score)
            for version, cosine in hits
            if (score := min(1.0, max(0.0, cosine))) > 0
        }

    async def _checked(
        self, conn: Connection, state: State, query: SearchQuery, lineage: list[LineSpan], ask: _Ask
    ) -> list[tuple[Version, float]]:
        """The candidates that the state really shows; asks for more until there are enough or no more."""
        ids = None if query.node_ids is None or len(query.node_ids) > _MOST_IDS else sorted(query.node_ids)
        wanted = 2 * query.limit + _SLACK
        while True:
            part = IndexQuery(
                workspace_id=state.workspace_id,
                lineage=lineage,
                limit=wanted,
                types=sorted(query.types),
                tags=sorted(query.tags),
                archive_ids=sorted(query.archive_ids),
                node_ids=ids,
            )
            candidates = await ask(part)
            shown = await tree.versions(conn, state, {hit.node_id for hit in candidates})
            good = [
                (version, hit.score)
                for hit in candidates
                if (version := shown.get(hit.node_id)) is not None
                and (version.line_id, version.from_seq) == (hit.line_id, hit.from_seq)
                and _matches(version, query)
            ]
            if len(good) >= query.limit or len(candidates) < wanted or wanted >= _MOST_CANDIDATES:
                return good
            wanted = min(4 * wanted, _MOST_CANDIDATES)

    async def _overlay(self, conn: Connection, state: State, query: SearchQuery) -> list[_Overlay]:
        """The alive staged nodes that match the filters, with terms and vectors."""
        if state.session_id is None:
            return []
        rows = [
            row
            for row in await staging.staged(conn, state.session_id)
            if not row.version.dead and not row.version.is_archive and _matches(row.version, query)
        ]
        found = {row.version.blob: self._staged.get(row.version.blob) for row in rows}
        missing = [row for row in rows if found[row.version.blob] is None]
        if missing:
            nodes = [node for row in missing if isinstance(node := row.entry, Node)]
            vectors = await self._embedder.embed([embedded_text(node) for node in nodes])
            terms = await asyncio.to_thread(_terms_of, nodes)
            for row, vector, term in zip(missing, vectors, terms, strict=True):
                made = _Overlay(row.version, term, vector)
                self._staged.put(row.version.blob, made)
                found[row.version.blob] = made
        shown = ((row.version, found[row.version.blob]) for row in rows)
        return [replace(item, version=version) for version, item in shown if item is not None]


def _terms_of(nodes: Sequence[Node]) -> list[TermVector]:
    return [document_terms(node.title, node.tags, node.brief, node.summary, node.content) for node in nodes]


def _matches(version: Version, query: SearchQuery) -> bool:
    return (
        (not query.types or version.type in query.types)
        and (not query.tags or set(query.tags) <= set(version.tags))
        and (not query.archive_ids or version.archive_id in query.archive_ids)
        and (query.node_ids is None or version.entry_id in query.node_ids)
    )


def _dot(wanted: Mapping[int, float], terms: TermVector) -> float:
    return sum(wanted.get(term, 0.0) * weight for term, weight in zip(terms.ids, terms.weights, strict=True))


def _fused(words: Mapping[str, Found], meaning: Mapping[str, Found]) -> dict[str, Found]:
    """Both rankings as one by reciprocal ranks, scaled so that the first of both has 1."""
    scores: dict[str, float] = {}
    for ranking in (words, meaning):
        ordered = sorted(ranking.values(), key=lambda hit: (-hit.score, hit.version.entry_id))
        for rank, hit in enumerate(ordered, start=1):
            scores[hit.version.entry_id] = scores.get(hit.version.entry_id, 0.0) + 1.0 / (_FUSION_RANK + rank)
    top = 2.0 / (_FUSION_RANK + 1)
    return {
        entry_id: Found(
            version=(words.get(entry_id) or meaning[entry_id]).version,
            score=min(1.0, score / top),
            words=words[entry_id].words if entry_id in words else 0.0,
            meaning=meaning[entry_id].meaning if entry_id in meaning else 0.0,
        )
        for entry_id, score in scores.items()
    }


async def lineage_of(conn: Connection, state: State) -> list[LineSpan]:
    """The lines that a state sees, nearest first."""
    statement = f"with {tree.LINE} select line_id, seq from line order by depth"  # noqa: S608 - a constant of tree.py
    cursor = await conn.execute(statement, state.arguments())
    return [LineSpan(row[0], row[1]) for row in await cursor.fetchall()]


async def _frequencies(conn: Connection, workspace_id: str, terms: Sequence[QueryTerm]) -> tuple[dict[int, int], int]:
    cursor = await conn.execute(
        "select term, documents from mirror.term where workspace_id = %s and term = any(%s)",
        (workspace_id, [ALL_DOCUMENTS, *(term.id for term in terms)]),
    )
    found = {row[0]: row[1] for row in await cursor.fetchall()}
    return found, found.pop(ALL_DOCUMENTS, 0)
