"""The tables of a recall bench, on a terminal and in ``docs/reference/recall.md``."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from bench import recall_languages

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "reference" / "recall.md"

SETS: Final[Mapping[str, str]] = {
    "locomo-dev": "conversations",
    "qmsum-val": "meetings",
    "emanual-dev": "a manual",
    "qasper10-dev": "papers",
    "syllabusqa-dev": "syllabi",
}
"""The sets that are shown side by side, with what they are about."""

BARS: Final[Mapping[str, Mapping[str, Mapping[str, float]]]] = {
    "locomo-dev": {
        "own": {"250": 57.4, "500": 71.7, "1000": 79.7, "2000": 86.3},
        "pooled": {"250": 55.6, "500": 68.8, "1000": 78.0, "2000": 84.7},
    },
    "qmsum-val": {
        "own": {"1000": 32.8, "2000": 47.7, "4000": 71.6, "8000": 89.9},
        "pooled": {"1000": 20.3, "2000": 29.2, "4000": 40.2, "8000": 49.4},
    },
}
"""The best of about thirty simple methods by set, tuned on the set itself and chosen for each budget, in percent."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table: its title, its headings, and its rows; the first cell of a row is its name."""

    title: str
    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def show(document: Mapping[str, Any], console: Console) -> None:
    """Print the tables of one run."""
    for sheet in sheets(document):
        shown = Table(title=sheet.title, title_justify="left")
        for number, heading in enumerate(sheet.headings):
            shown.add_column(heading, justify="right" if number else "left")
        for row in sheet.rows:
            shown.add_row(*(cell.strip("*") for cell in row))
        console.print(shown)
    for failure in document["failures"]:
        console.print(f"[red]{failure}[/]")


def renew(paths: Iterable[Path], page: Path = PAGE) -> None:
    """Write the tables of saved runs between the marks of the page that have their names, and all sets side by side."""
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    tables = [(document["set"], markdown(document)) for document in documents]
    runs = {document["set"]: document for document in documents if "best_baseline" in document}
    if runs.keys() >= SETS.keys():
        tables.append(("overview", table(overview(runs))))
    fill(tables, page)


def fill(tables: Iterable[tuple[str, str]], page: Path = PAGE) -> None:
    """Write tables between the marks of the page that have their names; one without marks is left out."""
    text = page.read_text(encoding="utf-8")
    for name, made in tables:
        begin, end = (f"<!-- {mark}: {name} -->" for mark in ("begin", "end"))
        if begin in text and end in text:
            before, _, rest = text.partition(begin)
            text = f"{before}{begin}\n\n{made}\n{end}{rest.partition(end)[2]}"
    page.write_text(text, encoding="utf-8")


def markdown(document: Mapping[str, Any]) -> str:
    """Return the tables of one run as Markdown."""
    return "\n".join(table(sheet) for sheet in sheets(document))


def table(sheet: Sheet) -> str:
    """Return one table as Markdown."""
    lines = [f"**{sheet.title}**", "", _line(sheet.headings), f"|---|{'---:|' * (len(sheet.headings) - 1)}"]
    return "\n".join([*lines, *map(_line, sheet.rows), ""])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


# --- The tables ------------------------------------------------------------------------------------------------------


def sheets(document: Mapping[str, Any]) -> Iterator[Sheet]:
    """The tables of one run."""
    if document["kind"] == "scale":
        yield _scale(document)
        return
    if document["kind"] == "confidence":
        yield from _confidence(document)
        return
    if document["kind"] == "notes":
        yield from _notes(document)
        return
    if document["kind"] == "languages":
        title = f"Evidence recall in percent (of the best simple method), and confidence ({document['date']})"
        yield Sheet(title, recall_languages.headings(document), list(recall_languages.rows(document)))
        return
    run = _Run(document)
    yield run.recall()
    yield run.categories()
    if "ablations" in document:
        yield run.ablations()
    yield run.costs()
    yield run.ingest()


def overview(runs: Mapping[str, Mapping[str, Any]]) -> Sheet:
    """Return the sets side by side: MemoTree, and in brackets what it has more than the best simple method."""
    budgets = sorted({int(budget) for run in runs.values() for budget in run["budgets"]})
    rows = []
    for name, what in SETS.items():
        run = runs[name]
        for where in run["places"]:
            ours, best = run["memotree"][where], run["best_baseline"][where]
            cells = {
                int(budget): f"{ours[budget]['mean']:.1f} ({best[budget]['difference']['mean']:+.1f})"
                for budget in ours
            }
            rows.append((f"{what}, {where}", *(cells.get(budget, "") for budget in budgets)))
    title = "Evidence recall in percent (and points more than the best simple method of the run) at each token budget"
    return Sheet(title, ("questions about", *(f"{budget:,}" for budget in budgets)), rows)


def _scale(document: Mapping[str, Any]) -> Sheet:
    title = f"Recall over {document['leaves']:,} leaves in {document['archives']:,} archives ({document['date']})"
    return Sheet(title, ("what", "figure"), [(name, str(value)) for name, value in document["rows"].items()])


def _confidence(document: Mapping[str, Any]) -> Iterator[Sheet]:
    headings = ("questions", "number", "strong", "weak", "none", "area under the curve", "false alarms at 95 % kept")
    rows: dict[str, list[tuple[str, ...]]] = {}
    for place, kinds in document["places"].items():
        way, where = place.split(": ")
        for kind, cell in kinds.items():
            levels = (f"{cell[level]:.0f} %" for level in ("strong", "weak", "none"))
            told = (f"{cell['area']:.3f}", f"{cell['false_alarms']:.0f} %") if "area" in cell else ("", "")
            rows.setdefault(way, []).append((f"{where}: {kind}", str(cell["questions"]), *levels, *told))
    over = f"{', '.join(document['sets'])} ({document['date']})"
    return (Sheet(f"Confidence of {way} over {over}", headings, each) for way, each in rows.items())


def _notes(document: Mapping[str, Any]) -> Iterator[Sheet]:
    title = f"Notes: right answers of {document['asked']} at each token budget ({document['date']})"
    budgets = [str(budget) for budget in document["budgets"]]
    rows = [(name, *(str(sum(found[budget])) for budget in budgets)) for name, found in document["right"].items()]
    yield Sheet(title, ("method", *(f"{int(budget):,}" for budget in budgets)), rows)
    levels = [
        (
            kind,
            *(str(cell[level]) for level in ("strong", "weak", "none")),
            f"{cell['area']:.3f}" if "area" in cell else "",
        )
        for kind, cell in document["levels"].items()
    ]
    title = f"Notes: how sure the answers at the default budget are ({document['date']})"
    yield Sheet(title, ("questions", "strong", "weak", "none", "area under the curve"), levels)


class _Run:
    """The tables of one run over a set."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._cells = [(where, str(budget)) for where in document["places"] for budget in document["budgets"]]

    def _headings(self, *first: str) -> tuple[str, ...]:
        return (*first, *(f"{where} {int(budget):,}" for where, budget in self._cells))

    def _row(self, name: str, found: Mapping[str, Mapping[str, Any]], form: str = "{:.1f}") -> tuple[str, ...]:
        return (name, *(form.format(found[where][budget]) for where, budget in self._cells))

    def _ours(self, name: str) -> dict[str, dict[str, Any]]:
        own = self._document["memotree"]
        return {where: {budget: row[name] for budget, row in rows.items()} for where, rows in own.items()}

    def recall(self) -> Sheet:
        """Return the table of MemoTree beside the simple methods."""
        document, ours = self._document, self._ours("mean")
        rows = [
            self._row("**MemoTree**", ours, "**{:.1f}**"),
            self._spread("95 % by question", self._ours("by_question")),
            self._spread("95 % by document", self._ours("by_document")),
        ]
        bar = BARS.get(document["set"])
        if bar and all(budget in bar[where] for where, budget in self._cells):
            more = {
                where: {budget: figure - bar[where][budget] for budget, figure in figures.items()}
                for where, figures in ours.items()
            }
            rows += [self._row("best tuned simple method", bar), self._row("MemoTree has more", more, "{:+.1f}")]
        if "baselines" in document:
            rows += self._beside("best simple method of this run", document["best_baseline"])
            if "best_with_headings" in document:
                rows += self._beside("the best with headings", document["best_with_headings"])
            rows += [self._row(name, found) for name, found in document["baselines"].items()]
        title = (
            f"{document['set']}: evidence recall in percent at each token budget, {document['counted']:,} questions "
            f"about {document['documents']} documents ({document['date']})"
        )
        return Sheet(title, self._headings("method"), rows)

    def _beside(self, name: str, best: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...]]:
        """Return the rows of the best simple methods, and of what MemoTree has more."""
        differences = _picked(best, "difference")
        return [
            self._row(name, _picked(best, "recall")),
            self._row("MemoTree has more", _picked(differences, "mean"), "{:+.1f}"),
            self._spread("95 % by document", _picked(differences, "by_document"), "{:+.1f} to {:+.1f}"),
        ]

    def _spread(
        self, name: str, found: Mapping[str, Mapping[str, Any]], form: str = "{:.1f} to {:.1f}"
    ) -> tuple[str, ...]:
        return (name, *(form.format(*found[where][budget]) for where, budget in self._cells))

    def categories(self) -> Sheet:
        """Return the table by category, with intervals by question; the separately reported category comes last."""
        first = self._ours("categories")[self._cells[0][0]][self._cells[0][1]]
        kinds = {kind: _kind(self._ours("categories"), kind) for kind in first}
        if self._document["apart"]:
            kinds["unanswerable (apart)"] = self._document["unanswerable"]
        rows = []
        for kind, found in kinds.items():
            cells = [found[where][budget] for where, budget in self._cells]
            told = ("{:.1f} ({:.0f}-{:.0f})".format(cell["mean"], *cell["by_question"]) for cell in cells)
            rows.append((kind, str(cells[0]["questions"]), *told))
        title = f"{self._document['set']}: by category, with 95 % intervals by question"
        return Sheet(title, self._headings("category", "questions"), rows)

    def ablations(self) -> Sheet:
        """Return the table of the default in percent, and what each change adds or takes away, in points."""
        rows = []
        default = self._document["ablations"]["default"]
        for name, found in self._document["ablations"].items():
            cells = [found[where][budget] - default[where][budget] for where, budget in self._cells]
            if name == "default":
                rows.append((*self._row(name, found), ""))
            else:
                rows.append((name, *(f"{cell:+.1f}" for cell in cells), f"{np.mean(cells):+.2f}"))
        title = f"{self._document['set']}: the default in percent, and without each part what that changes in points"
        return Sheet(title, (*self._headings("scoring"), "mean"), rows)

    def costs(self) -> Sheet:
        """Return the table of the used share of the budget and the time of a call."""
        rows = [
            self._row("share of the budget used, mean", self._ours("used_share"), "{:.1%}"),
            self._row("the most", self._ours("most_used_share"), "{:.1%}"),
            self._row("answers over the budget", self._ours("over_budget"), "{}"),
            self._row("Recall over gRPC, p50, ms", self._ours("p50_ms")),
            self._row("Recall over gRPC, p95, ms", self._ours("p95_ms")),
            self._row("leaves looked at, mean", self._ours("leaves_considered"), "{:,.0f}"),
        ]
        return Sheet(f"{self._document['set']}: tokens by the metric, and time", self._headings("what"), rows)

    def ingest(self) -> Sheet:
        """Return the table of the costs of ingesting the documents."""
        document, told = self._document, self._document["ingest"]
        memory = document["memory_mb"]
        rows = [
            ("documents, lines (turns)", f"{document['documents']:,}, {document['lines']:,}"),
            ("leaves, nodes above them", f"{told['leaves']:,}, {told['inner']:,}"),
            ("ingested in", f"{told['seconds']:.1f} s, {told['lines_per_second']:,.0f} lines a second"),
            ("calls of models over a network", f"{told['calls']:,}"),
            ("first recall after it", f"{document['first_recall_ms']:,.0f} ms"),
            (
                "memory of server and client",
                f"{memory['after ingest']:,} MiB, then {memory['after all questions']:,} MiB",
            ),
            ("the whole run", f"{document['seconds']:,.0f} s"),
        ]
        return Sheet(f"{document['set']}: ingest", ("what", "figure"), rows)


def _picked(found: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, dict[str, Any]]:
    return {where: {budget: cell[name] for budget, cell in rows.items()} for where, rows in found.items()}


def _kind(found: Mapping[str, Mapping[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {where: {budget: cell[kind] for budget, cell in rows.items()} for where, rows in found.items()}
