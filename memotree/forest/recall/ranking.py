"""From groves to a choice: the leaves that an answer has room for, with their scores and what each signal adds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from memotree_storage.ports import Vector
from numpy.typing import NDArray

from memotree.forest.recall.archive_snapshot import ArchiveSnapshot, Mask, SearchCorpus
from memotree.forest.recall.filters import Filter
from memotree.forest.recall.scoring.leaf_index import LeafIndex
from memotree.forest.recall.scoring.packing import pack
from memotree.forest.recall.scoring.query_words import Related
from memotree.forest.recall.scoring.scores import Idf, Scores, score

_SHORT: Final = 16
"""Tokens of a leaf under which an equal one elsewhere is no copy."""

_MOST_ROUNDS: Final = 5
_OWN_PART: Final = 0.5
"""What a leaf's own score counts beside that of a reranking model."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A leaf that was chosen: its tract, its number there, its score and the shares of it by signal."""

    snapshot: ArchiveSnapshot
    number: int
    score: float
    shares: tuple[tuple[str, float], ...]

    @property
    def node_id(self) -> str:
        """The leaf."""
        return self.snapshot.leaf_id(self.number)

    @property
    def tokens(self) -> int:
        """Tokens of its content."""
        return int(self.snapshot.leaf_index.tokens[self.number])


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen of how many admitted leaves.

    ``oversized`` is the best leaf, when it has more tokens than the whole budget.
    """

    leaves: list[Chosen]
    considered: int
    oversized: Chosen | None = None


@dataclass(frozen=True, slots=True)
class ScoredLeaves:
    """The leaves of a wood with their scores.

    Attributes:
        corpus: The leaves.
        admitted: Which of them may be chosen; all when it is missing.
        scores: What they score by themselves.
        judged: What a reranking model adds, by place; such leaves go before all others.
    """

    corpus: SearchCorpus
    admitted: Mask | None
    scores: Scores
    judged: Mapping[int, float] = field(default_factory=dict)

    @property
    def considered(self) -> int:
        """How many leaves may be chosen."""
        return len(self.corpus.leaf_index) if self.admitted is None else int(self.admitted.sum())

    def best(self, count: int) -> list[int]:
        """The places of the leaves that score best, best first."""
        total = self._total()
        ranked = np.argsort(-total, kind="stable")[:count]
        return [place for place in ranked.tolist() if total[place] > 0]

    def leaf(self, place: int) -> Chosen:
        """One leaf with its score and the shares of it."""
        score, shares = float(self.scores.total[place]), _shares(self.scores, place)
        if self.judged:
            extra = self.judged.get(place, 0.0)
            score, shares = _OWN_PART * score + extra, tuple((name, _OWN_PART * share) for name, share in shares)
            shares += (("rerank", extra),) if extra else ()
        return Chosen(*self.corpus.place(place), score, shares)

    def choose(self, budget: int) -> Choice:
        """The leaves for a budget of tokens; takes milliseconds, so call it in a thread."""
        if not self.considered:
            return Choice([], 0)
        leaf_index, total = self.corpus.leaf_index, self._total()
        best = int(np.argmax(total))
        oversized = self.leaf(best) if leaf_index.tokens[best] > budget and total[best] > 0 else None
        packed = pack(total, leaf_index, budget // 2 if oversized else budget)
        for _ in range(_MOST_ROUNDS):
            repeated = _repeated(leaf_index, packed, total)
            if not repeated:
                break
            total[repeated] = 0.0
            packed = pack(total, leaf_index, budget // 2 if oversized else budget)
        return Choice([self.leaf(place) for place in packed.tolist()], self.considered, oversized)

    def reranked(self, relevance: Mapping[int, float]) -> "ScoredLeaves":
        """The same with what a reranking model says of some leaves, from 0 to 1 by place."""
        return replace(self, judged={place: (1.0 - _OWN_PART) * value for place, value in relevance.items()})

    def _total(self) -> NDArray[np.float64]:
        total = self.scores.total.astype(np.float64)
        if self.judged:
            total *= _OWN_PART
            total[list(self.judged)] += list(self.judged.values())
        return total if self.admitted is None else np.where(self.admitted, total, 0.0)


def _repeated(leaf_index: LeafIndex, packed: NDArray[np.int64], total: NDArray[np.float64]) -> list[int]:
    """Packed leaves with the very text of a better one of another document: a copy tells nothing more.

    Equal texts have equal vectors. Short ones stay: who says "thank you" in two conversations says it twice.
    """
    long = packed[leaf_index.tokens[packed] >= _SHORT]
    homes = np.searchsorted(leaf_index.starts, long, side="right")
    first: dict[bytes, int] = {}
    found = []
    for place, home in sorted(
        zip(long.tolist(), homes.tolist(), strict=True), key=lambda each: (-total[each[0]], each)
    ):
        if first.setdefault(leaf_index.vectors[place].tobytes(), home) != home:
            found.append(place)
    return found


def score_leaves(
    corpus: SearchCorpus,
    wanted: Filter,
    question: str,
    vector: Vector,
    related: Related | None = None,
    idf: Idf | None = None,
) -> ScoredLeaves:
    """Score the leaves of a wood; takes milliseconds, so call it in a thread.

    Args:
        corpus: The leaves.
        wanted: What leaves must be like.
        question: The question.
        vector: Its embedding.
        related: Knows words of a similar meaning.
        idf: Tells how rare words are; the leaves themselves do when it is missing.
    """
    admitted = _admitted(corpus.snapshots, wanted)
    return ScoredLeaves(
        corpus, admitted, score(corpus.leaf_index, question, vector, admitted=admitted, related=related, idf=idf)
    )


def _shares(scores: Scores, place: int) -> tuple[tuple[str, float], ...]:
    """What the signals that a reader is told of add to the score of a leaf."""
    node_results = {
        "words": scores.words[place] + scores.label[place],
        "meaning": scores.meaning[place],
        "route": scores.tree[place] + scores.document[place],
    }
    return tuple((name, float(share)) for name, share in node_results.items() if share > 0)


def _admitted(snapshots: Sequence[ArchiveSnapshot], wanted: Filter) -> Mask | None:
    if wanted.admits_all:
        return None
    parts = [each.admitted(wanted) for each in snapshots]
    return np.concatenate(
        [np.ones(len(each), dtype=bool) if part is None else part for each, part in zip(snapshots, parts, strict=True)]
    )
