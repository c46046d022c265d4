"""Draws the figures of ``bench/out`` as SVG into ``docs/reference/plots``: ``python -m bench.plots``.

What has not been measured is not drawn, and the plot of before stays. The same figures give the same files.
"""

import argparse
from pathlib import Path
from typing import Final

from rich.console import Console

from bench import curves, svg
from bench.peers.outcome import CALLS, Outcome, Run, read
from bench.peers.report import time_of

_OUT: Final = Path(__file__).parent / "out"
_PLOTS: Final = Path(__file__).parents[1] / "docs" / "reference" / "plots"


def main() -> None:
    """Draw what there is, and say what was drawn from what."""
    parser = argparse.ArgumentParser(prog="bench.plots", description=__doc__)
    parser.add_argument("--out", type=Path, default=_OUT, help="the folder with the figures")
    parser.add_argument("--plots", type=Path, default=_PLOTS, help="the folder for the plots")
    given = parser.parse_args()
    for line in draw(given.out, given.plots):
        Console(stderr=True).print(line, highlight=False)


def draw(out: Path, plots: Path) -> list[str]:
    """Draw every plot whose figures are in ``out``; returns a sentence for each plot.

    Args:
        out: The folder with the figures of the benches.
        plots: The folder for the plots; made if it is missing.
    """
    plots.mkdir(parents=True, exist_ok=True)
    told = []
    for name, drawn in {"peers": peers, "curves": growth}.items():
        figures = out / f"{name}.json"
        if not figures.exists():
            told.append(f"{name}.svg is not drawn: there is no {figures}.")
            continue
        (plots / f"{name}.svg").write_text(drawn(figures), encoding="utf-8")
        told.append(f"{name}.svg is drawn from {figures}.")
    return told


def peers(figures: Path) -> str:
    """Return the chart of the peers: for each call, how many times longer than ours each peer takes."""
    run = read(figures)
    ran = [outcome for outcome in run.outcomes[1:] if not outcome.skipped]
    groups = [(_heading(run, call), [_bar(run, outcome, call) for outcome in ran]) for call in CALLS]
    ours = run.outcomes[0].name
    return svg.bars(f"Time of a call as a multiple of {ours}'s, {run.notes:,} notes: left of 1 is faster", groups)


def _heading(run: Run, call: str) -> str:
    figure = run.outcomes[0].figures.get(call)
    return CALLS[call] + (f": {run.outcomes[0].name} {time_of(figure.median_ms)}" if figure else "")


def _bar(run: Run, outcome: Outcome, call: str) -> svg.Bar:
    ratio, figure = run.ratio(outcome, call), outcome.figures.get(call)
    if ratio is None or figure is None:
        return svg.Bar(outcome.name, None, outcome.lacks.get(call, "not measured"))
    return svg.Bar(outcome.name, ratio, f"{ratio:.2g} times, {time_of(figure.median_ms)}{outcome.remark(call)}")


def growth(figures: Path) -> str:
    """Return the chart of the growth curves of calls, in the fewest archives that were measured."""
    found = [curve for curve in curves.read(figures) if curve.unit == "ms" and curve.along == "nodes"]
    archives = min(curve.archives for curve in found)
    drawn = [
        svg.Line([(nodes, figure.median_ms) for nodes, figure in curve.points], _at_the_end(curve))
        for curve in found
        if curve.archives == archives
    ]
    where = "one archive" if archives == 1 else f"{archives:,} archives"
    return svg.lines(f"How calls grow with the nodes of {where}", "nodes", "ms, median", drawn)


def _at_the_end(curve: curves.Curve) -> str:
    exponent = "" if curve.exponent is None else f", N^{curve.exponent:.2f}"
    return f"{curve.work}{exponent}{' (!)' if curve.is_too_fast else ''}"


if __name__ == "__main__":
    main()
