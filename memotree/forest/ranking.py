"""From groves to a choice: the leaves that an answer has room for, with their scores and what each signal adds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from memotree_storage.ports import Vector

from memotree.forest.filters import Filter
from memotree.forest.packing import pack
from memotree.forest.scoring import Scores, score
from memotree.forest.tracts import Mask, Tract, Wood
from memotree.forest.words import Related


@dataclass(frozen=True, slots=True)
class Chosen:
    """A leaf that was chosen: its tract, its number there, its score and the shares of it by signal."""

    tract: Tract
    number: int
    score: float
    shares: tuple[tuple[str, float], ...]

    @property
    def node_id(self) -> str:
        """The leaf."""
        return self.tract.leaf_id(self.number)

    @property
    def tokens(self) -> int:
        """Tokens of its content."""
        return int(self.tract.grove.tokens[self.number])


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen of how many admitted leaves.

    ``oversized`` is the best leaf, when it has more tokens than the whole budget.
    """

    leaves: list[Chosen]
    considered: int
    oversized: Chosen | None = None


def choose(
    wood: Wood, wanted: Filter, question: str, vector: Vector, budget: int, related: Related | None = None
) -> Choice:
    """The leaves for a question within a budget; takes milliseconds, so call it in a thread.

    Args:
        wood: The leaves.
        wanted: What leaves must be like.
        question: The question.
        vector: Its embedding.
        budget: Tokens.
        related: Knows words of a similar meaning.
    """
    grove, admitted = wood.grove, _admitted(wood.tracts, wanted)
    considered = len(grove) if admitted is None else int(admitted.sum())
    if not considered:
        return Choice([], 0)
    scores = score(grove, question, vector, admitted=admitted, related=related)
    total = scores.total if admitted is None else np.where(admitted, scores.total, 0.0)

    def chosen(place: int) -> Chosen:
        return Chosen(*wood.place(place), float(scores.total[place]), _shares(scores, place))

    best = int(np.argmax(total))
    oversized = chosen(best) if grove.tokens[best] > budget and total[best] > 0 else None
    packed = pack(scores, grove, budget // 2 if oversized else budget, admitted)
    return Choice([chosen(place) for place in packed.tolist()], considered, oversized)


def _shares(scores: Scores, place: int) -> tuple[tuple[str, float], ...]:
    """What the signals that a reader is told of add to the score of a leaf."""
    told = {
        "words": scores.words[place] + scores.label[place],
        "meaning": scores.meaning[place],
        "route": scores.tree[place] + scores.document[place],
    }
    return tuple((name, float(share)) for name, share in told.items() if share > 0)


def _admitted(tracts: Sequence[Tract], wanted: Filter) -> Mask | None:
    if wanted.admits_all:
        return None
    parts = [each.admitted(wanted) for each in tracts]
    return np.concatenate(
        [np.ones(len(each), dtype=bool) if part is None else part for each, part in zip(tracts, parts, strict=True)]
    )
