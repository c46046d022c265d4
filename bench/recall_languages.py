"""The same questions in several languages: what a recall finds, and whether it knows what it does not know.

The folder has a set of documents and questions for each language. A question is asked of its own document and of all;
and of another document, and of the documents with even numbers if its own has an odd one, where nothing answers it. If
there is a set in English, each is also asked in English; the ids of its questions differ in the name of the set alone.
The simple methods have the stems of the language, and pairs of characters for unspaced scripts.
"""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from bench import baselines
from bench.evidence import EvaluationSet, Question, figure, read_set
from bench.recall_asking import WORKSPACE, Ingested, Where, ask, ingest, private_server, recall_of
from bench.table import machine
from memotree.client.workspace import AsyncWorkspace
from memotree.models.builtin import WordllamaEmbedder

BUDGETS: Final = (100, 250)
PLACES: Final[Sequence[Where]] = ("own", "pooled")
_SURE_BUDGET: Final = 250

_ENGLISH: Final = "en"
_IN_ENGLISH: Final = "pooled, asked in English"


async def run(folder: Path, questions: int | None, embedding: str | None = None) -> dict[str, Any]:
    """Measure each set in a folder, with this many questions of each, with an embedding model."""
    languages: dict[str, dict[str, Any]] = {}
    failures: list[str] = []
    sets = await asyncio.to_thread(_sets, folder, questions)
    english = {_number(each, data): each.text for data in sets if data.name == _ENGLISH for each in data.questions}
    for data in sets:
        languages[data.name], failed = await _measured(data, {} if data.name == _ENGLISH else english, embedding)
        failures += failed
    return {
        "kind": "languages",
        "set": "languages",
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "budgets": list(BUDGETS),
        "languages": languages,
        "failures": failures,
    }


def _sets(folder: Path, questions: int | None) -> list[EvaluationSet]:
    return [read_set(path.parent, questions) for path in sorted(folder.glob("*/questions.jsonl"))]


def _number(question: Question, data: EvaluationSet) -> str:
    """Return what the id of a question has in common with those of the same question in other languages."""
    return question.id.removeprefix(data.name)


async def _measured(
    data: EvaluationSet, english: Mapping[str, str], embedding: str | None
) -> tuple[dict[str, Any], list[str]]:
    with tempfile.TemporaryDirectory(prefix="memotree-recall-") as home:
        (own := Path(home) / "data").mkdir()
        async with private_server(own, embedding) as client:
            await client.create_workspace(WORKSPACE)
            workspace = client.workspace(WORKSPACE)
            ingested = await ingest(workspace, data)
            found: dict[str, dict[str, list[float]]] = {
                where: {
                    str(budget): [
                        recall_of(question, (await ask(workspace, ingested, question, where, budget)).packed, data)
                        for question in data.questions
                    ]
                    for budget in BUDGETS
                }
                for where in PLACES
            }
            in_english = [replace(each, text=english.get(_number(each, data), "")) for each in data.questions]
            if all(each.text for each in in_english):
                found[_IN_ENGLISH] = {
                    str(_SURE_BUDGET): [
                        recall_of(
                            question, (await ask(workspace, ingested, question, "pooled", _SURE_BUDGET)).packed, data
                        )
                        for question in in_english
                    ]
                }
            sure = {
                f"{where}, {kind}": dict(await _sure(workspace, asked)) for where, kind, asked in _asked(data, ingested)
            }
    simple = baselines.run(data, BUDGETS, WordllamaEmbedder().embed_now)
    plain = {name: rows for name, rows in simple.items() if not name.endswith(baselines.WITH_HEADINGS)}
    documents = [question.document for question in data.questions]
    return {
        "questions": len(data.questions),
        "memotree": {
            where: {budget: figure(values, documents).mean for budget, values in rows.items()}
            for where, rows in found.items()
        },
        "best_simple": {
            where: {
                str(budget): max(figure(rows[where][budget], documents).mean for rows in plain.values())
                for budget in BUDGETS
            }
            for where in PLACES
        },
        "sure": sure,
    }, ingested.failures


def _asked(data: EvaluationSet, ingested: Ingested) -> Iterator[tuple[Where, str, list[tuple[Question, list[str]]]]]:
    """Yield questions with the archives that each is asked of: where something answers it, and where nothing does."""
    count = len(ingested.archives)
    even = ingested.archives[::2]
    yield "own", "answered", [(each, [ingested.archives[each.document]]) for each in data.questions]
    yield "own", "unanswerable", [(each, [ingested.archives[(each.document + 1) % count]]) for each in data.questions]
    yield "pooled", "answered", [(each, even) for each in data.questions if each.document % 2 == 0]
    yield "pooled", "unanswerable", [(each, even) for each in data.questions if each.document % 2]


async def _sure(workspace: AsyncWorkspace, asked: Sequence[tuple[Question, list[str]]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for question, archives in asked:
        answer = await workspace.recall(question.text, token_budget=_SURE_BUDGET, archives=archives)
        found[answer.confidence] += 1
    return found


def rows(document: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each language: what is found, in brackets by the best simple method, and how sure it is."""
    for name, cell in document["languages"].items():
        found = (
            f"{cell['memotree'][where][budget]:.1f} ({cell['best_simple'][where][budget]:.1f})"
            for where in PLACES
            for budget in map(str, document["budgets"])
        )
        in_english = cell["memotree"].get(_IN_ENGLISH)
        sure = (
            f"{_share(cell['sure'][f'{where}, {kind}'], level):.0f} %"
            for kind, level in (("unanswerable", "strong"), ("answered", "none"))
            for where in PLACES
        )
        yield (name, *found, f"{in_english[str(_SURE_BUDGET)]:.1f}" if in_english else "", *sure)


def headings(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the headings of the rows."""
    found = (f"{where} {budget}" for where in PLACES for budget in document["budgets"])
    sure = (f"{what}, {where}" for what in ("strong without answer", "none with answer") for where in PLACES)
    return ("language", *found, f"{_IN_ENGLISH} {_SURE_BUDGET}", *sure)


def _share(counts: Mapping[str, int], level: str) -> float:
    return 100 * counts.get(level, 0) / max(1, sum(counts.values()))
