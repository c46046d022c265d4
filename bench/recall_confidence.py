"""Whether recall and search know what they don't know: questions with an answer beside questions without one.

Questions without an answer are those of the other sets, questions of general knowledge, and nonsense; and those that a
set itself marks as unanswerable, which ask about things that never happened to people who are in the text. The weights
of the likelihood were chosen and fitted on the documents with even numbers and their questions (of a set of one
document: the questions with even numbers), with other nonsense and general knowledge. Only the odd ones are measured
here; a set of one document only gives questions to the others. Notes (`recall_notes`) had no part in the fit.

Each question is asked by `Recall` with its default strategy and by each kind of `SearchNodes`, which also finds inner
nodes, of its own document and of all documents at once. `COLLAPSED` has the confidence of a `HYBRID` search, and `LCA`
that of a `SEMANTIC` one.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from bench import recall_notes
from bench.evidence import EvaluationSet, read_set
from bench.recall_asking import Ingested, ingest, private_server
from bench.table import machine
from memotree.client import RecallResult, SearchResult
from memotree.client.enums import SearchTypeName
from memotree.client.workspace import AsyncWorkspace

BUDGET: Final = 500
KEPT: Final = 0.95
"""The share of the questions with an answer that a threshold keeps, when false alarms are counted."""

SEARCHES: Final[Sequence[SearchTypeName]] = ("HYBRID", "FULL_TEXT", "SEMANTIC")
ANSWERED: Final = "answered"
_OF_EACH: Final = 60
GENERAL: Final = (
    "What is the capital of France?",
    "Who wrote Hamlet?",
    "How many moons does Jupiter have?",
    "What is the boiling point of water?",
    "When did the Berlin Wall fall?",
    "Who painted the Mona Lisa?",
    "What is the speed of light?",
    "How do you bake sourdough bread?",
    "Which country has the largest population?",
    "What is the tallest mountain on Earth?",
    "Who discovered penicillin?",
    "What is the currency of Japan?",
)
NONSENSE: Final = (
    "xqzzy blorp",
    "flurb wexil tranok",
    "What is the gnorpal of the vexitude?",
    "How do I frobnicate the quxinator?",
    "lorem snarfle gribble",
    "zzkt pwm",
)

_say: Final = Console(stderr=True)


Questions: TypeAlias = Mapping[str, Sequence[tuple[str, int]]]
"""Questions by their kind, each with the number of the document that is asked."""


@dataclass(slots=True)
class Asked:
    """The likelihoods and confidences of the answers to one kind of questions."""

    likelihoods: list[float] = field(default_factory=list)
    levels: Counter[str] = field(default_factory=Counter)


class Found:
    """The answers by the way of asking and the kind of question."""

    def __init__(self) -> None:
        self.ways: dict[str, dict[str, Asked]] = {}

    def add(self, way: str, kind: str, answer: RecallResult | SearchResult) -> None:
        """Count an answer."""
        asked = self.ways.setdefault(way, {}).setdefault(kind, Asked())
        asked.likelihoods.append(answer.likelihood)
        asked.levels[answer.confidence] += 1


async def run(folders: Sequence[Path], embedding: str | None = None) -> dict[str, Any]:
    """Measure some sets, and notes, with an embedding model; the built-in one if ``None``."""
    sets = [read_set(folder) for folder in folders]
    found = Found()
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="memotree-recall-") as folder:
        (home := Path(folder) / "data").mkdir()
        async with private_server(home, embedding) as client:
            for data in sets:
                if not _tested(data):
                    continue
                await client.create_workspace(data.name)
                workspace = client.workspace(data.name)
                _say.print(f"{data.name}: ingesting and asking …")
                ingested = await ingest(workspace, data)
                failures += ingested.failures
                await _ask_documents(workspace, ingested, dict(_questions(data, sets)), found)
            await client.create_workspace("notes")
            workspace = client.workspace("notes")
            _say.print("notes: writing and asking …")
            await recall_notes.write(workspace)
            foreign = [text for data in sets for text in _spread(data)]
            await _ask_notes(workspace, {**recall_notes.questions(), **_unrelated(foreign)}, found)
            notes = await recall_notes.first_found(workspace)
    return {
        "kind": "confidence",
        "set": "confidence",
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "sets": [data.name for data in sets],
        "places": {way: _figures(kinds) for way, kinds in sorted(found.ways.items())},
        "notes": notes,
        "failures": failures,
    }


def _tested(data: EvaluationSet) -> list[int]:
    """Return the numbers of the documents that had no part in the fit."""
    return [number for number in range(len(data.documents)) if number % 2]


def _questions(data: EvaluationSet, sets: Sequence[EvaluationSet]) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """Yield the questions by their kind, each with the document that is asked."""
    tested = _tested(data)
    own = [question for question in data.questions if question.document in tested]
    yield ANSWERED, [(each.text, each.document) for each in own if each.counts and not each.is_apart]
    yield "unanswerable by the set", [(each.text, each.document) for each in own if each.is_apart]
    foreign = [text for other in sets if other is not data for text in _spread(other)]
    for kind, texts in _unrelated(foreign).items():
        yield kind, [(text, tested[number % len(tested)]) for number, text in enumerate(texts)]


def _unrelated(foreign: Sequence[str]) -> dict[str, Sequence[str]]:
    return {"of other sets": foreign, "general knowledge": GENERAL, "nonsense": NONSENSE}


def _spread(data: EvaluationSet) -> list[str]:
    """Return questions of a set that had no part in the fit, spread evenly."""
    tested = _tested(data)
    texts = [
        question.text
        for number, question in enumerate(data.questions)
        if question.counts and not question.is_apart and (question.document in tested if tested else number % 2)
    ]
    places = np.linspace(0, len(texts) - 1, min(_OF_EACH, len(texts))).round().astype(int).tolist()
    return [texts[place] for place in places]


async def _ask_documents(workspace: AsyncWorkspace, ingested: Ingested, questions: Questions, found: Found) -> None:
    for kind, asked in questions.items():
        for text, document in asked:
            await _ask(workspace, text, [ingested.archives[document]], ("own", kind), found)
            await _ask(workspace, text, [], ("pooled", kind), found)


async def _ask_notes(workspace: AsyncWorkspace, questions: Mapping[str, Sequence[str]], found: Found) -> None:
    for kind, texts in questions.items():
        for text in texts:
            await _ask(workspace, text, [], ("notes", kind), found)


async def _ask(
    workspace: AsyncWorkspace, text: str, archives: Sequence[str], place: tuple[str, str], found: Found
) -> None:
    """Ask a question in every way; ``place`` says where it is asked, and of what kind it is."""
    where, kind = place
    found.add(f"Recall: {where}", kind, await workspace.recall(text, token_budget=BUDGET, archives=archives))
    for search in SEARCHES:
        hits = await workspace.search(text, search_type=search, archives=archives, include_preview=False)
        found.add(f"SearchNodes {search}: {where}", kind, hits)


def _figures(kinds: Mapping[str, Asked]) -> dict[str, dict[str, Any]]:
    answered = np.array(kinds[ANSWERED].likelihoods)
    return {
        kind: {
            "questions": len(asked.likelihoods),
            **{level: round(100 * asked.levels[level] / len(asked.likelihoods), 1) for level in _LEVELS},
            **({} if kind == ANSWERED else _told_apart(answered, np.array(asked.likelihoods))),
        }
        for kind, asked in kinds.items()
    }


_LEVELS: Final = ("strong", "weak", "none")


def _told_apart(answered: NDArray[np.float64], others: NDArray[np.float64]) -> dict[str, float]:
    return {
        "area": round(area_under_curve(answered, others), 3),
        "false_alarms": round(100 * float(np.mean(others >= np.quantile(answered, 1 - KEPT))), 1),
    }


def area_under_curve(answered: NDArray[np.float64], others: NDArray[np.float64]) -> float:
    """Return how often a question with an answer has a greater likelihood than one without; ties count half."""
    ordered = np.sort(others)
    below = np.searchsorted(ordered, answered, side="left")
    not_above = np.searchsorted(ordered, answered, side="right")
    return float(np.mean(below + not_above) / (2 * len(others)))
