"""Compares the recall with another embedding model with that of the default, question by question."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.evidence import APART, Figure, figure
from bench.recall_pages import Sheet

BUDGETS: Final = (500, 1_000, 2_000)


def pairs(folder: Path, embedding: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the saved runs of each set, with the default and with another model, if there are both."""
    found = []
    for path in sorted(folder.glob(f"{embedding}-*.json")):
        default = folder / f"recall-{path.stem.removeprefix(f'{embedding}-')}.json"
        if default.exists() and "per_question" in (run := json.loads(path.read_text("utf-8"))):
            found.append((json.loads(default.read_text("utf-8")), run))
    return found


def sheet(runs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Sheet:
    """Return the table of pairs of runs."""
    names = ", ".join(sorted({other["embedding"] for _, other in runs}))
    title = f"Evidence recall in percent with the built-in vectors and with {names} ({runs[-1][1]['date']})"
    headings = ("set, tokens", "questions", "built in", "model", "difference", "95 % by question", "95 % by document")
    return Sheet(title, headings, [row for default, other in runs for row in _rows(default, other)])


def _rows(default: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    before, after = _recalls(default), _recalls(other)
    for where in other["places"]:
        if where == "pooled" and other["documents"] == 1:
            continue
        for budget in BUDGETS:
            keys = [key for key in after if key[1:] == (where, budget) and key in before]
            if not keys:
                continue
            homes = [after[key][1] for key in keys]
            numbers = {name: number for number, name in enumerate(dict.fromkeys(homes))}
            documents = [numbers[home] for home in homes]

            def mean(values: Sequence[float], documents: Sequence[int] = documents) -> Figure:
                return figure(values, documents)

            difference = mean([after[key][0] - before[key][0] for key in keys])
            yield (
                f"{other['set']}, {where} {budget:,}",
                f"{len(keys):,}",
                f"{mean([before[key][0] for key in keys]).mean:.1f}",
                f"{mean([after[key][0] for key in keys]).mean:.1f}",
                f"{difference.mean:+.1f}",
                "{:+.1f} to {:+.1f}".format(*difference.by_question),
                "{:+.1f} to {:+.1f}".format(*difference.by_document) if len(numbers) > 1 else "",
            )


def _recalls(document: Mapping[str, Any]) -> dict[tuple[str, str, int], tuple[float, str]]:
    """Return the recall and the document of each question that has evidence, by question, place and budget."""
    return {
        (f"{row['doc_id']} {row['question_id']}", row["where"], row["budget"]): (row["recall"], row["doc_id"])
        for row in document["per_question"]
        if row["recall"] is not None and row["category"] != APART
    }
