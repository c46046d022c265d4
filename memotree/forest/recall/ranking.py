"""Ranks the leaves of a corpus and chooses those that fit the budget, with the share of each signal in their scores."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from memotree_storage.ports import Vector
from numpy.typing import NDArray

from memotree.forest.recall.archive_snapshot import ArchiveSnapshot, Mask
from memotree.forest.recall.filters import Filter
from memotree.forest.recall.passages import FAR
from memotree.forest.recall.scoring.leaf_index import LeafIndex
from memotree.forest.recall.scoring.packing import pack, ranked
from memotree.forest.recall.scoring.query_words import Related
from memotree.forest.recall.scoring.scores import Frequency, Scores, score
from memotree.forest.recall.search_corpus import SearchCorpus
from memotree.models.confidence import LEAVES, Confidence
from memotree.v1 import forest_service_pb2 as pb

_SHORT: Final = 16
"""Leaves with fewer tokens are never treated as copies of each other."""

MOST_DROPPED: Final = 10
"""The most leaves that are named as dropped."""

_MOST_ROUNDS: Final = 5
_OWN_PART: Final = 0.5
"""The share of a leaf's own score in the final score; the rest is its relevance by the reranking model."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A chosen leaf: its archive snapshot, its number there, its score, its signals' shares, its place in all."""

    snapshot: ArchiveSnapshot
    number: int
    score: float
    shares: tuple[tuple[str, float], ...]
    place: int

    @property
    def node_id(self) -> str:
        """The id of the leaf."""
        return self.snapshot.leaf_id(self.number)

    @property
    def tokens(self) -> int:
        """Tokens of its content."""
        return int(self.snapshot.leaf_index.tokens[self.number])


@dataclass(frozen=True, slots=True)
class Selection:
    """The chosen leaves, and how many admitted leaves they were chosen from.

    ``oversized`` is the best leaf if it has more tokens than the whole budget, ``outdated`` how many leaves were not
    admitted because they do not hold, and ``dropped`` the best leaves that were not chosen, with the reason.
    """

    leaves: list[Chosen]
    considered: int
    oversized: Chosen | None = None
    outdated: int = 0
    dropped: Sequence[tuple[Chosen, pb.DropReason.ValueType]] = ()

    @property
    def all(self) -> list[Chosen]:
        """The chosen leaves with the oversized one, if there is one, which comes first."""
        return [self.oversized, *self.leaves] if self.oversized else self.leaves


@dataclass(frozen=True, slots=True)
class ScoredLeaves:
    """The leaves of a corpus with their scores.

    The score of a leaf is a likelihood: its share of the best leaf's words and vectors times ``best_own``, plus what a
    reranking model adds.

    Attributes:
        corpus: The leaves.
        admitted: A mask of the leaves that may be chosen; all if ``None``.
        scores: The shares of the leaves by words and vectors, 1 for the best.
        likelihood: How likely the best leaf answers the question, from 0 to 1; its score.
        best_own: The score of the best leaf by words and vectors alone; half of it if a model reranked.
        outdated: How many leaves the filter would admit if they held.
        judged: What a reranking model adds to the score of the leaves that it judged, by index.
    """

    corpus: SearchCorpus
    admitted: Mask | None
    scores: Scores
    likelihood: float
    best_own: float
    outdated: int = 0
    judged: Mapping[int, float] = field(default_factory=dict)

    @property
    def considered(self) -> int:
        """The number of leaves that may be chosen."""
        return len(self.corpus.leaf_index) if self.admitted is None else int(self.admitted.sum())

    def best(self, count: int) -> list[int]:
        """Returns the indexes of the leaves with the best scores above 0, best first."""
        found: list[int] = ranked(self._total())[:count].tolist()
        return found

    def leaf(self, place: int) -> Chosen:
        """Returns a leaf with its score, and the share of each signal in it."""
        shares = tuple((name, self.best_own * share) for name, share in _shares(self.scores, place))
        extra = self.judged.get(place, 0.0)
        score = self.best_own * float(self.scores.total[place]) + extra
        return Chosen(*self.corpus.place(place), score, (*shares, ("rerank", extra)) if extra else shares, place)

    def choose(self, budget: int, around: int = 0, copies: Collection[int] = ()) -> Selection:
        """Returns the leaves for a budget of tokens. Takes milliseconds of CPU, so call it in a thread.

        Args:
            budget: The most tokens.
            around: What each leaf takes beside its own tokens.
            copies: The indexes of leaves that say exactly what a better one says, and so are not chosen.
        """
        if not self.considered:
            return Selection([], 0, outdated=self.outdated)
        leaf_index, total = self.corpus.leaf_index, self._total()
        best, best_first = int(np.argmax(total)), ranked(total)
        total[list(copies)] = 0.0
        alone = leaf_index.alone
        unlike = alone[:0]
        if Confidence.of(self.likelihood) is Confidence.NONE:  # probably nothing answers: the nearest notes will do
            unlike = alone[(total[alone] > 0) & (total[alone] < FAR * total[best])]
            total[unlike] = 0.0
        oversized = self.leaf(best) if leaf_index.tokens[best] + around > budget and total[best] > 0 else None
        room = budget // 2 if oversized else budget
        packed = pack(total, leaf_index, room, around)
        reasons = dict.fromkeys(unlike.tolist(), pb.DROP_REASON_SCORE) | dict.fromkeys(copies, pb.DROP_REASON_COPY)
        for _ in range(_MOST_ROUNDS):
            repeated = _repeated(leaf_index, packed, total)
            if not repeated:
                break
            reasons |= dict.fromkeys(repeated, pb.DROP_REASON_COPY)
            total[repeated] = 0.0
            packed = pack(total, leaf_index, room, around)
        taken = {*packed.tolist(), *([best] if oversized else [])}
        dropped = [
            (self.leaf(place), reasons.get(place, pb.DROP_REASON_BUDGET))
            for place in best_first[: len(taken) + MOST_DROPPED].tolist()
            if place not in taken
        ]
        return Selection(
            [self.leaf(place) for place in packed.tolist()], self.considered, oversized, self.outdated, dropped
        )

    def reranked(self, relevance: Mapping[int, float]) -> "ScoredLeaves":
        """Returns a copy with the scores of a reranking model for some leaves: from 0 to 1, by index.

        The score of a leaf is then the mean of its own and of its relevance, and the likelihood is the best score.
        """
        judged = {place: (1.0 - _OWN_PART) * value for place, value in relevance.items()}
        found = replace(self, best_own=_OWN_PART * self.best_own, judged=judged)
        best = found.best(1)
        return replace(found, likelihood=found.leaf(best[0]).score if best else 0.0)

    def _total(self) -> NDArray[np.float64]:
        total = self.best_own * self.scores.total.astype(np.float64)
        if self.judged:
            total[list(self.judged)] += list(self.judged.values())
        return total if self.admitted is None else np.where(self.admitted, total, 0.0)


def _repeated(leaf_index: LeafIndex, packed: NDArray[np.int64], total: NDArray[np.float64]) -> list[int]:
    """Returns packed leaves with exactly the text of a better leaf of another document: a copy adds nothing.

    Equal texts are detected by their equal vectors. Short leaves stay: "thank you" in two conversations is no copy.
    """
    long = packed[leaf_index.tokens[packed] >= _SHORT]
    documents = np.searchsorted(leaf_index.starts, long, side="right")
    first: dict[bytes, int] = {}
    copies = []
    texts = (vector.tobytes() for vector in leaf_index.text_rows.vectors_of(long))
    for place, document, text in sorted(
        zip(long.tolist(), documents.tolist(), texts, strict=True), key=lambda each: (-total[each[0]], each[:2])
    ):
        if first.setdefault(text, document) != document:
            copies.append(place)
    return copies


def score_leaves(
    corpus: SearchCorpus,
    wanted: Filter,
    question: str,
    vector: Vector,
    related: Related | None = None,
    frequency: Frequency | None = None,
    *,
    has_known_vectors: bool = True,
) -> ScoredLeaves:
    """Scores the leaves of a corpus. Takes milliseconds of CPU, so call it in a thread.

    Args:
        corpus: The leaves.
        wanted: The filter that leaves must meet.
        question: The question.
        vector: Its embedding.
        related: Returns words of a similar meaning.
        frequency: Returns how many texts have a word; counted in these leaves if ``None``.
        has_known_vectors: Whether the vectors are those of the model that the likelihood was fitted for.
    """
    admitted, outdated = _admitted(corpus, wanted)
    scores = score(corpus.leaf_index, question, vector, admitted=admitted, related=related, frequency=frequency)
    likelihood = 0.0
    if scores.total.any():
        found = scores.evidence
        likelihood = LEAVES.likelihood(question, found.words, found.meaning, has_known_vectors=has_known_vectors)
    return ScoredLeaves(corpus, admitted, scores, likelihood, likelihood, outdated)


def _shares(scores: Scores, place: int) -> tuple[tuple[str, float], ...]:
    """Returns the share of each signal that is reported to callers in the score of a leaf."""
    node_results = {
        "words": scores.words[place] + scores.label[place],
        "meaning": scores.meaning[place],
        "route": scores.tree[place] + scores.document[place],
    }
    return tuple((name, float(share)) for name, share in node_results.items() if share > 0)


def _admitted(corpus: SearchCorpus, wanted: Filter) -> tuple[Mask | None, int]:
    """Returns a mask of the leaves that a filter admits, and how many more it would admit if they held."""
    admitted: Mask | None = None
    if not wanted.admits_all:
        parts = [each.admitted(wanted) for each in corpus.snapshots]
        admitted = np.concatenate(
            [
                np.ones(len(each), dtype=bool) if part is None else part
                for each, part in zip(corpus.snapshots, parts, strict=True)
            ]
        )
    if corpus.validity is None or wanted.with_outdated:
        return admitted, 0
    holds = corpus.validity.admitted(wanted)
    both: Mask = holds if admitted is None else holds & admitted
    before = len(holds) if admitted is None else int(admitted.sum())
    return both, before - int(both.sum())
