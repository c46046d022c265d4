"""Recall: finds the nodes of a state that answer a question, by one of three strategies.

LCA is the simplest: the nearest nodes by meaning; several hits in one tree are replaced by their lowest common
ancestor. COLLAPSED takes the best nodes of all levels by words and meaning. HYBRID scores every leaf by its own text
and the text around it, and packs the best leaves into a budget of tokens in document order.

Every strategy reads one state. A commit never changes. A session may change while it is read; the answer is then made
again from the beginning, so that it never mixes nodes from before and after a change.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol

from memotree_storage.cache import BoundedCache
from memotree_storage.errors import InvalidInputError
from memotree_storage.index.search import FoundNode, SearchQuery
from memotree_storage.mirror.contents import read_nodes
from memotree_storage.model.titles import titled
from memotree_storage.model.tokens import count_tokens
from memotree_storage.ports import Embedder
from memotree_storage.postgres import tree
from memotree_storage.postgres.database import Connection
from memotree_storage.postgres.tree import Snapshot
from memotree_storage.store import Store

from memotree.forest.recall.ancestry import Hit, Representative, representatives
from memotree.forest.recall.excerpts import best_stretch
from memotree.forest.recall.filters import Filter, read_filter, scope_ids
from memotree.forest.recall.passages import PackedLeaf, joined, markdown
from memotree.forest.recall.ranking import Chosen, ScoredLeaves, Selection, score_leaves
from memotree.forest.recall.results import NodeResult, ResultBuilder, ResultPart, Seen
from memotree.forest.recall.scoring.query_words import Related
from memotree.forest.recall.scoring.scores import Frequency
from memotree.forest.recall.scoring.vocabulary import BuiltinWords
from memotree.forest.recall.snapshot_cache import SessionMovedError, SnapshotCache, StateView, same_moment
from memotree.forest.recall.word_frequency import workspace_frequency
from memotree.models.builtin import WordllamaEmbedder
from memotree.models.confidence import NODES, Confidence
from memotree.models.meter import Meter
from memotree.request import lookup
from memotree.request.limits import ServiceLimits
from memotree.request.messages import confidence_message
from memotree.request.questions import check_question
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import types_pb2

DEFAULT_TOP_K: Final = 10
MOST_TOP_K: Final = 1000
DEFAULT_BUDGET: Final = 2000
MOST_BUDGET: Final = 200_000
CACHE_BYTES: Final = 512 << 20
SCAN_LEAVES: Final = 200_000

_JUDGED: Final = 50
_JUDGED_CHARS: Final = 4_000
"""The number of leaves that a reranking model judges, and the most characters of each."""

_CANDIDATES: Final = 200
"""The number of index hits that choose the archives if there are too many leaves to score all."""

_SEEN: Final = 20_000
"""The number of versions that are cached; most of them are of inner nodes."""

NOTHING_RELEVANT: Final = (
    "Probably nothing here answers the question: what follows is only the nearest, and its scores are low."
)

_NOTHING_HERE: Final = "There is nothing to recall here yet: ingest a document, or create nodes that have content."
_MOST_ASKED: Final = 20_000
_TRIES: Final = 5
"""The most attempts at an answer if its session keeps changing meanwhile."""


class RecallModels(Protocol):
    """The models that recall needs: embeddings, and reranking if configured. `memotree.models.Models` is one."""

    @property
    def embedder(self) -> Embedder:
        """Embeds the question; the same model that embedded the leaves."""
        ...

    @property
    def has_ranking(self) -> bool:
        """Whether a reranking model is configured; the built-in reranker would add nothing to the scores."""
        ...

    async def rerank(self, query: str, texts: Sequence[str], meter: Meter) -> list[float]:
        """Returns the relevance of each text for a query, from 0 to 1, in the order of the texts."""
        ...


@dataclass(slots=True)
class _Question:
    """The checked values of a request, and the warnings for its answer."""

    text: str
    strategy: pb.RecallStrategy.ValueType
    top_k: int
    budget: int
    has_trace: bool
    warnings: list[str] = field(default_factory=list)


class Recall:
    """Finds the nodes that answer a question.

    Args:
        store: An open store.
        limits: The limits of the service.
        models: Embed the question, and judge the best leaves if a reranking model is configured.
        cache_bytes: The most bytes of memory for cached trees.
        scan_leaves: Up to this many admitted leaves, all are scored; above that, the index chooses archives first.
        related: Returns words of a similar meaning; the built-in vocabulary if ``None``.
    """

    def __init__(
        self,
        store: Store,
        limits: ServiceLimits,
        models: RecallModels,
        *,
        cache_bytes: int = CACHE_BYTES,
        scan_leaves: int = SCAN_LEAVES,
        related: Related | None = None,
    ) -> None:
        self._store = store
        self._limits = limits
        self._models = models
        self._scan_leaves = scan_leaves
        embedder = models.embedder
        self._has_known_vectors = isinstance(embedder, WordllamaEmbedder)
        self._related = related or BuiltinWords(embedder if isinstance(embedder, WordllamaEmbedder) else None)
        self._seen: Seen = BoundedCache(_SEEN, lambda _: 1)
        self.leaf_indexes = SnapshotCache(store, cache_bytes)

    async def recall(self, request: pb.RecallRequest) -> pb.RecallResponse:
        """Answers a question from the trees.

        Raises:
            InvalidInputError: If a value of the request is invalid.
            NotFoundError: If the workspace, the revision, an archive or the scope node does not exist.
            SessionMovedError: If the session changed during every attempt.
        """
        _read(request)
        for number in range(_TRIES):
            try:
                return await self._answer(request)
            except SessionMovedError:
                if number == _TRIES - 1:
                    raise
        raise SessionMovedError

    async def _answer(self, request: pb.RecallRequest) -> pb.RecallResponse:
        asked = _read(request)
        async with self._store.database.connection() as conn:
            place = await lookup.use_revision(conn, request.workspace, request.revision)
        view = await self.leaf_indexes.view(place.state)
        async with self._store.database.connection() as conn:
            wanted = await read_filter(Snapshot(conn, view.state), request.filter, list(view.archives.values()))
        asked.warnings += _unknown(request.filter, wanted)
        if asked.strategy == pb.RECALL_STRATEGY_HYBRID:
            return await self._hybrid(asked, view, wanted)
        return await self._searched(asked, view, wanted)

    # --- HYBRID ---

    async def _hybrid(self, asked: _Question, view: StateView, wanted: Filter) -> pb.RecallResponse:
        archive_ids = await self._archives(asked, view, wanted)
        corpus = await self.leaf_indexes.corpus(view, archive_ids)
        if not len(corpus.leaf_index):
            return pb.RecallResponse(
                commit_id=view.state.commit_id,
                token_budget=asked.budget,
                warnings=[*asked.warnings, _NOTHING_HERE],
                confidence=types_pb2.CONFIDENCE_NONE,
            )
        vector = (await self._models.embedder.embed([asked.text]))[0]
        frequency = None if len(archive_ids) == len(view.archives) else await self._frequency(view, asked.text)
        scored = await asyncio.to_thread(
            partial(
                score_leaves,
                *(corpus, wanted, asked.text, vector, self._related, frequency),
                has_known_vectors=self._has_known_vectors,
            )
        )
        if self._models.has_ranking:
            scored = await self._reranked(scored, view, asked)
        choice = await asyncio.to_thread(scored.choose, asked.budget)
        asked.warnings += _about(choice, len(corpus.leaf_index), asked)
        chosen = [choice.oversized, *choice.leaves] if choice.oversized else choice.leaves
        confidence = Confidence.of(scored.likelihood)
        if confidence is Confidence.NONE and chosen:
            asked.warnings.append(NOTHING_RELEVANT)
        async with self._reading(view) as conn:
            parts = await ResultBuilder(conn, self._store, view, asked.has_trace, self._seen).parts(
                [_part(each) for each in chosen]
            )
        answer = await asyncio.to_thread(_packed_answer, asked, choice, chosen, parts, view)
        answer.commit_id = view.state.commit_id
        answer.confidence, answer.likelihood = confidence_message(confidence.name), scored.likelihood
        return answer

    async def _reranked(self, scored: ScoredLeaves, view: StateView, asked: _Question) -> ScoredLeaves:
        """Adds the scores of a reranking model to the best leaves; the scores of all others stay."""
        places = scored.best(_JUDGED)
        leaves = {scored.leaf(place).node_id: place for place in places}
        async with self._reading(view) as conn:
            snapshot = Snapshot(conn, view.state)
            nodes = await read_nodes(snapshot, self._store.entries, (await tree.versions(snapshot, leaves)).values())
        texts = {leaves[node.id]: f"{node.title}\n{node.content[:_JUDGED_CHARS]}" for node in nodes.values()}
        meter = Meter()
        relevance = await self._models.rerank(asked.text, list(texts.values()), meter)
        asked.warnings += meter.warnings
        return scored.reranked(dict(zip(texts, relevance, strict=True)))

    async def _frequency(self, view: StateView, question: str) -> Frequency:
        async with self._store.database.connection() as conn:
            return await workspace_frequency(conn, view.state.workspace_id, question, self._related)

    async def _archives(self, asked: _Question, view: StateView, wanted: Filter) -> list[str]:
        """Returns the archives whose leaves are scored: all that are admitted, or those that the index finds."""
        admitted = [key for key in view.archives if wanted.archive_ids is None or key in wanted.archive_ids]
        counts = await self.leaf_indexes.leaf_counts(view)
        total = sum(counts.get(key, 0) for key in admitted)
        if total <= self._scan_leaves:
            return admitted
        query = SearchQuery(
            asked.text,
            _CANDIDATES,
            words=True,
            meaning=True,
            archive_ids=() if wanted.archive_ids is None else sorted(wanted.archive_ids),
        )
        hits = await self._store.search.find(view.state, query)
        ranked = list(dict.fromkeys(hit.version.archive_id for hit in hits))
        chosen, room = list[str](), self._scan_leaves
        for archive_id in ranked:
            if archive_id in view.archives and counts.get(archive_id, 0) <= room:
                chosen.append(archive_id)
                room -= counts.get(archive_id, 0)
        chosen = chosen or ranked[:1]
        asked.warnings.append(
            f"There are about {total} leaves, more than the {self._scan_leaves} that are all scored; the index chose "
            f"{len(chosen)} of {len(admitted)} archives. Narrow the filter to have every leaf of fewer archives scored."
        )
        return chosen

    # --- LCA and COLLAPSED ---

    async def _searched(self, asked: _Question, view: StateView, wanted: Filter) -> pb.RecallResponse:
        is_lca = asked.strategy == pb.RECALL_STRATEGY_LCA
        hits = await self._hits(asked, view, wanted, words=not is_lca)
        found = {hit.version.entry_id: hit for hit in hits}
        async with self._reading(view) as conn:
            paths = await tree.ancestors(Snapshot(conn, view.state), found)
            if is_lca:
                tops = representatives(Hit((*paths[key], key), hit.score) for key, hit in found.items())
                chosen = [_representative_part(top) for top in tops]
            else:
                chosen = [ResultPart(key, hit.score, _shares(hit), tuple(paths[key])) for key, hit in found.items()]
            parts = await ResultBuilder(conn, self._store, view, asked.has_trace, self._seen).parts(chosen)
        nodes, used = _within(chosen, parts, asked)
        likelihood = self._likelihood(asked.text, hits, words=not is_lca)
        confidence = Confidence.of(likelihood)
        if confidence is Confidence.NONE and nodes:
            asked.warnings.append(NOTHING_RELEVANT)
        return pb.RecallResponse(
            nodes=nodes,
            tokens_used=used,
            token_budget=asked.budget,
            commit_id=view.state.commit_id,
            warnings=asked.warnings,
            confidence=confidence_message(confidence.name),
            likelihood=likelihood,
        )

    def _likelihood(self, question: str, hits: Sequence[FoundNode], *, words: bool) -> float:
        """Returns how likely the best of some nodes answers the question."""
        if not hits:
            return 0.0
        return NODES.likelihood(
            question,
            max(hit.words for hit in hits) if words else None,
            max(hit.meaning for hit in hits),
            has_known_vectors=self._has_known_vectors,
        )

    async def _hits(self, asked: _Question, view: StateView, wanted: Filter, *, words: bool) -> list[FoundNode]:
        """Returns the best nodes of all levels; asks for more until enough of them pass the filter's times."""
        if wanted.archive_ids is not None and not wanted.archive_ids:
            return []
        async with self._store.database.connection() as conn:
            ids = await scope_ids(Snapshot(conn, view.state), wanted)
        limit = asked.top_k
        while True:
            query = SearchQuery(
                asked.text,
                limit,
                words=words,
                meaning=True,
                types=sorted(wanted.types),
                tags=sorted(wanted.tags),
                archive_ids=sorted(wanted.archive_ids or ()),
                node_ids=ids,
            )
            hits = await self._store.search.find(view.state, query)
            good = [hit for hit in hits if wanted.admits(hit.version, _ended(view, hit.version.entry_id))]
            if len(good) >= asked.top_k or len(hits) < limit or limit >= _MOST_ASKED:
                return good[: asked.top_k]
            limit *= 4

    @asynccontextmanager
    async def _reading(self, view: StateView) -> AsyncIterator[Connection]:
        """Yields a connection for the rest of the answer; for a session, one that sees exactly the view's changes."""
        if view.state.session_id is None:
            async with self._store.database.connection() as conn:
                yield conn
            return
        async with same_moment(self._store, view) as conn:
            yield conn


# --- The request -----------------------------------------------------------------------------------------------------


def _read(request: pb.RecallRequest) -> _Question:
    check_question("query", request.query)
    if request.strategy not in pb.RecallStrategy.values():
        raise InvalidInputError.at("strategy", f"{request.strategy} is not a strategy; give LCA, COLLAPSED or HYBRID.")
    if request.top_k < 0:
        raise InvalidInputError.at("top_k", f"must be 0 (for {DEFAULT_TOP_K}) to {MOST_TOP_K}.")
    if not 0 <= request.token_budget <= MOST_BUDGET:
        raise InvalidInputError.at("token_budget", f"must be 0 (for {DEFAULT_BUDGET}) to {MOST_BUDGET}.")
    strategy = request.strategy or pb.RECALL_STRATEGY_HYBRID
    default = DEFAULT_BUDGET if strategy == pb.RECALL_STRATEGY_HYBRID else 0
    return _Question(
        text=request.query,
        strategy=strategy,
        top_k=min(request.top_k or DEFAULT_TOP_K, MOST_TOP_K),
        budget=request.token_budget or default,
        has_trace=request.include_trace,
    )


def _unknown(given: pb.RecallFilter, wanted: Filter) -> list[str]:
    if wanted.archive_ids is not None and not wanted.archive_ids:
        what = f"belongs to the model {given.model_id!r}" if given.model_id else "matches the filter"
        return [f"No archive here {what}; ListArchives lists the archives and their models."]
    return []


# --- The answer ------------------------------------------------------------------------------------------------------


def _representative_part(top: Representative) -> ResultPart:
    """Returns the result for the representative of a tree's hits."""
    path = top.hits[0].path
    return ResultPart(
        top.node_id,
        top.score,
        (("meaning", top.score),),
        path[: path.index(top.node_id)],
        tuple(hit.node_id for hit in top.hits) if len(top.hits) > 1 else (),
    )


def _shares(hit: FoundNode) -> tuple[tuple[str, float], ...]:
    """Divides the score of a hit in proportion to its scores by words and by meaning."""
    both = hit.words + hit.meaning
    signals = (("words", hit.words), ("meaning", hit.meaning))
    return tuple((name, hit.score * share / both) for name, share in signals if share > 0)


def _within(
    chosen: Sequence[ResultPart], node_results: Mapping[str, NodeResult], asked: _Question
) -> tuple[list[pb.RecalledNode], int]:
    """Returns the nodes that fit the budget, best first, and their tokens; a node that does not fit is skipped."""
    nodes, used = list[pb.RecalledNode](), 0
    present = [node_results[part.node_id] for part in chosen if part.node_id in node_results]
    for result in present:
        if not asked.budget or used + result.tokens <= asked.budget:
            used += result.tokens
            nodes.append(result.message(result.tokens))
    if present and not nodes:
        asked.warnings.append(
            f"None of the {len(present)} nodes fits {asked.budget} tokens; give a greater budget, or use the strategy "
            "HYBRID, which cuts a node that is too long."
        )
    elif not present:
        asked.warnings.append("Nothing was found. Ask in other words, or widen the filter.")
    return nodes, used


def _about(choice: Selection, leaves: int, asked: _Question) -> list[str]:
    """Returns the warnings about a choice."""
    if not choice.considered and choice.outdated:
        found = f"{choice.outdated} of the {leaves} leaves here match the filter, but do not hold on that day"
        return [f"{found}; pass include_outdated to have them too, or another day in valid_at."]
    if not choice.considered:
        return [f"The filter admits none of the {leaves} leaves here; widen it."]
    if not choice.leaves and choice.oversized is None:
        return ["Nothing was found. Ask in other words, or widen the filter."]
    if choice.oversized is not None:
        found = f"The best leaf, {choice.oversized.node_id}, has {choice.oversized.tokens} tokens"
        why = f"more than the budget of {asked.budget}: only its best excerpt is included"
        return [f"{found}, {why}. Give a greater budget, or split the node."]
    return []


def _packed_answer(
    asked: _Question,
    choice: Selection,
    chosen: Sequence[Chosen],
    node_results: Mapping[str, NodeResult],
    view: StateView,
) -> pb.RecallResponse:
    """Returns the packed leaves as passages and as one text."""
    room = asked.budget - sum(each.tokens for each in choice.leaves)
    leaves = [
        _excerpt(each, node_results[each.node_id], asked.text, room)
        if each is choice.oversized
        else _packed(each, node_results[each.node_id])
        for each in chosen
        if each.node_id in node_results
    ]
    passages = joined([leaf for leaf in leaves if leaf.text])
    names = {passage.archive_id: view.name(passage.archive_id) for passage in passages}
    return pb.RecallResponse(
        passages=[
            pb.Passage(
                archive_id=passage.archive_id,
                archive_name=names[passage.archive_id],
                headings=passage.headings,
                nodes=[node_results[leaf.node_id].message(leaf.tokens, leaf.text) for leaf in passage.leaves],
                text=passage.text,
                score=passage.score,
            )
            for passage in passages
        ],
        text=markdown(passages, names),
        tokens_used=sum(leaf.tokens for passage in passages for leaf in passage.leaves),
        token_budget=asked.budget,
        leaves_considered=choice.considered,
        outdated_left_out=choice.outdated,
        warnings=asked.warnings,
    )


def _ended(view: StateView, node_id: str) -> float | None:
    ended = view.superseded.get(node_id)
    return None if ended is None else ended.at


def _part(each: Chosen) -> ResultPart:
    above, below = each.snapshot.above(each.number), each.snapshot.child_count(each.number)
    return ResultPart(each.node_id, each.score, each.shares, tuple(above), child_count=below)


def _packed(each: Chosen, result: NodeResult) -> PackedLeaf:
    """Returns a chosen leaf with its text."""
    source = result.version.source
    return PackedLeaf(
        node_id=each.node_id,
        archive_id=each.snapshot.archive_id,
        place=each.number,
        score=each.score,
        tokens=each.tokens,
        text=result.text,
        title="" if result.headings[-1:] == (result.title,) else result.title,
        headings=result.headings,
        span=(int(source["start"]), int(source["end"])) if source else None,
        remark=result.period.remark,
    )


def _excerpt(each: Chosen, result: NodeResult, question: str, room: int) -> PackedLeaf:
    """Returns a chosen leaf with the excerpt of its text that fits; with its title if that leaves room for half."""
    title = result.title if 2 * count_tokens(f"{result.title}:\n") <= room else ""
    text = best_stretch(result.text, question, room - (count_tokens(f"{title}:\n") if title else 0)).text
    whole = _packed(each, result)
    return replace(whole, text=text, title=title if text else "", tokens=count_tokens(titled(title, text)), span=None)
