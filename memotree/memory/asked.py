"""Finds the note that a change means: by its id, or by a query that must clearly mean one note.

Notes that say the same count as one: a correction of a fact means each copy of it.
"""

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from memotree_storage.concurrency.threads import in_thread_if_long
from memotree_storage.errors import FailedPreconditionError, FieldViolation, InvalidInputError
from memotree_storage.index.common_words import is_common
from memotree_storage.index.search import FoundNode, Search, SearchQuery
from memotree_storage.index.terms import words_of
from memotree_storage.mirror.contents import read_nodes_at
from memotree_storage.model.attribute_names import VALID_FROM, VALID_TO
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

_MOST_COPIES: Final = 100
"""A query that means more notes that say the same is refused: so many are no accident."""

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
        return cls._saying(sentence, nodes)

    @classmethod
    def of_copies(cls, query: str, nodes: Sequence[Version]) -> "UnclearQueryError":
        """The error for a query that means too many notes."""
        sentence = (
            f"More than {_MOST_COPIES} notes say the same as the one that {query[:100]!r} means. Change them by their "
            "ids if they are no accident."
        )
        return cls._saying(sentence, nodes)

    @classmethod
    def _saying(cls, sentence: str, nodes: Sequence[Version]) -> "UnclearQueryError":
        error = cls(sentence, [FieldViolation("query", sentence)])
        error.nodes = nodes
        return error


async def notes_meant(store: Store, state: State, request: pb.ReviseRequest | pb.ForgetRequest) -> Sequence[str]:
    """The id of the note that a request means, before those of notes that say the same if a query means it.

    An id that is given is returned as it is. A title that exactly one of the found notes has is clear. Otherwise
    exactly one of them must have every word of the query that says what it is about, and be confident: a note about a
    similar subject, worded alike, lacks a word, and to change that one would be worse than to ask.

    Raises:
        InvalidInputError: Neither an id nor a query is given, or both.
        UnclearQueryError: The query does not clearly mean one note.
        UnavailableError: The query needs a store or model that does not answer.
    """
    if bool(request.node_id) == bool(request.query):
        raise InvalidInputError.at("node_id", "is needed, or else a query that finds the note; give one of the two.")
    if request.node_id:
        return [request.node_id]
    check_query(request.query)
    index = store.current
    found, nodes = await _found(store, index.search, state, request.query, _LOOKED_AT)
    wanted = await in_thread_if_long(len(request.query), _words_that_count, request.query)
    known = has_known_vectors(index.embedder)
    meant = await asyncio.to_thread(_meant, found, nodes, request.query, wanted, known=known)
    if len(meant) > 1:  # there may be more copies, and others that the query could mean
        found, nodes = await _found(store, index.search, state, request.query, _MOST_COPIES + 1)
        meant = await asyncio.to_thread(_meant, found, nodes, request.query, wanted, known=known)
    nearest = [hit.version for hit in found[:_TOLD]]
    if not meant:
        raise UnclearQueryError.among(request.query, nearest)
    if len(meant) > _MOST_COPIES:
        raise UnclearQueryError.of_copies(request.query, nearest)
    if len(meant) > 1 and request.etag:
        raise InvalidInputError.at("etag", f"is that of one note, and {len(meant)} say the same; leave it out.")
    return [hit.version.entry_id for hit in meant]


async def _found(
    store: Store, search: Search, state: State, query: str, most: int
) -> tuple[list[FoundNode], Mapping[str, Node]]:
    """The nearest notes, and what they say."""
    asked = SearchQuery(query, most, words=True, meaning=True)
    found = [hit for hit in await search.find(state, asked) if hit.version.type != SUMMARY_TYPE]
    return found, await read_nodes_at(state, store.database, store.entries, [hit.version for hit in found])


def _meant(
    found: Sequence[FoundNode], nodes: Mapping[str, Node], query: str, wanted: Collection[str], *, known: bool
) -> Sequence[FoundNode]:
    """The hit that a query means, with those that say the same; none if it may mean others.

    Args:
        found: The hits.
        nodes: What they say.
        query: The query.
        wanted: Its words, common ones apart.
        known: Whether confidence is fitted for the vectors that they were found by.
    """
    named = " ".join(query.split()).casefold()
    titled = _one_fact([hit for hit in found if " ".join(hit.version.title.split()).casefold() == named], nodes)
    if titled or not wanted:
        return titled
    having = _having(nodes, wanted)
    meant = _one_fact([hit for hit in found if hit.version.entry_id in having], nodes)
    if not meant:
        return ()
    likelihood = NODES.likelihood(query, meant[0].words, meant[0].meaning, has_known_vectors=known)
    return meant if Confidence.of(likelihood) is Confidence.STRONG else ()


def _one_fact(hits: Sequence[FoundNode], nodes: Mapping[str, Node]) -> Sequence[FoundNode]:
    """The hits if it is one, or if all of them say the same; else none."""
    return hits if len(hits) == 1 or len({_said(hit, nodes) for hit in hits}) == 1 else ()


def _said(hit: FoundNode, nodes: Mapping[str, Node]) -> tuple[str | None, ...]:
    """What two notes have in common that say the same, of the same time, in one archive."""
    node = nodes.get(hit.version.entry_id)
    if node is None:
        return (hit.version.entry_id,)
    times = (node.attributes.get(name) for name in (VALID_FROM, VALID_TO))
    return (node.archive_id, node.type, node.title.strip(), node.content.strip(), *times)


def _words_that_count(query: str) -> set[str]:
    return {word for word in words_of(_SHORTENED.sub("", query)) if not is_common(word)}


def _having(nodes: Mapping[str, Node], wanted: Collection[str]) -> set[str]:
    """The ids of the nodes whose title, tags and text have all these words."""
    return {
        node.id
        for node in nodes.values()
        if set(words_of("\n".join((node.title, *node.tags, node.content)))).issuperset(wanted)
    }
