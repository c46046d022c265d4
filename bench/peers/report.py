"""A run of the peers as a table on the terminal and as Markdown."""

from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.peers.outcome import CALLS, Outcome, Run

_SECOND: Final = 1000.0


def show(run: Run) -> None:
    """Print a run."""
    table = Table(title=f"The same work on {run.notes:,} notes: median (5th to 95th percentile), times ours")
    table.add_column("call")
    ran = _that_ran(run)
    for outcome in ran:
        table.add_column(outcome.name, justify="right")
    for call, work in CALLS.items():
        table.add_row(work, *(_cell(run, outcome, call) for outcome in ran))
    console = Console(width=200)
    console.print(table)
    for line in _remarks(run):
        console.print(line, highlight=False, markup=False)


def markdown(run: Run) -> str:
    """A run as Markdown: the conditions, the table, and what to know about each peer."""
    ran = _that_ran(run)
    told = ", ".join(f"{name} {value}" for name, value in run.machine.items())
    lines = [
        f"{run.notes:,} notes of {run.words} words; {told}.",
        "",
        f"| median (5th to 95th percentile), times ours | {' | '.join(outcome.name for outcome in ran)} |",
        f"|---|{'---:|' * len(ran)}",
    ]
    for call, work in CALLS.items():
        lines.append(f"| {work} | {' | '.join(_cell(run, outcome, call) for outcome in ran)} |")
    lines += ["", *(f"- {line}" for line in _remarks(run))]
    return "\n".join(lines) + "\n"


def _that_ran(run: Run) -> list[Outcome]:
    return [outcome for outcome in run.outcomes if not outcome.skipped]


def _cell(run: Run, outcome: Outcome, call: str) -> str:
    figure = outcome.figures.get(call)
    if figure is None:
        return outcome.lacks.get(call, "no figure")
    text = time_of(figure.median_ms)
    if figure.rounds > 1:
        text += f" ({time_of(figure.low_ms)} to {time_of(figure.high_ms)})"
    ratio = run.ratio(outcome, call)
    if ratio is not None and outcome is not run.outcomes[0]:
        text += f", {ratio:.2g} times"
    return text + outcome.remark(call)


def time_of(milliseconds: float) -> str:
    """Return a time in words: milliseconds, or seconds from one on."""
    if milliseconds >= _SECOND:
        return f"{milliseconds / _SECOND:,.3g} s"
    return f"{milliseconds:.3g} ms"


def _remarks(run: Run) -> Iterator[str]:
    """What to know about each peer, a line for each."""
    for outcome in run.outcomes:
        if outcome.skipped:
            yield f"{outcome.name} was skipped: {outcome.skipped}"
            continue
        versions = ", ".join(f"{name} {version}" for name, version in outcome.versions.items())
        yield f"{outcome.name} ({versions}): {outcome.durability}."
        for fault in dict.fromkeys(outcome.wrong):
            yield f"{outcome.name} answered wrongly: {fault} ({list(outcome.wrong).count(fault)} times)."
