"""How often a recall of notes holds the right answer at a token budget, beside simple methods over the same notes.

The set is a folder: notes of a person and a project (``notes.jsonl``), some of which are corrected and forgotten, and
questions in other words. An answer is right if the packed text matches each of the patterns of the fact, and none of
those of the fact that it corrected. Questions whose subject is known and whose asked fact is not, and questions about
something else, tell whether the confidence knows the difference.
"""

import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from memotree_storage.model.titles import titled
from memotree_storage.model.tokens import count_tokens

from bench.baselines import METHODS, Ranking, terms_of
from bench.recall_asking import private_server
from bench.recall_confidence import area_under_curve
from bench.table import machine
from memotree.client import memory
from memotree.client.workspace import AsyncWorkspace
from memotree.models.builtin import WordllamaEmbedder

BUDGETS: Final = (200, 400, 2000)

Strategy: TypeAlias = Literal["HYBRID", "COLLAPSED"]

_COLLAPSED_FROM: Final = 200
"""The number of nodes that COLLAPSED starts from, so that it can fill each budget, too."""

_AT_ONCE: Final = 50


@dataclass(frozen=True, slots=True)
class Question:
    """A question, with patterns for what a right answer says, and for what it does not say any more."""

    text: str
    kind: str
    right: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()

    def is_answered_by(self, text: str) -> bool:
        """Whether a text has the right answer, and not the former one."""
        return all(re.search(each, text, re.IGNORECASE) for each in self.right) and not any(
            re.search(each, text, re.IGNORECASE) for each in self.stale
        )


@dataclass(frozen=True, slots=True)
class Note:
    """A note as the set gives it."""

    id: str
    title: str
    text: str

    @property
    def shown(self) -> str:
        """The text that methods rank and pack."""
        return titled(self.title, self.text)


@dataclass(frozen=True, slots=True)
class NotesSet:
    """The notes as they were written first, the corrections in order, the ids of those forgotten, and questions."""

    name: str
    notes: tuple[Note, ...]
    corrections: tuple[tuple[str, str], ...]
    forgotten: tuple[str, ...]
    questions: tuple[Question, ...]

    def now(self) -> list[Note]:
        """The notes that are left, as they are now."""
        texts = dict(self.corrections)
        gone = set(self.forgotten)
        return [Note(each.id, each.title, texts.get(each.id, each.text)) for each in self.notes if each.id not in gone]


def read_notes(folder: Path) -> NotesSet:
    """Read the set in a folder."""
    asked = [
        Question(row["question"], row["kind"], tuple(row["answer_patterns"]), tuple(row["stale_patterns"]))
        for row in _rows(folder / "questions.jsonl")
    ]
    for kind in ("near_misses", "other_worlds"):
        asked += [Question(row["question"], kind) for row in _rows(folder / f"{kind}.jsonl")]
    return NotesSet(
        folder.resolve().name,
        tuple(Note(row["id"], row["title"], row["text"]) for row in _rows(folder / "notes.jsonl")),
        tuple((row["id"], row["text"]) for row in _rows(folder / "corrections.jsonl")),
        tuple(row["id"] for row in _rows(folder / "forgotten.jsonl")),
        tuple(asked),
    )


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from (json.loads(line) for line in lines if line.strip())


async def run(folder: Path, embedding: str | None = None) -> dict[str, Any]:
    """Measure the set in a folder with an embedding model; the built-in one if ``None``."""
    data = read_notes(folder)
    answered = [each for each in data.questions if each.right]
    with tempfile.TemporaryDirectory(prefix="memotree-recall-") as home:
        (own := Path(home) / "data").mkdir()
        async with private_server(own, embedding) as client:
            await client.create_workspace(data.name)
            workspace = client.workspace(data.name)
            await _write(workspace, data)
            right = {
                "MemoTree": await _right(workspace, answered, "HYBRID"),
                "MemoTree, COLLAPSED": await _right(workspace, answered, "COLLAPSED"),
            }
            levels = await _levels(workspace, data.questions)
    return {
        "kind": "notes",
        "set": "notes",
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "asked": len(answered),
        "budgets": list(BUDGETS),
        "right": right | _simple(data, answered),
        "levels": levels,
        "failures": [],
    }


async def _write(workspace: AsyncWorkspace, data: NotesSet) -> None:
    ids: dict[str, str] = {}
    for start in range(0, len(data.notes), _AT_ONCE):
        some = data.notes[start : start + _AT_ONCE]
        results = await workspace.apply([memory.remember(each.text, title=each.title) for each in some])
        ids |= {each.id: result.id for each, result in zip(some, results, strict=True)}
    await workspace.apply([memory.revise(ids[key], text=text) for key, text in data.corrections])
    await workspace.apply([memory.forget(ids[key]) for key in data.forgotten])


async def _right(workspace: AsyncWorkspace, asked: Sequence[Question], strategy: Strategy) -> dict[str, list[bool]]:
    found: dict[str, list[bool]] = {}
    for budget in BUDGETS:
        for question in asked:
            answer = await workspace.recall(
                question.text, token_budget=budget, strategy=strategy, top_k=_COLLAPSED_FROM
            )
            found.setdefault(str(budget), []).append(question.is_answered_by(answer.text))
    return found


async def _levels(workspace: AsyncWorkspace, asked: Iterable[Question]) -> dict[str, dict[str, Any]]:
    """Return how many answers have each confidence, by the kind of question, and how well the likelihood tells it."""
    levels: dict[str, Counter[str]] = {}
    likelihoods: dict[str, list[float]] = {}
    for question in asked:
        answer = await workspace.recall(question.text)
        kind = question.kind
        if question.right:
            kind = "answered" if question.is_answered_by(answer.text) else "not answered"
        levels.setdefault(kind, Counter())[answer.confidence] += 1
        likelihoods.setdefault(kind, []).append(answer.likelihood)
    known = np.array(likelihoods["answered"])
    return {
        kind: {
            **{level: counts[level] for level in ("strong", "weak", "none")},
            **({} if kind == "answered" else {"area": round(area_under_curve(known, np.array(likelihoods[kind])), 3)}),
        }
        for kind, counts in levels.items()
    }


def _simple(data: NotesSet, asked: Sequence[Question]) -> dict[str, dict[str, list[bool]]]:
    """Return for each simple method which questions it answers at each budget."""
    texts = [note.shown for note in data.now()]
    embed = WordllamaEmbedder().embed_now
    ranking = Ranking([Counter(terms_of(text)) for text in texts], embed(texts))
    vectors = embed([question.text for question in asked])
    found: dict[str, dict[str, list[bool]]] = {method: {} for method in METHODS}
    for question, vector in zip(asked, vectors, strict=True):
        for method, scores in ranking.scores(terms_of(question.text), vector).items():
            ranked = [texts[place] for place in np.argsort(-scores, kind="stable").tolist() if scores[place] > 0]
            for budget in BUDGETS:
                packed = "\n".join(_packed(ranked, budget))
                found[method].setdefault(str(budget), []).append(question.is_answered_by(packed))
    return found


def _packed(ranked: Iterable[str], budget: int) -> Iterator[str]:
    room = budget
    for text in ranked:
        cost = count_tokens(text)
        if cost <= room:
            room -= cost
            yield text
