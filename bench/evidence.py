"""Evidence recall at a token budget: sets of documents and questions, the metric, and its intervals.

A method packs turns while the sum of ``len("speaker: text") / 4`` stays within the budget. The recall of a question is
the share of its evidence turns that were packed; the figure of a method is the mean over the questions that have
evidence. Questions about one document are not independent, so an interval by document is given beside the usual one.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Place: TypeAlias = tuple[int, int]
"""A turn: the number of its document, and its own number there."""

Interval: TypeAlias = tuple[float, float]

APART: Final = "unanswerable"
"""The category that is reported separately: its questions ask about things that never happened."""

BUDGETS: Final = (
    ("locomo*", (250, 500, 1000, 2000)),
    ("qmsum*", (1000, 2000, 4000, 8000)),
    ("*", (250, 500, 1000, 2000, 4000, 8000)),
)
"""Token budgets by a pattern for the name of a set's folder; the first match counts. An unknown set has all budgets."""

RESAMPLES: Final = 4000
_SEED: Final = 20261122
_AT_ONCE: Final = 500
_CHARS_PER_TOKEN: Final = 4


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a document, as the set gives it."""

    id: str
    speaker: str
    text: str
    time: str = ""

    @property
    def line(self) -> str:
        """The text that methods rank and pack."""
        return f"{self.speaker}: {self.text}"

    @property
    def cost(self) -> float:
        """The tokens of the turn by the metric."""
        return len(self.line) / _CHARS_PER_TOKEN


@dataclass(frozen=True, slots=True)
class Document:
    """A conversation or meeting."""

    id: str
    title: str
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A question about one document.

    Attributes:
        id: Its name in the set.
        document: The number of its document.
        text: The question.
        category: Its category in the set.
        evidence: The numbers of the turns that answer it.
        lost: How many evidence ids name no turn of the document; they count as never packed.
    """

    id: str
    document: int
    text: str
    category: str
    evidence: frozenset[int]
    lost: int = 0

    @property
    def counts(self) -> bool:
        """Whether it has evidence."""
        return bool(self.evidence) or self.lost > 0

    @property
    def is_apart(self) -> bool:
        """Whether it is reported separately."""
        return self.category == APART

    def recall(self, packed: Collection[Place]) -> float:
        """Return the share of its evidence that was packed, from 0 to 1; 0 for a question without evidence."""
        found = sum((self.document, turn) in packed for turn in self.evidence)
        return found / max(1, len(self.evidence) + self.lost)


@dataclass(frozen=True)
class EvaluationSet:
    """A folder with ``documents.jsonl`` and ``questions.jsonl``."""

    name: str
    documents: tuple[Document, ...]
    questions: tuple[Question, ...]

    @property
    def budgets(self) -> tuple[int, ...]:
        """The token budgets at which the set is usually measured."""
        return next(budgets for pattern, budgets in BUDGETS if fnmatch(self.name, pattern))

    @cached_property
    def costs(self) -> dict[Place, float]:
        """The tokens of each turn by the metric."""
        return {
            (number, place): turn.cost
            for number, document in enumerate(self.documents)
            for place, turn in enumerate(document.turns)
        }

    @property
    def turns(self) -> int:
        """The number of turns."""
        return sum(len(document.turns) for document in self.documents)


# --- Reading ---------------------------------------------------------------------------------------------------------


def read_set(folder: Path, most_questions: int | None = None) -> EvaluationSet:
    """Read the set in a folder; with a limit, only that many questions, spread evenly over all."""
    documents = tuple(
        Document(str(row["doc_id"]), str(row.get("title") or ""), tuple(_turn(turn) for turn in row["turns"]))
        for row in _rows(folder / "documents.jsonl")
    )
    numbers = {document.id: number for number, document in enumerate(documents)}
    questions = [_question(row, numbers, documents) for row in _rows(folder / "questions.jsonl")]
    if most_questions is not None and most_questions < len(questions):
        chosen = np.linspace(0, len(questions) - 1, most_questions).round().astype(int).tolist()
        questions = [questions[number] for number in chosen]
    return EvaluationSet(folder.resolve().name, documents, tuple(questions))


def _rows(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def _turn(row: dict[str, Any]) -> Turn:
    told = (str(row.get(name) or "") for name in ("speaker", "text", "time"))
    return Turn(str(row["id"]), *told)


def _question(row: dict[str, Any], numbers: dict[str, int], documents: Sequence[Document]) -> Question:
    document = numbers[str(row["doc_id"])]
    wanted = {str(each) for each in row.get("evidence") or ()}
    turns = documents[document].turns
    found = frozenset(place for place, turn in enumerate(turns) if turn.id in wanted)
    lost = len(wanted - {turns[place].id for place in found})
    return Question(str(row["question_id"]), document, str(row["question"]), str(row["category"]), found, lost)


# --- Intervals -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean with 95 % intervals, all in percent."""

    mean: float
    by_question: Interval
    by_document: Interval
    questions: int


def figure(values: Sequence[float], documents: Sequence[int], resamples: int = RESAMPLES) -> Figure:
    """Return the mean recall of some questions, with bootstrap intervals (Efron, "Bootstrap Methods", 1979).

    For the interval by question, questions are drawn; for the interval by document, documents with all their questions.
    Intervals are from the 2.5th to the 97.5th percentile; draws are the same in every run.

    Args:
        values: The recall of each question.
        documents: The document of each question.
        resamples: How many times the questions are drawn.
    """
    found = 100.0 * np.asarray(values, dtype=np.float64)
    if not len(found):
        return Figure(float("nan"), (float("nan"),) * 2, (float("nan"),) * 2, 0)
    _, homes = np.unique(np.asarray(documents), return_inverse=True)
    sums, counts = np.bincount(homes, weights=found), np.bincount(homes).astype(np.float64)
    return Figure(
        float(found.mean()),
        _interval(found, np.ones(len(found)), resamples),
        _interval(sums, counts, resamples),
        len(found),
    )


def _interval(sums: NDArray[np.float64], counts: NDArray[np.float64], resamples: int) -> Interval:
    """Return the interval of the ratio of sums to counts when their units are resampled."""
    chance = np.random.default_rng(_SEED)
    means = []
    for start in range(0, resamples, _AT_ONCE):
        drawn = chance.integers(0, len(sums), size=(min(_AT_ONCE, resamples - start), len(sums)))
        means.append(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1))
    low, high = np.percentile(np.concatenate(means), [2.5, 97.5])
    return float(low), float(high)


def used(packed: Iterable[Place], costs: dict[Place, float]) -> float:
    """Return the tokens of turns by the metric."""
    return sum(costs[place] for place in packed)
