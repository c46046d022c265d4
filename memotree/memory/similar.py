"""Finds the notes that a new text resembles: probable duplicates, and notes that it probably replaces.

A search by words and by meaning proposes candidates. Each is then compared with the text word by word, rare words
weighing more: two texts that share almost all words, and every number, say the same; two that share many say something
about the same subject. Nothing is decided here: the caller is told, and chooses.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memotree_storage.concurrency.threads import in_thread_if_long
from memotree_storage.index import frequencies
from memotree_storage.index.common_words import is_common
from memotree_storage.index.frequencies import Frequencies
from memotree_storage.index.rarity import smoothed_idf
from memotree_storage.index.search import FoundNode, SearchQuery
from memotree_storage.index.terms import term_id, words_of
from memotree_storage.mirror.contents import read_nodes_at
from memotree_storage.model.node import SUMMARY_TYPE, Node
from memotree_storage.model.titles import own_title, titled
from memotree_storage.model.validation import DEFAULT_LIMITS
from memotree_storage.postgres.tree import State
from memotree_storage.store import Store

from memotree.models.languages import LANGUAGES
from memotree.v1 import memory_service_pb2 as pb

MOST: Final = 5
"""The most similar notes that are told."""

_CANDIDATES: Final = 12
_QUERY_CHARS: Final = 2000
"""How much of a text is searched for; a longer one is a document, whose beginning says what it is about."""

_TITLE_CHARS: Final = DEFAULT_LIMITS.title_chars
"""How much of a title is compared; a change with a longer one is refused later."""

_COMPARED_CHARS: Final = 20_000
"""A node with more characters is too long to be a note that says the same."""

_SAME: Final = 0.8
"""The weighted share of common words from which two texts without different numbers say the same."""

_SAME_SUBJECT: Final = 0.5
"""The share from which they say something about the same subject."""

_SAME_SUBJECT_IF_FEW: Final = 0.35
"""The share if one of them has at most one word that the other lacks: the new value.

Notes about different subjects that are worded alike differ in two, the subject and the value."""

_CLOSE_MEANING: Final = 0.75
"""The cosine that makes up for fewer common words then."""

_SAME_SUBJECT_IF_CLOSE: Final = 0.2


@dataclass(frozen=True, slots=True)
class Similar:
    """A note that resembles a text.

    Attributes:
        node_id: The note.
        kind: How it resembles the text.
        score: The weighted share of their words that both have, from 0 to 1.
    """

    node_id: str
    kind: pb.Similarity.ValueType
    score: float


_NEGATIONS: Final = frozenset(
    term for table in LANGUAGES.values() for word in table.get("negations", "").split() for term in words_of(word)
)
_UNSPACED_NEGATIONS: Final = frozenset("不没沒无無非未")


@dataclass(frozen=True, slots=True)
class _Words:
    """The words of a text that say what it is about, and the words among them that change what it says."""

    all: frozenset[str]
    decisive: frozenset[str]

    @classmethod
    def of(cls, text: str) -> "_Words":
        found = words_of(text)
        decisive = frozenset(word for word in found if _is_decisive(word))
        return cls(frozenset(word for word in found if not is_common(word)) | decisive, decisive)


@dataclass(frozen=True, slots=True)
class _Texts:
    """The words of a note with its title, and without it: one of two notes may have a title and the other none."""

    whole: _Words
    text: _Words

    @classmethod
    def of(cls, title: str, text: str) -> "_Texts":
        alone = _Words.of(text)
        return cls(_Words.of(titled(title, text)) if title else alone, alone)


def _is_decisive(word: str) -> bool:
    """Whether a text says something else without this word: a number or a negation."""
    return word in _NEGATIONS or any(map(str.isdigit, word)) or not _UNSPACED_NEGATIONS.isdisjoint(word)


async def similar_to(store: Store, state: State, title: str, text: str, *, but: Collection[str] = ()) -> list[Similar]:
    """Return the notes that a text resembles, the most similar first, at most `MOST`.

    Args:
        store: The store; no connection may be held.
        state: Where to look.
        title: The title that the text was given; empty if it was made from the text.
        text: The text.
        but: Ids of nodes that do not count.

    Raises:
        UnavailableError: A store or the embedding model does not answer.
    """
    title, compared = title[:_TITLE_CHARS], text[:_COMPARED_CHARS]
    mine = await in_thread_if_long(len(title) + len(compared), _Texts.of, title, compared)
    query = SearchQuery(titled(title, text)[:_QUERY_CHARS], _CANDIDATES + len(but), words=True, meaning=True)
    found = [
        hit
        for hit in await store.search.find(state, query)
        if hit.version.entry_id not in but and hit.version.type != SUMMARY_TYPE
    ]
    if not found:
        return []
    nodes = await read_nodes_at(state, store.database, store.entries, [hit.version for hit in found])
    words = await asyncio.to_thread(_words_of_nodes, nodes)
    known = await asyncio.to_thread(_terms_of, [mine, *words.values()])
    async with store.database.connection() as conn:
        counts = await frequencies.read(conn, state.workspace_id, known)

    def similar() -> list[Similar]:
        alike = [
            one
            for hit in found
            if (other := words.get(hit.version.entry_id)) is not None
            and (one := _compared(hit, title, mine, other, counts)) is not None
        ]
        return sorted(alike, key=lambda one: (one.kind, -one.score, one.node_id))[:MOST]

    characters = len(words) * len(compared) + sum(len(node.content) for node in nodes.values() if node.id in words)
    return await in_thread_if_long(characters, similar)


def _terms_of(texts: Sequence[_Texts]) -> set[int]:
    return {term_id(word) for one in texts for word in one.whole.all}


def _words_of_nodes(nodes: Mapping[str, Node]) -> Mapping[str, _Texts]:
    return {
        node.id: _Texts.of(own_title(node.title, node.type, node.content), node.content)
        for node in nodes.values()
        if len(node.content) <= _COMPARED_CHARS
    }


def _compared(hit: FoundNode, title: str, mine: _Texts, other: _Texts, counts: Frequencies) -> Similar | None:
    share = max(_share(mine.whole, other.whole, counts), _share(mine.text, other.text, counts))
    if share >= _SAME and mine.text.decisive == other.text.decisive:
        return Similar(hit.version.entry_id, pb.SIMILARITY_DUPLICATE, share)
    is_same_title = bool(title) and title.casefold() == hit.version.title.casefold()
    needed = _SAME_SUBJECT
    if min(len(mine.text.all - other.text.all), len(other.text.all - mine.text.all)) <= 1:
        needed = _SAME_SUBJECT_IF_CLOSE if hit.meaning >= _CLOSE_MEANING else _SAME_SUBJECT_IF_FEW
    if is_same_title or share >= needed:
        return Similar(hit.version.entry_id, pb.SIMILARITY_SUPERSEDED, share)
    return None


def _share(mine: _Words, other: _Words, counts: Frequencies) -> float:
    """The share of the words of both that are common, weighted by how rare they are."""
    whole = _weight(mine.all | other.all, counts)
    return _weight(mine.all & other.all, counts) / whole if whole else 0.0


def _weight(words: Collection[str], counts: Frequencies) -> float:
    return sum(
        smoothed_idf(counts.versions, counts.having.get(term_id(word), 0), common=is_common(word))
        for word in sorted(words)
    )


def same_text(title: str, text: str) -> str:
    """Return what two notes that say exactly the same have in common, whatever their white space and case."""
    return " ".join(titled(title, text).split()).casefold()
