"""Recall: finds the nodes of a state that answer a question, by one of three strategies.

LCA is the simplest: the nearest nodes by meaning; several hits in one tree are replaced by their lowest common
ancestor. COLLAPSED takes the best nodes of all levels by words and meaning. HYBRID scores every leaf by its own text
and the text around it, and packs the best leaves into a budget of tokens in document order.

Every strategy reads one state. A commit never changes. A session may change while it is read; the answer is then made
again from the beginning, so that it never mixes nodes from before and after a change.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from memotree_storage.cache import BoundedCache
from memotree_storage.errors import InvalidInputError
from memotree_storage.index.frequencies import Frequencies
from memotree_storage.index.search import FoundNode, SearchQuery
from memotree_storage.mirror.contents import read_nodes
from memotree_storage.postgres import tree
from memotree_storage.postgres.tree import Snapshot
from memotree_storage.store import Store

from memotree.forest.recall.ancestry import Hit, Representative, representatives
from memotree.forest.recall.answers import (
    about_excess,
    copies_among,
    dropped_node,
    packed_answer,
    part_for,
    part_of,
    remarks,
    shares_of,
    text_of,
    within_budget,
)
from memotree.forest.recall.filters import Filter, read_filter, scope_ids
from memotree.forest.recall.former import known_former
from memotree.forest.recall.past import past_asked
from memotree.forest.recall.question import Question, read_question
from memotree.forest.recall.ranking import MOST_DROPPED, ScoredLeaves, Selection, score_leaves
from memotree.forest.recall.receipts import (
    answer_hash,
    answering,
    check_method,
    check_view,
    make_receipt,
    moment_of,
    request_again,
    term_counts_of,
)
from memotree.forest.recall.results import NodeResult, ResultBuilder, ResultPart, Seen, misremembered
from memotree.forest.recall.scoring.query_words import Related
from memotree.forest.recall.scoring.vocabulary import BuiltinWords
from memotree.forest.recall.snapshot_cache import SnapshotCache
from memotree.forest.recall.state_view import SessionMovedError, StateView, reading
from memotree.forest.recall.support import BEST, unsupported
from memotree.forest.recall.word_frequency import frequency_in_workspace, read_term_counts
from memotree.models.builtin import has_known_vectors
from memotree.models.confidence import NODES, Confidence, with_unsupported
from memotree.models.meter import Meter
from memotree.request import lookup
from memotree.request.limits import ServiceLimits
from memotree.request.messages import confidence_message
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import types_pb2

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

NOT_SUPPORTED: Final = "Nothing found here supports this part of the question:"

_NOTHING_HERE: Final = "There is nothing to recall here yet: ingest a document, or create nodes that have content."
_NOT_THE_SAME: Final = (
    "This is not the answer that the receipt is about: its hash is another one. Either the receipt was changed, or an "
    "approximate index gave other candidates (strategies LCA and COLLAPSED). If it was neither, please report it."
)
_WIDER: Final = 8
_WIDEST: Final = 20_000
"""Among the leaves for this many times the budget, or for this many tokens, copies are looked for."""

_TRIES: Final = 5
"""The most attempts at an answer if its session keeps changing meanwhile."""


_Answer: TypeAlias = tuple[pb.RecallResponse, Sequence[pb.DroppedNode]]
"""An answer, and the best nodes that are not part of it."""


class RecallModels(Protocol):
    """What recall needs beside the model of the index: reranking, if configured. `memotree.models.Models` is one."""

    @property
    def has_ranking(self) -> bool:
        """Whether a reranking model is configured; the built-in reranker would add nothing to the scores."""
        ...

    @property
    def ranking_model(self) -> str:
        """The name of the reranking model; "" without one."""
        ...

    async def rerank(self, query: str, texts: Sequence[str], meter: Meter) -> list[float]:
        """Returns the relevance of each text for a query, from 0 to 1, in the order of the texts."""
        ...


class Recall:
    """Finds the nodes that answer a question.

    Args:
        store: An open store.
        limits: The limits of the service.
        models: Judge the best leaves if a reranking model is configured.
        cache_bytes: The most bytes of memory for cached trees.
        scan_leaves: Up to this many admitted leaves, all are scored; above that, the index chooses archives first.
        related: Returns words of a similar meaning; the built-in vocabulary if ``None``.
        saved: The folder in which cached trees are saved for the next start; they are not saved if it is ``None``.
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
        saved: Path | None = None,
    ) -> None:
        self._store = store
        self._limits = limits
        self._models = models
        self._scan_leaves = scan_leaves
        self._related = related or BuiltinWords(store.embedder if has_known_vectors(store.embedder) else None)
        self._seen: Seen = BoundedCache(_SEEN)
        self._former = known_former()
        store.cache_checks.append(partial(misremembered, self._seen, store))
        self._new_snapshots = partial(SnapshotCache, store, cache_bytes, saved)
        self._snapshots = self._new_snapshots()

    @property
    def leaf_indexes(self) -> SnapshotCache:
        """The cached trees, with the vectors of the index that answers now."""
        if self._snapshots.index is not self._store.current:
            self._snapshots.close()
            self._snapshots = self._new_snapshots()
        return self._snapshots

    @property
    def cached_bytes(self) -> int:
        """The bytes cached now."""
        return self._snapshots.weight

    async def recall(self, request: pb.RecallRequest) -> pb.RecallResponse:
        """Answers a question from the trees.

        Raises:
            InvalidInputError: If a value of the request is invalid.
            NotFoundError: If the workspace, the revision, an archive or the scope node does not exist.
            SessionMovedError: If the session changed during every attempt.
        """
        request = request_again(request)
        with answering(request.receipt if request.HasField("receipt") else None):
            read_question(request)
            for number in range(_TRIES):
                asked = read_question(request)
                asked.snapshots = self.leaf_indexes
                try:
                    with asked.index.in_use():
                        return await self._answer(request, asked)
                except SessionMovedError:
                    if number == _TRIES - 1:
                        raise
        raise SessionMovedError

    async def _answer(self, request: pb.RecallRequest, asked: Question) -> pb.RecallResponse:
        async with self._store.database.connection() as conn:
            place = await lookup.use_revision(conn, request.workspace, request.revision)
        view = await asked.snapshots.view(place.state)
        moment = None
        if asked.receipt is not None:
            check_view(asked.receipt, view)
            check_method(asked.receipt, *self._model_names(asked))
            moment = moment_of(asked.receipt)
            asked.term_counts, asked.selected = term_counts_of(asked.receipt), asked.receipt.selected_archives
        async with self._store.database.connection() as conn:
            archives = list(view.archives.values())
            wanted = await read_filter(Snapshot(conn, view.state), request.filter, archives, moment)
        asked.warnings += _unknown(request.filter, wanted)
        asked.past = past_asked(asked.text, wanted.moment)
        if asked.past is not None and not wanted.is_dated:  # what does not hold any more may be the answer
            wanted = replace(wanted, with_outdated=True)
        if asked.strategy == pb.RECALL_STRATEGY_HYBRID:
            answer, dropped = await self._hybrid(asked, view, wanted)
        else:
            answer, dropped = await self._searched(asked, view, wanted)
        answer.receipt.CopyFrom(make_receipt(asked, view, request.filter, wanted, self._model_names(asked)))
        answer.receipt.dropped.extend(dropped[:MOST_DROPPED])
        answer.receipt.answer_sha256 = await asyncio.to_thread(answer_hash, answer)
        if asked.receipt is not None and asked.receipt.answer_sha256 != answer.receipt.answer_sha256:
            answer.warnings.append(_NOT_THE_SAME)
        return answer

    def _model_names(self, asked: Question) -> tuple[str, str]:
        return asked.index.embedder.model, self._models.ranking_model

    # --- HYBRID ---

    async def _hybrid(self, asked: Question, view: StateView, wanted: Filter) -> _Answer:
        archive_ids = await self._archives(asked, view, wanted)
        corpus = await asked.snapshots.corpus(view, archive_ids)
        if not len(corpus.leaf_index):
            empty = pb.RecallResponse(
                commit_id=view.state.commit_id,
                token_budget=asked.budget,
                warnings=[*asked.warnings, _NOTHING_HERE],
                confidence=types_pb2.CONFIDENCE_NONE,
            )
            return empty, ()
        excess = asked.snapshots.excess(corpus)
        if excess is not None:
            asked.warnings.append(about_excess(*excess))
        vector = (await asked.index.embedder.embed([asked.text]))[0]
        frequency = None
        if len(archive_ids) < len(view.archive_ids):
            frequency = frequency_in_workspace(await self._term_counts(view, asked, for_search=False))
        scored = await asyncio.to_thread(
            partial(
                score_leaves,
                *(corpus, wanted, asked.text, vector, self._related, frequency),
                has_known_vectors=has_known_vectors(asked.index.embedder),
            )
        )
        if self._models.has_ranking:
            scored = await self._reranked(scored, view, asked)
        choice, parts, copies = await self._chosen(asked, view, scored)
        asked.warnings += remarks(choice, len(corpus.leaf_index))
        chosen = [each for each in choice.all if each.node_id not in copies]
        answer = await asyncio.to_thread(packed_answer, asked, choice, chosen, parts, view)
        answer.commit_id = view.state.commit_id
        best = sorted(answer.passages, key=lambda passage: -passage.score)[:BEST]
        await self._judge(
            asked, answer, scored.likelihood, [[parts[one.node.id] for one in passage.nodes] for passage in best]
        )
        shown = {one.node.id for passage in answer.passages for one in passage.nodes}
        left_out = [(each, pb.DROP_REASON_BUDGET) for each in chosen if each.node_id not in shown]
        left_out += [(each, pb.DROP_REASON_COPY) for each in choice.all if each.node_id in copies]
        dropped = sorted([*left_out, *choice.dropped], key=lambda each: -each[0].score)
        return answer, [dropped_node(each, reason) for each, reason in dropped]

    async def _chosen(
        self, asked: Question, view: StateView, scored: ScoredLeaves
    ) -> tuple[Selection, dict[str, NodeResult], dict[str, str]]:
        """Returns the leaves for the budget, their results, and the notes that say what a better one says, by id.

        What such copies would take of the budget goes to other leaves. If there are any, they are looked for among more
        leaves, too; of very many, some take of the budget nevertheless.
        """
        choice, parts, copies = await self._read(asked, view, scored, asked.budget, ())
        if copies:
            places = [each.place for each in choice.all if each.node_id in copies]
            wide = max(asked.budget, min(_WIDER * asked.budget, _WIDEST))
            more, _, found = await self._read(asked, view, scored, wide, places)
            places += [each.place for each in more.all if each.node_id in found]
            choice, parts, last = await self._read(asked, view, scored, asked.budget, places)
            copies |= found | last
        named: dict[str, list[str]] = {}
        for copy, kept in copies.items():
            named.setdefault(kept, []).append(copy)
        parts |= {kept: replace(parts[kept], copies=tuple(ids)) for kept, ids in named.items() if kept in parts}
        return choice, parts, copies

    async def _read(
        self, asked: Question, view: StateView, scored: ScoredLeaves, budget: int, copies: Sequence[int]
    ) -> tuple[Selection, dict[str, NodeResult], dict[str, str]]:
        """Returns the leaves for a budget without known copies, their results, and the copies among them."""
        choice = await asyncio.to_thread(scored.choose, budget, asked.around, copies)
        async with reading(self._store, view) as conn:
            parts = await ResultBuilder(conn, self._store, view, asked, self._seen, self._former).parts(
                [part_of(each) for each in choice.all]
            )
        best_first = sorted(choice.all, key=lambda each: (-each.score, each.node_id))
        return choice, parts, await asyncio.to_thread(copies_among, [each.node_id for each in best_first], parts)

    async def _judge(
        self, asked: Question, answer: pb.RecallResponse, likelihood: float, best: Sequence[Sequence[NodeResult]]
    ) -> None:
        """Writes into an answer how sure it is, and what of the question its best passages do not support."""
        texts = (text_of(results, asked) for results in best)
        missing = await asyncio.to_thread(unsupported, asked.text, texts, self._related)
        known = has_known_vectors(asked.index.embedder)
        answer.likelihood = with_unsupported(likelihood, len(missing), has_known_vectors=known)
        confidence = Confidence.of(answer.likelihood)
        answer.confidence = confidence_message(confidence.name)
        if missing:
            answer.warnings.append(f"{NOT_SUPPORTED} {', '.join(missing)}.")
        if confidence is Confidence.NONE and best:
            answer.warnings.append(NOTHING_RELEVANT)

    async def _reranked(self, scored: ScoredLeaves, view: StateView, asked: Question) -> ScoredLeaves:
        """Adds the scores of a reranking model to the best leaves; the scores of all others stay."""
        places = scored.best(_JUDGED)
        leaves = {scored.leaf(place).node_id: place for place in places}
        async with reading(self._store, view) as conn:
            snapshot = Snapshot(conn, view.state)
            nodes = await read_nodes(snapshot, self._store.entries, (await tree.versions(snapshot, leaves)).values())
        texts = {leaves[node.id]: f"{node.title}\n{node.content[:_JUDGED_CHARS]}" for node in nodes.values()}
        meter = Meter()
        relevance = await self._models.rerank(asked.text, list(texts.values()), meter)
        asked.warnings += meter.warnings
        return scored.reranked(dict(zip(texts, relevance, strict=True)))

    async def _term_counts(self, view: StateView, asked: Question, *, for_search: bool = True) -> Frequencies:
        """Returns how frequent the words of the question are in the workspace: now, or as the receipt says.

        Without ``for_search`` they are for the scores of leaves only, which were read from the current index.
        """
        if asked.term_counts is None:
            if for_search:
                await asked.index.indexer.current(view.state.workspace_id, meaning=False)
            async with self._store.database.connection() as conn:
                asked.term_counts = await read_term_counts(
                    conn, view.state.workspace_id, asked.text, self._related, for_search=for_search
                )
        return asked.term_counts

    async def _archives(self, asked: Question, view: StateView, wanted: Filter) -> list[str]:
        """Returns the archives whose leaves are scored: all that are admitted, or those that the index finds."""
        admitted = [key for key in view.archive_ids if wanted.archive_ids is None or key in wanted.archive_ids]
        counts = await asked.snapshots.leaf_counts(view)
        total = sum(counts.get(key, 0) for key in admitted)
        if total <= self._scan_leaves and not asked.selected:
            return admitted
        if asked.selected:
            chosen = self._selected_again(asked, admitted, counts)
        else:
            chosen = asked.selected = await self._selected(asked, view, wanted, counts)
        asked.warnings.append(
            f"There are about {total} leaves, more than the {self._scan_leaves} that are all scored; the index chose "
            f"{len(chosen)} of {len(admitted)} archives. Name the archives to have every leaf of fewer scored."
        )
        return chosen

    def _selected_again(self, asked: Question, admitted: Sequence[str], counts: Mapping[str, int]) -> list[str]:
        """Returns the archives that the receipt names, if the index could have selected them."""
        chosen = list(dict.fromkeys(asked.selected))
        total = sum(counts.get(key, 0) for key in chosen)
        if not set(chosen) <= set(admitted) or (len(chosen) > 1 and total > self._scan_leaves):
            raise InvalidInputError.at("selected_archives", "are not those that a search of the index selected.")
        return chosen

    async def _selected(self, asked: Question, view: StateView, wanted: Filter, counts: Mapping[str, int]) -> list[str]:
        """Returns the archives that a search of the index finds first, as many as may be scored."""
        query = SearchQuery(
            asked.text,
            _CANDIDATES,
            words=True,
            meaning=True,
            archive_ids=() if wanted.archive_ids is None else sorted(wanted.archive_ids),
            term_counts=await self._term_counts(view, asked),
        )
        hits = await asked.index.search.find(view.state, query)
        ranked = list(dict.fromkeys(hit.version.archive_id for hit in hits))
        chosen, room = list[str](), self._scan_leaves
        known = frozenset(view.archive_ids)
        for archive_id in ranked:
            if archive_id in known and counts.get(archive_id, 0) <= room:
                chosen.append(archive_id)
                room -= counts.get(archive_id, 0)
        return chosen or ranked[:1]

    # --- LCA and COLLAPSED ---

    async def _searched(self, asked: Question, view: StateView, wanted: Filter) -> _Answer:
        is_lca = asked.strategy == pb.RECALL_STRATEGY_LCA
        hits = await self._hits(asked, view, wanted, words=not is_lca)
        found = {hit.version.entry_id: hit for hit in hits}
        async with reading(self._store, view) as conn:
            paths = await tree.ancestors(Snapshot(conn, view.state), found)
            if is_lca:
                tops = representatives(Hit((*paths[key], key), hit.score) for key, hit in found.items())
                chosen = [part_for(top) for top in await _holding(Snapshot(conn, view.state), view, wanted, tops)]
            else:
                chosen = [ResultPart(key, hit.score, shares_of(hit), tuple(paths[key])) for key, hit in found.items()]
            parts = await ResultBuilder(conn, self._store, view, asked, self._seen, self._former).parts(chosen)
        answer, dropped = await asyncio.to_thread(within_budget, chosen, parts, asked)
        answer.MergeFrom(
            pb.RecallResponse(commit_id=view.state.commit_id, warnings=asked.warnings, outdated_left_out=asked.outdated)
        )
        likelihood = _likelihood(asked, hits, words=not is_lca)
        await self._judge(asked, answer, likelihood, [[parts[one.node.id]] for one in answer.nodes[:BEST]])
        return answer, dropped

    async def _hits(self, asked: Question, view: StateView, wanted: Filter, *, words: bool) -> list[FoundNode]:
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
                term_counts=await self._term_counts(view, asked) if words else None,
            )
            hits = await asked.index.search.find(view.state, query)
            asked.outdated = sum(
                1
                for hit in hits
                if not wanted.admits_validity(hit.version.attributes, view.superseded.get(hit.version.entry_id))
            )
            good = [hit for hit in hits if wanted.admits(hit.version, view.superseded.get(hit.version.entry_id))]
            if len(good) >= asked.top_k or len(hits) < limit:
                return good[: asked.top_k]
            limit *= 4


def _likelihood(asked: Question, hits: Sequence[FoundNode], *, words: bool) -> float:
    """Returns how likely the best of some nodes answers the question."""
    if not hits:
        return 0.0
    return NODES.likelihood(
        asked.text,
        max(hit.words for hit in hits) if words else None,
        max(hit.meaning for hit in hits),
        has_known_vectors=has_known_vectors(asked.index.embedder),
    )


# --- The request -----------------------------------------------------------------------------------------------------


def _unknown(given: pb.RecallFilter, wanted: Filter) -> list[str]:
    if wanted.archive_ids is not None and not wanted.archive_ids:
        what = f"belongs to the model {given.model_id!r}" if given.model_id else "meets the conditions"
        return [f"No archive here {what}; ListArchives lists the archives and their models."]
    return []


async def _holding(
    snapshot: Snapshot, view: StateView, wanted: Filter, tops: Sequence[Representative]
) -> list[Representative]:
    """Returns the representatives; instead of one that does not hold, its hits, which do."""
    versions = await tree.versions(snapshot, [top.node_id for top in tops if len(top.hits) > 1])
    gone = {
        key
        for key, version in versions.items()
        if not wanted.admits_validity(version.attributes, view.superseded.get(version.entry_id))
    }
    found = [top for top in tops if top.node_id not in gone]
    found += [Representative(hit.node_id, hit.score, (hit,)) for top in tops if top.node_id in gone for hit in top.hits]
    return sorted(found, key=lambda top: (-top.score, top.node_id))
