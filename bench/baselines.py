"""Simple methods to compare with: windows of turns, or chunks, ranked by words, by vectors or by both.

Conversations are cut into windows of turns, documents into chunks of whole lines; the chunks of documents are ranked
once by their own text, and once with the headings above them.

All pack by the same rule. Pieces are taken in rank order; a piece costs only the tokens that it adds. A piece that does
not fit is skipped, and the fifth such piece ends the packing.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np
import Stemmer
from memotree_storage.index.terms import fold, tokens, words_of
from numpy.typing import NDArray

from bench.evidence import Document, EvaluationSet, Place, cost_of
from memotree.forest.recall.scoring.stemming import stem
from memotree.models.languages import ENGLISH, Language, language_of

WINDOWS: Final = (1, 3, 8, 20)
"""The number of turns in a window; the next window begins half a window later."""

CHUNK_TOKENS: Final = 128.0
"""The most tokens of a chunk, which consists of consecutive turns; chunks do not overlap."""

CHUNKS_OF_DOCUMENTS: Final = (64.0, 128.0, 256.0, 512.0)
"""The same for documents without turns, whose chunks consist of consecutive lines."""

WITH_HEADINGS: Final = " with headings"
"""The end of the name of a method that ranks chunks with the headings above them."""

METHODS: Final = ("BM25", "vectors", "fusion")
MOST_MISFITS: Final = 5
WORDS_SHARE: Final = 0.6
"""The share of BM25 in the fusion; the rest is the cosine. Each score is divided by the best one first."""

_K1: Final = 1.2
_B: Final = 0.75
_WORD: Final = re.compile(r"[^\W_]+")
_STOP: Final = """
    a about above after again all am an and any are as at be because been before being below between both but by can
    could did do does doing down during each few for from further had has have having he her here hers herself him
    himself his how i if in into is it its itself just me more most my myself no nor not now of off on once only or
    other our ours ourselves out over own same she should so some such than that the their theirs them themselves then
    there these they this those through to too under until up very was we were what when where which while who whom why
    will with would you your yours yourself yourselves s t d m re ve ll don
"""
_STOP_WORDS: Final = frozenset(_STOP.split())

Embed = Callable[[Sequence[str]], NDArray[np.float32]]
"""Return one row per text, each a unit vector."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive lines (turns, in a conversation) of one document, ranked and packed as one piece."""

    document: int
    start: int
    end: int

    @property
    def places(self) -> Iterator[Place]:
        """The lines of the piece."""
        return ((self.document, line) for line in range(self.start, self.end))


def windows(document: Document, number: int, turns: int) -> list[Piece]:
    """All windows of this many turns, except one that only repeats the end of the previous window."""
    stride = max(1, turns // 2)
    count = len(document.lines)
    last = max(0, count - turns)
    starts = [*range(0, last, stride), last] if count else []
    return [Piece(number, start, min(start + turns, count)) for start in starts]


def chunks(document: Document, number: int, tokens: float = CHUNK_TOKENS) -> list[Piece]:
    """The document cut into runs of lines of at most this many tokens; a longer line is a chunk of its own."""
    found, start, size = list[Piece](), 0, 0.0
    for place, span in enumerate(document.lines):
        cost = cost_of(document.text[slice(*span)])
        if place > start and size + cost > tokens:
            found.append(Piece(number, start, place))
            start, size = place, 0.0
        size += cost
    if start < len(document.lines):
        found.append(Piece(number, start, len(document.lines)))
    return found


def terms_of(text: str, language: Language | None = None) -> list[str]:
    """The stems of a text's words without stop words, and the pairs of its unspaced runs; English if not said."""
    if language is None or language.name == ENGLISH:
        return [stem(word) for word in _WORD.findall(text.lower()) if word not in _STOP_WORDS]
    if not language.is_stemmed:
        return [word for word in words_of(text) if word not in language.function_words]
    stemmer = Stemmer.Stemmer(language.name)
    words = (found[0].casefold() for found in tokens(text))
    return [fold(stemmer.stemWord(word)) for word in words if fold(word) not in language.function_words]


class Ranking:
    """Pieces that are ranked against each other.

    Args:
        terms: The words of each piece.
        vectors: The vector of each piece, shape (pieces, dimensions).
    """

    def __init__(self, terms: Sequence[Counter[str]], vectors: NDArray[np.float32]) -> None:
        self._vectors = vectors
        lengths = np.array([each.total() for each in terms], dtype=np.float64)
        self._floor = _K1 * (1 - _B + _B * lengths / max(float(lengths.mean()), 1.0))
        postings: dict[str, tuple[list[int], list[int]]] = {}
        for place, counts in enumerate(terms):
            for term, count in counts.items():
                places, often = postings.setdefault(term, ([], []))
                places.append(place)
                often.append(count)
        self._postings = {
            term: (np.array(places), np.array(often, dtype=np.float64)) for term, (places, often) in postings.items()
        }

    def scores(self, terms: Iterable[str], vector: NDArray[np.float32]) -> dict[str, NDArray[np.float64]]:
        """Return the score of each piece by each method."""
        words = self.words(terms)
        meaning = np.maximum(self._vectors @ vector, 0.0).astype(np.float64)
        both = WORDS_SHARE * _best_at_one(words) + (1 - WORDS_SHARE) * _best_at_one(meaning)
        return dict(zip(METHODS, (words, meaning, both), strict=True))

    def words(self, terms: Iterable[str]) -> NDArray[np.float64]:
        """BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009)."""
        size = len(self._floor)
        found = np.zeros(size)
        for term in dict.fromkeys(terms):
            if term in self._postings:
                places, often = self._postings[term]
                idf = np.log1p((size - len(places) + 0.5) / (len(places) + 0.5))
                found[places] += idf * often * (_K1 + 1) / (often + self._floor[places])
        return found


def _best_at_one(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    best = float(scores.max(initial=0.0))
    return scores / best if best > 0 else scores


def pack(ranked: Iterable[Piece], costs: dict[Place, float], budget: float) -> set[Place]:
    """Return the lines of the best pieces that fit; a line that several pieces share is counted once."""
    packed: set[Place] = set()
    room, misfits = budget, 0
    for piece in ranked:
        new = [place for place in piece.places if place not in packed]
        cost = sum(costs[place] for place in new)
        if cost <= room:
            packed.update(new)
            room -= cost
        else:
            misfits += 1
            if misfits == MOST_MISFITS:
                break
    return packed


# --- All of them over a set ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unit:
    """One way to cut documents; ``method`` combines its name with that of a ranking."""

    name: str
    pieces: list[list[Piece]]
    has_headings: bool = False

    def method(self, ranked_by: str) -> str:
        """The name of a baseline."""
        return f"{ranked_by}, {self.name}"


def units(data: EvaluationSet) -> Iterator[Unit]:
    """Every way to cut the documents of a set."""
    if not data.has_turns:
        for tokens in CHUNKS_OF_DOCUMENTS:
            pieces = [chunks(document, number, tokens) for number, document in enumerate(data.documents)]
            yield Unit(f"chunks of {tokens:.0f} tokens", pieces)
            yield Unit(f"chunks of {tokens:.0f} tokens{WITH_HEADINGS}", pieces, has_headings=True)
        return
    for turns in WINDOWS:
        name = "single turns" if turns == 1 else f"windows of {turns}"
        yield Unit(name, [windows(document, number, turns) for number, document in enumerate(data.documents)])
    # Retrieved chunks in document order (Yu et al., "In Defense of RAG in the Era of Long-Context Language Models",
    # 2024). The order helps the reader; the evidence recall of the same chunks does not depend on it.
    name = f"chunks of {CHUNK_TOKENS:.0f} tokens in document order"
    yield Unit(name, [chunks(document, number) for number, document in enumerate(data.documents)])


def run(
    data: EvaluationSet, budgets: Sequence[int], embed: Embed, *, has_pooled: bool = True
) -> dict[str, dict[str, dict[int, list[float]]]]:
    """Return the recall of each question in order, from 0 to 1: by baseline, ``own`` or ``pooled``, and budget."""
    languages = Counter(language_of(question.text) for question in data.questions)
    language = languages.most_common(1)[0][0] if languages else None
    asked = [terms_of(question.text, language) for question in data.questions]
    vectors = embed([question.text for question in data.questions])
    found: dict[str, dict[str, dict[int, list[float]]]] = {}
    line_terms = [
        [terms_of(document.text[start:end], language) for start, end in document.lines] for document in data.documents
    ]
    for unit in units(data):
        rankings = [_ranking(data, unit, pieces, line_terms, embed) for pieces in unit.pieces]
        every = [piece for pieces in unit.pieces for piece in pieces]
        pooled = _ranking(data, unit, every, line_terms, embed) if has_pooled else None
        for question, terms, vector in zip(data.questions, asked, vectors, strict=True):
            places = {"own": (rankings[question.document], unit.pieces[question.document])}
            if pooled is not None:
                places["pooled"] = (pooled, every)
            for place, (ranking, pieces) in places.items():
                for method, scores in ranking.scores(terms, vector).items():
                    ranked = [
                        pieces[number] for number in np.argsort(-scores, kind="stable")[: _most(budgets)].tolist()
                    ]
                    rows = found.setdefault(unit.method(method), {}).setdefault(place, {})
                    for budget in budgets:
                        packed = pack(ranked, data.costs, budget)
                        rows.setdefault(budget, []).append(data.recall(question, packed))
    return found


def _most(budgets: Sequence[int]) -> int:
    """How many of the best pieces to keep: more than fit the greatest budget, since a line has at least two tokens."""
    return max(budgets) + MOST_MISFITS


def _ranking(
    data: EvaluationSet, unit: Unit, pieces: Sequence[Piece], terms: Sequence[Sequence[Sequence[str]]], embed: Embed
) -> Ranking:
    texts, counted = [], []
    for piece in pieces:
        document, lines = data.documents[piece.document], range(piece.start, piece.end)
        above = document.headings[piece.start] if unit.has_headings else ""
        text = document.text[document.lines[piece.start][0] : document.lines[piece.end - 1][1]]
        texts.append(f"{above}\n{text}" if above else text)
        counted.append(Counter(chain(terms_of(above), *(terms[piece.document][line] for line in lines))))
    return Ranking(counted, embed(texts))
