"""DrillDown: returns the children of a node, ranked by their relevance for a question."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from memotree_storage.errors import InvalidInputError
from memotree_storage.index.search import SearchQuery
from memotree_storage.mirror.contents import read_nodes
from memotree_storage.model.tokens import in_pieces
from memotree_storage.postgres import tree
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.canvas.node_messages import nodes_at
from memotree.forest.citations import cite
from memotree.models.meter import Meter
from memotree.request import lookup
from memotree.request.messages import DETAIL, SUMMARY
from memotree.request.questions import check_question
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import types_pb2

DEFAULT_THRESHOLD: Final = 0.5
"""The default for the least score of a child that is returned (the seed's)."""

MOST_RERANKED: Final = 200
"""The most children that the reranker reads; if there are more, lexical and vector search choose them."""

_RERANKED_CHARS: Final = 4000
"""The characters of a leaf's content that the reranker reads; the beginning of a leaf says what it is about."""

_READ_AT_ONCE: Final = 100
_READ_TOKENS: Final = 1 << 19
"""The most leaves, and the most tokens of them, whose contents are in memory at once."""

_MOST_TOKENS: Final = 1 << 19
"""The most tokens of contents in one answer: 2 MiB of English, well below the size limit of a message."""


@dataclass(frozen=True, slots=True)
class _Scored:
    version: Version
    score: float
    is_leaf: bool


@dataclass(frozen=True, slots=True)
class _Below:
    """The children of a node: those to rerank in document order, the leaves among them, and the number skipped."""

    versions: list[Version]
    leaves: frozenset[str]
    skipped: int


class Reranker(Protocol):
    """Scores texts for a question; implemented by ``memotree.models``."""

    async def rerank(self, query: str, texts: Sequence[str], meter: Meter) -> list[float]:
        """Returns a score from 0 to 1 for each text, in the order of the texts."""
        ...


class DrillDown:
    """Returns the children of a node, ranked for a question.

    Args:
        store: An open store.
        models: Rerank the children.
    """

    def __init__(self, store: Store, models: Reranker) -> None:
        self._store = store
        self._models = models

    async def drill_down(self, request: pb.DrillDownRequest) -> pb.DrillDownResponse:
        """Returns the children of a node, ranked for a question."""
        return await self.drill(request, Meter())

    async def drill(self, request: pb.DrillDownRequest, meter: Meter) -> pb.DrillDownResponse:
        """Does the same and counts the calls to models with ``meter``. A node without children is itself the result.

        Raises:
            InvalidInputError: If there is no question, or the threshold is not from 0 to 1.
            NodeNotFoundError: If the node is not alive at the revision.
        """
        check_question("query", request.query)
        threshold = _threshold(request)
        async with self._store.database.connection() as conn:
            place = await lookup.use_revision(conn, request.workspace, request.revision)
            top = await lookup.node(Snapshot(conn, place.state), request.node_id)
            ids = [child.entry_id for child in await tree.children(Snapshot(conn, place.state), top.entry_id)]
        if not ids:
            return await self._answer(place.state, [_Scored(top, 1.0, is_leaf=True)], 0, [])
        below = await self._below(place.state, ids, request.query)
        texts = await self._texts(place.state, below)
        scores = await self._models.rerank(request.query, texts, meter)
        scored = [
            _Scored(version, _bounded(score), version.entry_id in below.leaves)
            for version, score in zip(below.versions, scores, strict=True)
        ]
        ranked = sorted(scored, key=lambda each: -each.score)  # stable: ties stay in document order
        kept = [each for each in ranked if each.score >= threshold]
        warnings = _warnings(below, ranked, kept, threshold)
        return await self._answer(place.state, kept, len(ranked) - len(kept), warnings)

    async def _below(self, state: State, ids: Sequence[str], query: str) -> _Below:
        """Returns the children that the reranker reads: all of them, or the best by lexical and vector search."""
        chosen: Sequence[str] = ids
        if len(ids) > MOST_RERANKED:
            found = await self._store.search.find(
                state, SearchQuery(query, MOST_RERANKED, words=True, meaning=True, node_ids=set(ids))
            )
            near = {hit.version.entry_id for hit in found}
            # If the search finds too few, other children fill up the list in document order.
            near.update([entry_id for entry_id in ids if entry_id not in near][: MOST_RERANKED - len(near)])
            chosen = [entry_id for entry_id in ids if entry_id in near]
        async with self._store.database.connection() as conn:
            versions = await tree.versions(Snapshot(conn, state), chosen)
            counts = await tree.child_counts(Snapshot(conn, state), list(versions))
        return _Below(
            [versions[entry_id] for entry_id in chosen if entry_id in versions],
            frozenset(entry_id for entry_id, count in counts.items() if not count),
            len(ids) - len(chosen),
        )

    async def _texts(self, state: State, below: _Below) -> list[str]:
        """Returns the text of each child for the reranker: title and summary, and for a leaf its content, too."""
        beginnings: dict[str, str] = {}
        leaves = [version for version in below.versions if version.entry_id in below.leaves]
        for batch in in_pieces(leaves, _READ_AT_ONCE, _READ_TOKENS):
            async with self._store.database.connection() as conn:
                nodes = await read_nodes(Snapshot(conn, state), self._store.entries, batch)
            beginnings.update({entry_id: node.content[:_RERANKED_CHARS] for entry_id, node in nodes.items()})
        return [_text(version, beginnings.get(version.entry_id, "")) for version in below.versions]

    async def _answer(
        self, state: State, found: Sequence[_Scored], below_threshold: int, warnings: Sequence[str]
    ) -> pb.DrillDownResponse:
        detailed = _within(found)
        cut = sum(1 for each in found if each.is_leaf) - len(detailed)
        async with self._store.database.connection() as conn:
            messages = await _messages(Snapshot(conn, state), self._store, found, detailed)
            citations = await cite(Snapshot(conn, state), self._store, [each.version for each in found])
        all_warnings = list(warnings)
        if cut:
            all_warnings.append(
                f"{cut} leaves are returned without their content, because it is too large for one answer; read them "
                "one by one."
            )
        return pb.DrillDownResponse(
            nodes=[
                pb.DrilledNode(
                    node=messages[each.version.entry_id],
                    score=each.score,
                    citation=citations.get(each.version.entry_id),
                )
                for each in found
                if each.version.entry_id in messages
            ],
            below_threshold=below_threshold,
            commit_id=state.commit_id,
            warnings=all_warnings,
        )


async def _messages(
    snapshot: Snapshot, store: Store, found: Sequence[_Scored], detailed: frozenset[str]
) -> Mapping[str, types_pb2.Node]:
    """Returns the nodes as messages by id: the ``detailed`` ones with their content, others with their summary."""
    plain = [each.version.entry_id for each in found if each.version.entry_id not in detailed]
    messages = await nodes_at(snapshot, store, sorted(detailed), DETAIL)
    messages += await nodes_at(snapshot, store, plain, SUMMARY)
    return {message.id: message for message in messages}


def _within(found: Sequence[_Scored]) -> frozenset[str]:
    """Returns the leaves whose contents fit one answer, best first; the first one is always included."""
    room, kept = _MOST_TOKENS, set[str]()
    for each in found:
        if each.is_leaf and (not kept or each.version.tokens <= room):
            kept.add(each.version.entry_id)
            room -= each.version.tokens
    return frozenset(kept)


def _text(version: Version, content: str) -> str:
    parts = (version.title, version.summary or version.brief, content)
    return "\n".join(dict.fromkeys(part for part in parts if part))


def _warnings(below: _Below, ranked: Sequence[_Scored], kept: Sequence[_Scored], threshold: float) -> list[str]:
    warnings = []
    if below.skipped:
        warnings.append(
            f"The node has {len(below.versions) + below.skipped} children; lexical and vector search chose "
            f"{MOST_RERANKED} of them for reranking, and {below.skipped} were skipped."
        )
    if ranked and not kept:
        warnings.append(
            f"No child reaches the threshold of {threshold:g}; the best score is {ranked[0].score:.2f} "
            f"({ranked[0].version.title!r}). Ask in other words, or give a lower threshold."
        )
    return warnings


def _threshold(request: pb.DrillDownRequest) -> float:
    if not request.HasField("threshold"):
        return DEFAULT_THRESHOLD
    if not 0.0 <= request.threshold <= 1.0:  # also rejects NaN
        raise InvalidInputError.at("threshold", f"is {request.threshold:g}; give a number from 0 to 1.")
    return request.threshold


def _bounded(score: float) -> float:
    """Returns a score from 0 to 1, whatever an endpoint answered."""
    return 0.0 if math.isnan(score) else min(1.0, max(0.0, score))
