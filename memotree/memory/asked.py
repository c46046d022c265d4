"""Finds the note that a revision means: by its id, or by a query that must clearly mean one note."""

from collections.abc import Sequence
from typing import Final

from memotree_storage.errors import FailedPreconditionError, FieldViolation, InvalidInputError
from memotree_storage.index.search import FoundNode, SearchQuery
from memotree_storage.model.node import SUMMARY_TYPE
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import State
from memotree_storage.store import Store

from memotree.canvas.search import check_query
from memotree.models.builtin import WordllamaEmbedder
from memotree.models.confidence import NODES, Confidence
from memotree.v1 import memory_service_pb2 as pb

_LOOKED_AT: Final = 8
_TOLD: Final = 5
_AHEAD: Final = 0.2
"""How far the best note's share of the query's words must be ahead of the second one's, if both may be meant."""


class UnclearQueryError(FailedPreconditionError):
    """The query means no note, or may mean several; ``nodes`` has the nearest."""

    reason = "UNCLEAR_QUERY"
    nodes: Sequence[Version] = ()

    @classmethod
    def among(cls, query: str, nodes: Sequence[Version]) -> "UnclearQueryError":
        """The error that lists the candidates."""
        if nodes:
            listed = ", ".join(f"{node.entry_id} ({node.title})" for node in nodes)
            sentence = f"{query[:100]!r} does not clearly mean one note. Give the node_id of the one meant: {listed}."
        else:
            sentence = (
                f"Nothing was found for {query[:100]!r}. Look for the note with other words, or remember the text."
            )
        error = cls(sentence, [FieldViolation("query", sentence)])
        error.nodes = nodes
        return error


async def note_meant(store: Store, state: State, request: pb.ReviseRequest) -> str:
    """The id of the note that a request for a revision means; an id that is given is returned as it is.

    A title that exactly one of the found notes has is clear. Otherwise the best one must be confident, and clearly
    ahead of the second.

    Raises:
        InvalidInputError: Neither an id nor a query is given, or both.
        UnclearQueryError: The query does not clearly mean one note.
        UnavailableError: The query needs a store or model that does not answer.
    """
    if bool(request.node_id) == bool(request.query):
        raise InvalidInputError.at("node_id", "is needed, or else a query that finds the note; give one of the two.")
    if request.node_id:
        return request.node_id
    check_query(request.query)
    query = SearchQuery(request.query, _LOOKED_AT, words=True, meaning=True)
    found = [hit for hit in await store.search.find(state, query) if hit.version.type != SUMMARY_TYPE]
    meant = _titled(found, request.query) or _ahead(store, found, request.query)
    if meant is None:
        raise UnclearQueryError.among(request.query, [hit.version for hit in found[:_TOLD]])
    return meant.version.entry_id


def _titled(found: Sequence[FoundNode], query: str) -> FoundNode | None:
    """The only hit whose title is the query."""
    wanted = " ".join(query.split()).casefold()
    titled = [hit for hit in found if " ".join(hit.version.title.split()).casefold() == wanted]
    return titled[0] if len(titled) == 1 else None


def _ahead(store: Store, found: Sequence[FoundNode], query: str) -> FoundNode | None:
    """The best hit, if it is confident and clearly ahead of the others."""
    has_known_vectors = isinstance(store.embedder, WordllamaEmbedder)

    def likelihood(hit: FoundNode) -> float:
        return NODES.likelihood(query, hit.words, hit.meaning, has_known_vectors=has_known_vectors)

    ranked = sorted(found, key=lambda hit: (-likelihood(hit), hit.version.entry_id))
    if not ranked or Confidence.of(likelihood(ranked[0])) is not Confidence.STRONG:
        return None
    is_alone = len(ranked) == 1 or Confidence.of(likelihood(ranked[1])) is not Confidence.STRONG
    return ranked[0] if is_alone or ranked[0].words - ranked[1].words >= _AHEAD else None
