"""Whether a recall knows what it doesn't know: questions with an answer beside questions without one.

Questions without an answer are those of the other sets, questions of general knowledge, and nonsense; and those that a
set itself marks as unanswerable, which ask about things that never happened to people who are in the text. The weights
of the likelihood were fitted on documents with even numbers, so only those with odd numbers are measured here; a set of
one document only gives questions to the others.
"""

import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from bench.evidence import EvaluationSet, read_set
from bench.recall_asking import Ingested, Where, ingest, private_server
from bench.table import machine
from memotree.client.workspace import AsyncWorkspace

BUDGET: Final = 500
KEPT: Final = 0.95
"""The share of the questions with an answer that a threshold keeps, when false alarms are counted."""

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


@dataclass(slots=True)
class Asked:
    """The likelihoods and confidences of the answers to one kind of questions."""

    likelihoods: list[float] = field(default_factory=list)
    levels: Counter[str] = field(default_factory=Counter)


async def run(folders: Sequence[Path], embedding: str | None = None) -> dict[str, Any]:
    """Measure some sets with an embedding model; the built-in one if ``None``."""
    sets = [read_set(folder) for folder in folders]
    found: dict[Where, dict[str, Asked]] = {"own": defaultdict(Asked), "pooled": defaultdict(Asked)}
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="memotree-recall-") as folder:
        (home := Path(folder) / "data").mkdir()
        async with private_server(home, embedding) as client:
            for data in sets:
                await client.create_workspace(data.name)
                workspace = client.workspace(data.name)
                _say.print(f"{data.name}: ingesting and asking …")
                ingested = await ingest(workspace, data)
                failures += ingested.failures
                await _ask_all(workspace, data, ingested, dict(_questions(data, sets)), found)
    return {
        "kind": "confidence",
        "set": "confidence",
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "sets": [data.name for data in sets],
        "places": {where: _figures(kinds) for where, kinds in found.items() if kinds},
        "failures": failures,
    }


def _questions(data: EvaluationSet, sets: Sequence[EvaluationSet]) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """Yield the questions by their kind, each with the document that is asked."""
    tested = [number for number in range(len(data.documents)) if number % 2]
    if not tested:
        return
    own = [question for question in data.questions if question.document in tested]
    yield ANSWERED, [(each.text, each.document) for each in own if each.counts and not each.is_apart]
    yield "unanswerable by the set", [(each.text, each.document) for each in own if each.is_apart]
    foreign = [text for other in sets if other is not data for text in _spread(other)]
    for kind, texts in (("of other sets", foreign), ("general knowledge", GENERAL), ("nonsense", NONSENSE)):
        yield kind, [(text, tested[number % len(tested)]) for number, text in enumerate(texts)]


def _spread(data: EvaluationSet) -> list[str]:
    texts = [question.text for question in data.questions if question.counts and not question.is_apart]
    places = np.linspace(0, len(texts) - 1, min(_OF_EACH, len(texts))).round().astype(int).tolist()
    return [texts[place] for place in places]


async def _ask_all(
    workspace: AsyncWorkspace,
    data: EvaluationSet,
    ingested: Ingested,
    questions: Mapping[str, Sequence[tuple[str, int]]],
    found: Mapping[Where, Mapping[str, Asked]],
) -> None:
    for kind, asked in questions.items():
        for text, document in asked:
            for where, kinds in found.items():
                if where == "pooled" and len(data.documents) == 1:
                    continue
                archives = [ingested.archives[document]] if where == "own" else []
                answer = await workspace.recall(text, token_budget=BUDGET, archives=archives)
                kinds[kind].likelihoods.append(answer.likelihood)
                kinds[kind].levels[answer.confidence] += 1


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
