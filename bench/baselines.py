"""Simple methods to compare with: windows of turns, or chunks, ranked by words, by vectors or by both.

All pack by the same rule. Pieces are taken in rank order; a piece costs only the tokens that it adds. A piece that does
not fit is skipped, and the fifth such piece ends the packing.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.evidence import Document, EvaluationSet, Place
from memotree.forest.recall.scoring.stemming import stem

WINDOWS: Final = (1, 3, 8, 20)
"""The number of turns in a window; the next window begins half a window later."""

CHUNK_TOKENS: Final = 128.0
"""The most tokens of a chunk, which consists of consecutive turns; chunks do not overlap."""

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
    """Consecutive turns of one document, ranked and packed as one piece."""

    document: int
    start: int
    end: int

    @property
    def places(self) -> Iterator[Place]:
        """The turns of the piece."""
        return ((self.document, turn) for turn in range(self.start, self.end))


def windows(document: Document, number: int, turns: int) -> list[Piece]:
    """All windows of this many turns, except one that only repeats the end of the previous window."""
    stride = max(1, turns // 2)
    last = max(0, len(document.turns) - turns)
    starts = [*range(0, last, stride), last] if document.turns else []
    return [Piece(number, start, min(start + turns, len(document.turns))) for start in starts]


def chunks(document: Document, number: int, tokens: float = CHUNK_TOKENS) -> list[Piece]:
    """The document cut into runs of turns of at most this many tokens; a longer turn is a chunk of its own."""
    found, start, size = list[Piece](), 0, 0.0
    for place, turn in enumerate(document.turns):
        if place > start and size + turn.cost > tokens:
            found.append(Piece(number, start, place))
            start, size = place, 0.0
        size += turn.cost
    if start < len(document.turns):
        found.append(Piece(number, start, len(document.turns)))
    return found


def terms_of(text: str) -> list[str]:
    """The stems of a text's words without stop words."""
    return [stem(word) for word in _WORD.findall(text.lower()) if word not in _STOP_WORDS]


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
    """Return the turns of the best pieces that fit; a turn that several pieces share is counted once."""
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

    def method(self, ranked_by: str) -> str:
        """The name of a baseline."""
        return f"{ranked_by}, {self.name}"


def units(data: EvaluationSet) -> Iterator[Unit]:
    """Every way to cut the documents of a set."""
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
    asked = [terms_of(question.text) for question in data.questions]
    vectors = embed([question.text for question in data.questions])
    found: dict[str, dict[str, dict[int, list[float]]]] = {}
    line_terms = [[terms_of(turn.line) for turn in document.turns] for document in data.documents]
    for unit in units(data):
        rankings = [_ranking(data, pieces, line_terms, embed) for pieces in unit.pieces]
        every = [piece for pieces in unit.pieces for piece in pieces]
        pooled = _ranking(data, every, line_terms, embed) if has_pooled else None
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
                        rows.setdefault(budget, []).append(question.recall(packed))
    return found


def _most(budgets: Sequence[int]) -> int:
    """How many of the best pieces to keep: more than fit the greatest budget, since a turn has at least two tokens."""
    return max(budgets) + MOST_MISFITS


def _ranking(
    data: EvaluationSet, pieces: Sequence[Piece], terms: Sequence[Sequence[Sequence[str]]], embed: Embed
) -> Ranking:
    texts = [
        "\n".join(data.documents[each.document].turns[turn].line for turn in range(each.start, each.end))
        for each in pieces
    ]
    counted = [
        Counter(term for turn in range(each.start, each.end) for term in terms[each.document][turn]) for each in pieces
    ]
    return Ranking(counted, embed(texts))
