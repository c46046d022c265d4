"""Evidence recall at a token budget: sets of documents and questions, the metric, and its intervals.

A method packs text while its characters divided by four stay within the budget. The recall of a question is the share
of its evidence that was packed; the figure of a method is the mean over the questions that have evidence. There are two
kinds of sets. In conversations the evidence is whole turns, and a turn is packed only as a whole
(``"speaker: text"``). In documents the evidence is passages, of which every character counts, white space aside.
Questions about one document are not independent, so an interval by document is given beside the usual one.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from memotree_storage.model.tokens import CHARS_PER_TOKEN, spaced_length
from numpy.typing import NDArray

Place: TypeAlias = tuple[int, int]
"""A line: the number of its document, and its own number there."""

Span: TypeAlias = tuple[int, int]
"""Offsets in a document's text: the first character, and the one after the last."""

Interval: TypeAlias = tuple[float, float]

APART: Final = "unanswerable"
"""The category that is reported separately: its questions ask about things that never happened."""

BUDGETS: Final = (
    ("locomo*", (250, 500, 1000, 2000)),
    ("qmsum*", (1000, 2000, 4000, 8000)),
    ("*", (250, 500, 1000, 2000, 4000)),
)
"""Token budgets by a pattern for the name of a set's folder; the first match counts."""

RESAMPLES: Final = 4000
_SEED: Final = 20261122
_AT_ONCE: Final = 500

_LONGEST_LINE: Final = 100
"""A longer paragraph is cut into sentences, in tokens; the simple methods put lines together to chunks."""

MEDIA_TYPES: Final = {"markdown": "text/markdown", "pdf": "application/pdf", "text": "text/plain"}
"""The media types by the kinds of documents in a set."""

_PARAGRAPH: Final = re.compile(r"[^\n]*\n+|[^\n]+\Z")
_SENTENCE: Final = re.compile(
    r".*?(?:[.!?\u061f\u06d4\u0964\u0965]+[\"')\]]*\s+|[\u3002\uff01\uff1f]+[\u201d\u2019\u300d\u300f\uff09]*|\Z)",
    re.DOTALL,
)
_HEADING: Final = re.compile(r"(#{1,6})[ \t]+(\S[^\n]*)")


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a conversation, as the set gives it."""

    id: str
    speaker: str
    text: str
    time: str = ""

    @property
    def line(self) -> str:
        """The text that methods rank and pack."""
        return f"{self.speaker}: {self.text}"


@dataclass(frozen=True)
class Document:
    """A conversation, a meeting, or a text with headings.

    Attributes:
        id: Its name in the set.
        title: Its title.
        text: Its text; for a conversation the lines of its turns.
        turns: The turns of a conversation; empty for other documents.
        media_type: Such as ``text/markdown``; empty for a conversation.
        file: What is ingested if that is not the text itself.
    """

    id: str
    title: str
    text: str
    turns: tuple[Turn, ...] = ()
    media_type: str = ""
    file: Path | None = None

    @cached_property
    def lines(self) -> tuple[Span, ...]:
        """The smallest pieces that simple methods rank and pack: turns, or else paragraphs and sentences."""
        if not self.turns:
            return tuple(_lines(self.text))
        ends = np.cumsum([len(turn.line) + 1 for turn in self.turns]).tolist()
        return tuple((end - 1 - len(turn.line), end - 1) for turn, end in zip(self.turns, ends, strict=True))

    @cached_property
    def headings(self) -> tuple[str, ...]:
        """For each line the Markdown headings above it, joined; empty strings for a conversation."""
        if self.turns:
            return ("",) * len(self.lines)
        path: list[tuple[int, str]] = []
        found = []
        for start, end in self.lines:
            heading = _HEADING.match(self.text[start:end])
            if heading is not None:
                path = [above for above in path if above[0] < len(heading[1])]
            found.append(" ".join(title for _, title in path))
            if heading is not None:
                path.append((len(heading[1]), heading[2]))
        return tuple(found)

    @cached_property
    def visible(self) -> NDArray[np.int64]:
        """The number of characters before each offset that are not white space."""
        return np.concatenate([[0], np.cumsum([not char.isspace() for char in self.text])]).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Question:
    """A question about one document.

    Attributes:
        id: Its name in the set.
        document: The number of its document.
        text: The question.
        category: Its category in the set.
        evidence: What answers it. Each piece is one or more spans that say the same; one of them is enough.
        is_whole: Whether a piece counts only if all of it is packed.
        lost: How many pieces are not in the document; they count as never packed.
    """

    id: str
    document: int
    text: str
    category: str
    evidence: tuple[tuple[Span, ...], ...]
    is_whole: bool = True
    lost: int = 0

    @property
    def counts(self) -> bool:
        """Whether it has evidence."""
        return bool(self.evidence) or self.lost > 0

    @property
    def is_apart(self) -> bool:
        """Whether it is reported separately."""
        return self.category == APART

    def recall(self, packed: Sequence[Span], document: Document) -> float:
        """Return the share of its evidence that was packed, from 0 to 1; 0 for a question without evidence.

        Args:
            packed: Spans of its document that do not overlap.
            document: Its document.
        """
        borders = np.array(packed, dtype=np.int64).reshape(-1, 2)
        found = every = 0.0
        for spans in self.evidence:
            sizes = [float(document.visible[end] - document.visible[start]) for start, end in spans]
            shares = [
                _covered(document.visible, borders, span) / max(size, 1.0)
                for span, size in zip(spans, sizes, strict=True)
            ]
            weight = 1.0 if self.is_whole else max(sizes)
            found += weight * (float(max(shares) >= 1.0) if self.is_whole else max(shares))
            every += weight
        # A lost piece of a document weighs as much as its other pieces do on average.
        every += self.lost * (1.0 if self.is_whole or not self.evidence else every / len(self.evidence))
        return found / max(every, 1.0)


def _covered(visible: NDArray[np.int64], packed: NDArray[np.int64], span: Span) -> float:
    starts, ends = np.maximum(packed[:, 0], span[0]), np.minimum(packed[:, 1], span[1])
    inside = ends > starts
    return float((visible[ends[inside]] - visible[starts[inside]]).sum())


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

    @property
    def has_turns(self) -> bool:
        """Whether its documents are conversations."""
        return any(document.turns for document in self.documents)

    @cached_property
    def costs(self) -> dict[Place, float]:
        """The tokens of each line by the metric."""
        return {
            (number, place): cost_of(document.text[slice(*span)])
            for number, document in enumerate(self.documents)
            for place, span in enumerate(document.lines)
        }

    @property
    def lines(self) -> int:
        """The number of lines."""
        return sum(len(document.lines) for document in self.documents)

    def recall(self, question: Question, packed: Iterable[Place]) -> float:
        """Return the recall of a question if these lines are packed."""
        document = self.documents[question.document]
        own = [document.lines[line] for number, line in packed if number == question.document]
        return question.recall(own, document)


def cost_of(text: str) -> float:
    """Return the tokens of a text, as MemoTree counts them, without rounding: so parts cost what the whole does."""
    return spaced_length(text) / CHARS_PER_TOKEN


# --- Reading ---------------------------------------------------------------------------------------------------------


def read_set(folder: Path, most_questions: int | None = None) -> EvaluationSet:
    """Read the set in a folder; with a limit, only that many questions, spread evenly over all."""
    documents = tuple(_document(row, folder) for row in _rows(folder / "documents.jsonl"))
    numbers = {document.id: number for number, document in enumerate(documents)}
    questions = [_question(row, numbers, documents) for row in _rows(folder / "questions.jsonl")]
    if most_questions is not None and most_questions < len(questions):
        chosen = np.linspace(0, len(questions) - 1, most_questions).round().astype(int).tolist()
        questions = [questions[number] for number in chosen]
    return EvaluationSet(folder.resolve().name, documents, tuple(questions))


def conversation(name: str, title: str, turns: Sequence[Turn]) -> Document:
    """Return the document of a conversation; its text is its turns, one a line."""
    return Document(name, title, "".join(f"{turn.line}\n" for turn in turns), tuple(turns))


def _rows(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def _document(row: dict[str, Any], folder: Path) -> Document:
    name, title = str(row["doc_id"]), str(row.get("title") or "")
    if "text" not in row:
        return conversation(name, title, [_turn(turn) for turn in row["turns"]])
    file = folder / str(row["file"]) if row.get("file") else None
    return Document(name, title, str(row["text"]), (), MEDIA_TYPES[str(row.get("kind") or "markdown")], file)


def _turn(row: dict[str, Any]) -> Turn:
    told = (str(row.get(name) or "") for name in ("speaker", "text", "time"))
    return Turn(str(row["id"]), *told)


def _question(row: dict[str, Any], numbers: dict[str, int], documents: Sequence[Document]) -> Question:
    number = numbers[str(row["doc_id"])]
    document, given = documents[number], row.get("evidence") or ()
    named = str(row["question_id"]), number, str(row["question"]), str(row["category"])
    if not document.turns:
        pieces = [tuple((int(start), int(end)) for start, end in piece["spans"]) for piece in given]
        found = tuple(piece for piece in pieces if piece)
        return Question(*named, found, is_whole=False, lost=len(pieces) - len(found))
    wanted = {str(each) for each in given}
    places = [place for place, turn in enumerate(document.turns) if turn.id in wanted]
    lost = len(wanted - {document.turns[place].id for place in places})
    return Question(*named, tuple((document.lines[place],) for place in places), lost=lost)


def _lines(text: str) -> Iterator[Span]:
    """Yield the paragraphs of a text, each line a paragraph, and the sentences of long ones; together the text."""
    for paragraph in _PARAGRAPH.finditer(text):
        if cost_of(paragraph[0]) <= _LONGEST_LINE:
            yield paragraph.span()
            continue
        for sentence in _SENTENCE.finditer(text, *paragraph.span()):
            if sentence.end() > sentence.start():
                yield sentence.span()


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
    sums = np.bincount(homes, weights=found).astype(np.float64)
    counts = np.bincount(homes).astype(np.float64)
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
