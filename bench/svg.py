"""Charts with logarithmic axes as small SVG files: text and lines only, readable on light and on dark pages.

Written by hand: two charts need no plotting library with its fonts, and the same numbers give the same bytes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

_WIDTH: Final = 830
_LEFT: Final = 150
_RIGHT: Final = 590
"""Where the plotted area begins and ends, in units of the drawing."""

_MARGIN: Final = 70
"""The width of the figures beside a vertical axis."""

_LINE: Final = 15
"""The height of a line of text, and of a bar with its distance."""

_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#a6488c", "#9a7400", "#4c5fd7", "#b3305f", "#3a7d44")
_ON_DARK: Final = ("#56b4e9", "#f0883e", "#35c79b", "#dd8fc4", "#e0b94a", "#9aa5ff", "#f08aae", "#8fce9b")


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a group.

    Attributes:
        series: Whose bar it is; bars of one series have one colour.
        value: Where it ends; it begins at 1. ``None`` for no bar.
        told: The text beside it.
    """

    series: str
    value: float | None
    told: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line with its points, all above zero, and the text at its end."""

    points: Sequence[tuple[float, float]]
    told: str


@dataclass(frozen=True, slots=True)
class _Axis:
    """A logarithmic axis from ``low`` at ``begin`` to ``high`` at ``end``."""

    low: float
    high: float
    begin: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], begin: float, end: float) -> "_Axis":
        """An axis from the power of ten below all values to the one above."""
        low = math.floor(math.log10(min(values)) + 1e-9)
        return cls(10.0**low, 10.0 ** max(low + 1, math.ceil(math.log10(max(values)) - 1e-9)), begin, end)

    def at(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.begin + share * (self.end - self.begin)

    @property
    def ticks(self) -> list[float]:
        powers = range(round(math.log10(self.low)), round(math.log10(self.high)) + 1)
        return [10.0**power for power in powers]


def bars(title: str, groups: Sequence[tuple[str, Sequence[Bar]]]) -> str:
    """Return a chart of groups of horizontal bars, each from 1 to its value.

    Args:
        title: What the chart shows.
        groups: For each group its name and its bars.
    """
    series = list(dict.fromkeys(bar.series for _, found in groups for bar in found))
    values = [bar.value for _, found in groups for bar in found if bar.value]
    axis = _Axis.over([*values, 1.0], _LEFT, _RIGHT)
    top = y = 4 * _LINE
    body: list[str] = []
    for name, found in groups:
        body.append(_text(0, y + 11, name, "strong"))
        y += _LINE + 3
        for bar in found:
            body.append(_text(_LEFT - 8, y + 10, bar.series, "end"))
            place = axis.at(1.0)
            if bar.value:
                begin, end = sorted((place, axis.at(bar.value)))
                size = f'width="{max(end - begin, 1):.1f}" height="11"'
                colour = f"f{series.index(bar.series) % len(_COLOURS)}"
                body.append(f'<rect x="{begin:.1f}" y="{y + 1}" {size} class="{colour}"/>')
            body.append(_text(_RIGHT + 8 if bar.value else place + 6, y + 10, bar.told, "" if bar.value else "faint"))
            y += _LINE
        y += 8
    body += _grid(axis, lambda x: f'x1="{x:.1f}" x2="{x:.1f}" y1="{top - 4}" y2="{y}"', mark=1.0)
    body += [_text(axis.at(tick), top - 10, _told(tick), "middle faint") for tick in axis.ticks]
    return _page(title, y + 6, body)


def lines(title: str, across: str, up: str, found: Sequence[Line]) -> str:
    """Return a chart of lines over two logarithmic axes, each with its text at the right end.

    Args:
        title: What the chart shows.
        across: What the horizontal axis has.
        up: What the vertical axis has.
        found: The lines.
    """
    top, bottom = 4 * _LINE, max(380, (5 + len(found)) * _LINE)
    points = [point for line in found for point in line.points]
    horizontal = _Axis.over([x for x, _ in points], _MARGIN, _RIGHT - 60)
    vertical = _Axis.over([y for _, y in points], bottom, top)
    body = _grid(horizontal, lambda x: f'x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"')
    body += _grid(vertical, lambda y: f'x1="{_MARGIN}" x2="{_RIGHT - 60}" y1="{y:.1f}" y2="{y:.1f}"')
    body += [_text(horizontal.at(tick), bottom + 16, _told(tick), "middle faint") for tick in horizontal.ticks]
    body += [_text(_MARGIN - 6, vertical.at(tick) + 4, _told(tick), "end faint") for tick in vertical.ticks]
    body += [_text(0, top - 12, up, "faint"), _text(290, bottom + 34, across, "middle faint")]
    ends = sorted(range(len(found)), key=lambda number: vertical.at(found[number].points[-1][1]))
    places = _apart([vertical.at(found[number].points[-1][1]) for number in ends], bottom)
    for number, place in zip(ends, places, strict=True):
        colour = f"s{number % len(_COLOURS)}"
        path = " ".join(f"{horizontal.at(x):.1f},{vertical.at(y):.1f}" for x, y in found[number].points)
        to_text = f"{path.rpartition(' ')[2]} {_RIGHT - 46},{place:.1f}"
        body.append(f'<polyline points="{path}" class="{colour}"/>')
        body.append(f'<polyline points="{to_text}" class="{colour}" stroke-dasharray="1 3"/>')
        body.append(_text(_RIGHT - 40, place + 4, found[number].told, ""))
    return _page(title, bottom + 46, body)


def _apart(places: Sequence[float], bottom: float) -> list[float]:
    """Move ascending places apart, so that texts there do not cover each other, and none is below the bottom."""
    found: list[float] = []
    for place in places:
        found.append(max(place, found[-1] + _LINE) if found else place)
    limit = bottom
    for number in reversed(range(len(found))):
        found[number] = min(found[number], limit)
        limit = found[number] - _LINE
    return found


def _grid(axis: _Axis, ends: Callable[[float], str], mark: float | None = None) -> list[str]:
    return [
        f'<line {ends(axis.at(tick))} class="{"mark" if mark and math.isclose(tick, mark) else "grid"}"/>'
        for tick in axis.ticks
    ]


def _told(tick: float) -> str:
    return f"{tick:,.0f}" if tick >= 1 else f"{tick:g}"


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}</text>'


def _page(title: str, height: float, body: Sequence[str]) -> str:
    light = "".join(f".s{n}{{stroke:{c}}}.f{n}{{fill:{c}}}" for n, c in enumerate(_COLOURS))
    dark = "".join(f".s{n}{{stroke:{c}}}.f{n}{{fill:{c}}}" for n, c in enumerate(_ON_DARK))
    style = (
        "text{font:12px system-ui,sans-serif;fill:#24292f}.strong{font-weight:600}.end{text-anchor:end}"
        ".middle{text-anchor:middle}text.faint{fill:#6a737d}line{stroke:#8886;stroke-width:1}.mark{stroke:#888}"
        f"polyline{{fill:none;stroke-width:2}}{light}"
        f"@media (prefers-color-scheme:dark){{text{{fill:#e6edf3}}text.faint{{fill:#9aa4af}}{dark}}}"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{style}</style>",
            _text(0, 14, title, "strong"),
            *body,
            "</svg>\n",
        ]
    )
