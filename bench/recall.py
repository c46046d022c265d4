"""How well ``Recall`` finds what answers a question, beside simple methods, on a folder of documents and questions.

The documents go through ``IngestDocument`` into a private server with the built-in models and everything at its
default; each question is asked over gRPC, of its own document and of all documents at once, at each token budget.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import uvloop
from rich.console import Console
from rich.progress import track

from bench import (
    baselines,
    kept_notes,
    recall_ablations,
    recall_confidence,
    recall_embedding,
    recall_languages,
    recall_pages,
    recall_scale,
)
from bench.evidence import EvaluationSet, figure, read_set
from bench.recall_asking import WORKSPACE, Ingested, Reply, Where, ask, ingest, private_server, recall_of
from bench.table import machine
from memotree.models.builtin import WordllamaEmbedder
from memotree.server.logs import configure_logging
from memotree.server.starting import collect_rarely
from memotree.settings import LOCAL_EMBEDDING_MODELS

OUT: Final = Path(__file__).parent / "out"

Replies = dict[Where, dict[int, list[Reply]]]
"""The answers to the questions in order, by place and budget."""

_say: Final = Console(stderr=True)


def main() -> int:
    """Run the measurements; fails if something could not be done, never because of a figure."""
    arguments = _arguments()
    configure_logging("warning", "console")
    if arguments.markdown:
        recall_pages.renew(sorted(OUT.glob("recall-*.json")))
        for name in LOCAL_EMBEDDING_MODELS:
            if runs := recall_embedding.pairs(OUT, name):
                recall_pages.fill([(name, recall_pages.table(recall_embedding.sheet(runs)))])
            for path in OUT.glob(f"{name}-languages.json"):
                recall_pages.fill([(f"{name}-languages", recall_pages.markdown(json.loads(path.read_text("utf-8"))))])
        return 0
    collect_rarely()
    if arguments.scale:
        document = uvloop.run(recall_scale.run(arguments.scale))
        name = "scale"
    elif arguments.notes:
        document = uvloop.run(kept_notes.run(arguments.notes, arguments.embedding))
        name = "notes"
    elif arguments.languages:
        document = uvloop.run(recall_languages.run(arguments.languages, arguments.questions, arguments.embedding))
        name = "languages"
    elif arguments.confidence:
        document = uvloop.run(recall_confidence.run(arguments.confidence, arguments.embedding))
        name = "confidence"
    else:
        data = read_set(arguments.data, arguments.questions)
        document = _measured(data, arguments)
        name = data.name
    # The tables of the default are renewed from the files named so, so another model's figures need another name.
    name = f"{arguments.embedding}-{name}" if arguments.embedding else f"recall-{name}"
    path = arguments.json or OUT / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    recall_pages.show(document, Console(width=170))
    _say.print(f"Everything is in {path}.")
    return int(bool(document["failures"]))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="the folder with documents.jsonl and questions.jsonl")
    parser.add_argument("--json", type=Path, help="the file for all results; bench/out/recall-<set>.json by default")
    parser.add_argument("--budgets", type=_budgets, help="such as 250,500,1000; the default depends on the set")
    parser.add_argument("--questions", type=int, help="only this many questions, spread evenly over all")
    parser.add_argument("--embedding", metavar="NAME", help="a local embedding model; the built-in one by default")
    parser.add_argument("--no-pooled", action="store_true", help="ask each question only of its own document")
    parser.add_argument("--no-baselines", action="store_true", help="do not measure the simple methods")
    parser.add_argument("--ablations", action="store_true", help="also switch off each part of the scoring in turn")
    parser.add_argument("--scale", type=int, help="instead: measure the latency over this many synthetic leaves")
    parser.add_argument(
        "--confidence", type=Path, nargs="+", help="instead: measure over these sets whether a recall can say no"
    )
    parser.add_argument("--notes", type=Path, help="instead: measure the answers to questions about a folder of notes")
    parser.add_argument(
        "--languages", type=Path, help="instead: measure the sets of a folder, the same questions in several languages"
    )
    parser.add_argument(
        "--markdown", action="store_true", help="instead: update docs/reference/recall.md from bench/out"
    )
    arguments = parser.parse_args()
    given = (arguments.data, arguments.scale, arguments.notes, arguments.languages, arguments.confidence)
    if not (any(given) or arguments.markdown):
        parser.error("give --data, --notes or --languages FOLDER, --scale LEAVES, --confidence FOLDERS or --markdown")
    return arguments


def _budgets(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(","))


# --- The run ---------------------------------------------------------------------------------------------------------


def _measured(data: EvaluationSet, arguments: argparse.Namespace) -> dict[str, Any]:
    begun = time.perf_counter()
    budgets = arguments.budgets or data.budgets
    places: tuple[Where, ...] = ("own",) if arguments.no_pooled else ("own", "pooled")
    document = _facts(data, budgets, places) | {"embedding": arguments.embedding or ""}
    with tempfile.TemporaryDirectory(prefix="memotree-recall-") as folder:
        (home := Path(folder) / "data").mkdir()
        ingested, replies, facts = uvloop.run(_asked(home, data, budgets, places, arguments.embedding))
        document |= facts
        document |= _figures(data, replies)
        if arguments.ablations:
            _say.print("ablations …")
            rows = asyncio.run(recall_ablations.run(home, data, ingested, budgets, places, arguments.embedding))
            document["ablations"] = {name: _means(data, own) for name, own in rows.items()}
            document["ablations_apart"] = _apart(document)  # more than 0 if they score differently than the server
    if not arguments.no_baselines:
        _say.print("simple methods …")
        found = baselines.run(data, budgets, WordllamaEmbedder().embed_now, has_pooled="pooled" in places)
        document["baselines"] = {name: _means(data, own) for name, own in found.items()}
        plain = {name: own for name, own in found.items() if not name.endswith(baselines.WITH_HEADINGS)}
        document["best_baseline"] = _best(data, replies, plain)
        if headed := {name: own for name, own in found.items() if name not in plain}:
            document["best_with_headings"] = _best(data, replies, headed)
        document["per_question_baselines"] = {
            name: {
                where: {budget: np.round(row, 4).tolist() for budget, row in rows.items()}
                for where, rows in own.items()
            }
            for name, own in found.items()
        }
    document["per_question"] = list(_per_question(data, replies))
    document["seconds"] = round(time.perf_counter() - begun, 1)
    return document


def _facts(data: EvaluationSet, budgets: Sequence[int], places: Sequence[Where]) -> dict[str, Any]:
    counted = [question for question in data.questions if question.counts]
    return {
        "kind": "recall",
        "set": data.name,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "documents": len(data.documents),
        "lines": data.lines,
        "questions": len(data.questions),
        "counted": sum(not question.is_apart for question in counted),
        "apart": sum(question.is_apart for question in counted),
        "lost_evidence": sum(question.lost for question in data.questions),
        "budgets": list(budgets),
        "places": list(places),
    }


async def _asked(
    folder: Path, data: EvaluationSet, budgets: Sequence[int], places: Sequence[Where], embedding: str | None
) -> tuple[Ingested, Replies, dict[str, Any]]:
    async with private_server(folder, embedding) as client:
        await client.create_workspace(WORKSPACE)
        workspace = client.workspace(WORKSPACE)
        _say.print(f"{data.name}: ingesting {len(data.documents)} documents of {data.lines:,} lines …")
        ingested = await ingest(workspace, data)
        rested = recall_scale.resident()
        # The first question loads the trees of every archive.
        last = places[-1]
        cold = await ask(workspace, ingested, data.questions[0], last, budgets[0])
        replies: Replies = {}
        for where in places:
            for budget in budgets:
                named = f"{where}, {budget:,} tokens"
                rows = replies.setdefault(where, {}).setdefault(budget, [])
                for question in track(data.questions, named, console=_say, transient=True):
                    rows.append(await ask(workspace, ingested, question, where, budget))
        facts = {
            "failures": ingested.failures,
            "ingest": {
                "seconds": round(ingested.seconds, 2),
                "lines_per_second": round(data.lines / ingested.seconds, 1),
                "usage": {name: dict(counts) for name, counts in ingested.usage.items()},
                "calls": sum(counts["calls"] for counts in ingested.usage.values()),
                **ingested.nodes,
            },
            "first_recall_ms": round(cold.milliseconds, 1),
            "memory_mb": {"after ingest": rested, "after all questions": recall_scale.resident()},
        }
    return ingested, replies, facts


# --- The figures -----------------------------------------------------------------------------------------------------


def _chosen(data: EvaluationSet, *, apart: bool = False) -> list[int]:
    """Return the numbers of the questions that count, or of those that are reported separately."""
    return [number for number, question in enumerate(data.questions) if question.counts and question.is_apart is apart]


def _recalls(data: EvaluationSet, row: Sequence[Reply]) -> list[float]:
    """Return the recall of each question in its answer."""
    return [recall_of(question, reply.packed, data) for question, reply in zip(data.questions, row, strict=True)]


def _figure(data: EvaluationSet, values: Sequence[float], numbers: Iterable[int]) -> dict[str, Any]:
    """Return the rounded figure of some questions; ``values`` has those of all questions."""
    chosen = list(numbers)
    found = figure([values[number] for number in chosen], [data.questions[number].document for number in chosen])
    return {
        name: np.round(value, 2).tolist() if name != "questions" else value for name, value in asdict(found).items()
    }


def _figures(data: EvaluationSet, replies: Replies) -> dict[str, Any]:
    main: dict[str, Any] = {}
    apart: dict[str, Any] = {}
    kinds = sorted({question.category for question in data.questions if not question.is_apart})
    for where, rows in replies.items():
        for budget, row in rows.items():
            values = [
                recall_of(question, reply.packed, data) for question, reply in zip(data.questions, row, strict=True)
            ]
            chosen = _chosen(data)
            main.setdefault(where, {})[str(budget)] = _figure(data, values, chosen) | {
                "categories": {
                    kind: _figure(data, values, (each for each in chosen if data.questions[each].category == kind))
                    for kind in kinds
                },
                **_costs(row, budget),
            }
            apart.setdefault(where, {})[str(budget)] = _figure(data, values, _chosen(data, apart=True))
    return {"memotree": main, "unanswerable": apart}


def _costs(row: Sequence[Reply], budget: int) -> dict[str, float]:
    times = [reply.milliseconds for reply in row]
    return {
        "used_share": round(float(np.mean([reply.tokens for reply in row])) / budget, 4),
        "most_used_share": round(max(reply.tokens for reply in row) / budget, 4),
        "over_budget": sum(reply.dropped > 0 for reply in row),
        "p50_ms": round(float(np.percentile(times, 50)), 2),
        "p95_ms": round(float(np.percentile(times, 95)), 2),
        "leaves_considered": round(float(np.mean([reply.considered for reply in row])), 1),
    }


def _means(data: EvaluationSet, rows: Mapping[Any, Mapping[int, Sequence[float]]]) -> dict[str, dict[str, float]]:
    chosen = _chosen(data)
    return {
        where: {
            str(budget): round(100 * float(np.mean([row[each] for each in chosen])), 2) for budget, row in own.items()
        }
        for where, own in rows.items()
    }


def _apart(document: Mapping[str, Any]) -> float:
    """Return the greatest difference, in points, between the ablations' default row and the server's answers."""
    default, served = document["ablations"]["default"], document["memotree"]
    pairs = ((mean, served[where][budget]["mean"]) for where, row in default.items() for budget, mean in row.items())
    return max(abs(float(mean) - float(answered)) for mean, answered in pairs)


def _best(
    data: EvaluationSet, replies: Replies, found: Mapping[str, Mapping[str, Mapping[int, Sequence[float]]]]
) -> dict[str, dict[str, Any]]:
    """Return the best simple method of each place and budget, chosen afterwards, and MemoTree's lead over it."""
    chosen = _chosen(data)
    best: dict[str, dict[str, Any]] = {}
    for where, rows in replies.items():
        for budget, row in rows.items():
            means = {name: float(np.mean([own[where][budget][each] for each in chosen])) for name, own in found.items()}
            name = max(means, key=means.__getitem__)
            ours = [
                recall_of(question, reply.packed, data) for question, reply in zip(data.questions, row, strict=True)
            ]
            more = [one - other for one, other in zip(ours, found[name][where][budget], strict=True)]
            best.setdefault(where, {})[str(budget)] = {
                "name": name,
                "recall": round(100 * means[name], 2),
                "difference": _figure(data, more, chosen),
            }
    return best


def _per_question(data: EvaluationSet, replies: Replies) -> Iterable[dict[str, Any]]:
    for where, rows in replies.items():
        for budget, row in rows.items():
            for question, reply in zip(data.questions, row, strict=True):
                yield {
                    "question_id": question.id,
                    "doc_id": data.documents[question.document].id,
                    "category": question.category,
                    "where": where,
                    "budget": budget,
                    "recall": round(recall_of(question, reply.packed, data), 4) if question.counts else None,
                    "evidence": len(question.evidence) + question.lost,
                    "packed": len(reply.packed),
                    "tokens": round(reply.tokens, 2),
                    "ms": round(reply.milliseconds, 2),
                }


if __name__ == "__main__":
    sys.exit(main())
