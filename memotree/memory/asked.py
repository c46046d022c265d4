"""Finds the note that a revision means: by its id, or by a query that must clearly mean one note."""

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from memotree_storage.concurrency.threads import in_thread_if_long
from memotree_storage.errors import FailedPreconditionError, FieldViolation, InvalidInputError
from memotree_storage.index.common_words import is_common
from memotree_storage.index.search import FoundNode, SearchQuery
from memotree_storage.index.terms import words_of
from memotree_storage.mirror.contents import read_nodes_at
from memotree_storage.model.node import SUMMARY_TYPE, Node
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import State
from memotree_storage.store import Store

from memotree.canvas.search import check_query
from memotree.models.builtin import has_known_vectors
from memotree.models.confidence import NODES, Confidence
from memotree.v1 import memory_service_pb2 as pb

_LOOKED_AT: Final = 8
_TOLD: Final = 5
_SHORTENED: Final = re.compile(r"(?<=\w)['\u2019](?:s|t|d|m|ll|re|ve)\b", re.IGNORECASE)
"""What an apostrophe adds to a word; it says nothing about the subject."""


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

    A title that exactly one of the found notes has is clear. Otherwise exactly one of them must have every word of the
    query that says what it is about, and be confident: a note about a similar subject, worded alike, lacks a word, and
    to correct that one would be worse than to ask.

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
    index = store.current
    found = [hit for hit in await index.search.find(state, query) if hit.version.type != SUMMARY_TYPE]
    known = has_known_vectors(index.embedder)
    meant = _titled(found, request.query) or await _with_all_words(store, state, found, request.query, known=known)
    if meant is None:
        raise UnclearQueryError.among(request.query, [hit.version for hit in found[:_TOLD]])
    return meant.version.entry_id


def _titled(found: Sequence[FoundNode], query: str) -> FoundNode | None:
    """The only hit whose title is the query."""
    wanted = " ".join(query.split()).casefold()
    titled = [hit for hit in found if " ".join(hit.version.title.split()).casefold() == wanted]
    return titled[0] if len(titled) == 1 else None


async def _with_all_words(
    store: Store, state: State, found: Sequence[FoundNode], query: str, *, known: bool
) -> FoundNode | None:
    """The only hit that has all words of the query, common ones apart, if it is confident.

    Args:
        store: The store.
        state: Where the hits are from.
        found: The hits.
        query: The query.
        known: Whether confidence is fitted for the vectors that they were found by.
    """
    wanted = await in_thread_if_long(len(query), _words_that_count, query)
    if not wanted or not found:
        return None
    nodes = await read_nodes_at(state, store.database, store.entries, [hit.version for hit in found])
    having = await asyncio.to_thread(_having, nodes, wanted)
    named = [hit for hit in found if hit.version.entry_id in having]
    if len(named) != 1:
        return None
    likelihood = NODES.likelihood(query, named[0].words, named[0].meaning, has_known_vectors=known)
    return named[0] if Confidence.of(likelihood) is Confidence.STRONG else None


def _words_that_count(query: str) -> set[str]:
    return {word for word in words_of(_SHORTENED.sub("", query)) if not is_common(word)}


def _having(nodes: Mapping[str, Node], wanted: Collection[str]) -> set[str]:
    """The ids of the nodes whose title, tags and text have all these words."""
    return {
        node.id
        for node in nodes.values()
        if set(words_of("\n".join((node.title, *node.tags, node.content)))).issuperset(wanted)
    }
