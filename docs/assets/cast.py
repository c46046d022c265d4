"""Draws ``docs/assets/cast.svg``, a terminal session, from a real run: ``python docs/assets/cast.py``.

The commands run one after the other on a private server with a new data folder. The ids of nodes and commits differ
from run to run, so the picture is written only if anything else changed; ``--check`` only compares, and ends with 1
then.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from rich.console import Console
from rich.style import Style
from rich.text import Text

from memotree.cli.demo.private_server import fresh_folder, server_on

PICTURE: Final = Path(__file__).with_name("cast.svg")
QUESTION: Final = '"How often is a failed call sent again?"'
COLUMNS: Final = 92
REPOSITORY: Final = "memory.git"


@dataclass(frozen=True, slots=True)
class Step:
    """A command, and what to do with it.

    Attributes:
        command: As it is typed.
        shown: Whether it is in the picture; what only prepares is not.
        rows: The most rows of its output that are shown.
    """

    command: str
    shown: bool = True
    rows: int = 8


STEPS: Final = (
    Step("memotree ws create memory", shown=False),
    Step('memotree remember "A failed call is sent again at most five times." --title Retries --agent planner'),
    Step("memotree tag create monday", shown=False),
    Step(f"memotree recall {QUESTION}"),
    Step('memotree revise Retries "A failed call is sent again at most three times." --agent reviewer'),
    Step(f"memotree recall {QUESTION}"),
    Step(f"memotree recall {QUESTION} --at monday"),
    Step('memotree ask "What is the capital of France?"'),
    Step(f"git -C {REPOSITORY} log --format='%h %<(9)%an %s'"),
)

SIZE: Final = 14
WIDE: Final = SIZE * 0.6
HIGH: Final = SIZE * 1.4
MARGIN: Final = 16
TYPING_SECONDS: Final = 1.2
READING_SECONDS: Final = 0.12
INK: Final = {"plain": "#d8dee9", "dim": "#7b88a1", "paper": "#242933"}
COLOURS: Final = {
    1: ("red", "#e07a85"),
    2: ("green", "#a3be8c"),
    3: ("yellow", "#ebcb8b"),
    4: ("blue", "#81a1c1"),
    5: ("magenta", "#c79fc0"),
    6: ("cyan", "#88c0d0"),
}
"""The colours of a terminal by their number; the bright ones look the same here."""

_SPINNER: Final = re.compile("[\u2800-\u28ff]")
"""What a progress bar consists of, which a terminal clears when the work is done."""
_ID: Final = r"[0-9a-hjkmnp-tv-z]"
_MASKED: Final = re.compile(rf"\b(?=[a-f]*[0-9])[0-9a-f]{{7,40}}\b|\b{_ID}{{16}}\b|\b\d{{4}}-\d\d-\d\d \d\d:\d\d\b")
"""The ids of commits and nodes, and the minutes of changes."""


def run() -> list[tuple[str, str]]:
    """Run the steps; return the shown commands with their output, in the colours of a terminal."""
    shown: list[tuple[str, str]] = []
    with tempfile.TemporaryDirectory() as place:
        data, home = fresh_folder(Path(place, "data")), Path(place, "home")
        home.mkdir()
        with server_on(data) as address:
            environment = _environment(address, home)
            for step in STEPS:
                told = _told(step.command, environment, home)
                if not (home / REPOSITORY).exists():
                    (home / REPOSITORY).symlink_to(next((data / "workspaces").glob("*.git")))
                if step.shown:
                    shown.append((step.command, "\n".join(told.splitlines()[-step.rows :])))
    return shown


def _environment(address: str, home: Path) -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MEMOTREE_", "XDG_", "GIT_"))}
    return kept | {
        "MEMOTREE_ADDRESS": address,
        "HOME": str(home),
        "COLUMNS": str(COLUMNS),
        "FORCE_COLOR": "1",
        "TERM": "xterm-256color",
        "TZ": "UTC",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_PAGER": "cat",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
    }


def _told(command: str, environment: Mapping[str, str], home: Path) -> str:
    shell = shutil.which("bash") or "sh"
    done = subprocess.run(  # noqa: S603 - the commands above
        [shell, "-c", command], env=environment, cwd=home, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{command}\n{done.stdout}{done.stderr}")
    lines = (done.stdout + done.stderr).splitlines()
    return "\n".join(line for line in lines if Text.from_ansi(line).plain.strip() and not _SPINNER.search(line))


def picture(shown: list[tuple[str, str]]) -> str:
    """The run as an SVG: rows that appear one after the other; all at once for readers who want no motion."""
    rows: list[tuple[float, str]] = []
    seconds = 0.5
    for command, told in shown:
        typed = [Text.assemble(("$ ", "bold cyan"), (command, "bold"))]
        answer = [Text.from_ansi(line) for line in told.splitlines()]
        for text, pause in ((typed, TYPING_SECONDS), (answer, READING_SECONDS)):
            for line in text:
                rows += [(seconds, "".join(_spans(part))) for part in _wrapped(line)]
                seconds += pause
        rows.append((seconds, ""))
    height = MARGIN * 2 + HIGH * len(rows)
    width = MARGIN * 2 + WIDE * COLUMNS
    lines = "\n".join(
        f'<text x="{MARGIN}" y="{MARGIN + HIGH * (number + 0.75):.1f}" style="animation-delay:{at:.2f}s">{line}</text>'
        for number, (at, line) in enumerate(rows)
        if line
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'xml:space="preserve">\n'
        f"<title>A fact is remembered, recalled, corrected, and read as it was</title>\n<style>\n"
        f"text {{ font: {SIZE}px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: {INK['plain']};"
        f" white-space: pre; animation: appear 0.01s both; }}\n"
        f".bold {{ font-weight: bold; }}\n.dim {{ fill: {INK['dim']}; }}\n"
        + "".join(f".{name} {{ fill: {colour}; }}\n" for name, colour in COLOURS.values())
        + "@keyframes appear { from { opacity: 0; } to { opacity: 1; } }\n"
        "@media (prefers-reduced-motion) { text { animation: none; } }\n</style>\n"
        f'<rect width="100%" height="100%" rx="8" fill="{INK["paper"]}"/>\n{lines}\n</svg>\n'
    )


def _wrapped(line: Text) -> Iterator[Text]:
    line.rstrip()
    yield from line.wrap(Console(width=COLUMNS), COLUMNS)


def _spans(line: Text) -> Iterator[str]:
    """The pieces of a line with one style each; their places are fixed, whatever font is there."""
    column = 0
    for piece in line.render(Console(width=COLUMNS, color_system="standard", force_terminal=True)):
        whole = piece.text.rstrip("\n")
        text = whole.strip()
        if text:
            begin = column + len(whole) - len(whole.lstrip())
            place = f'x="{MARGIN + WIDE * begin:.1f}" textLength="{WIDE * len(text):.1f}"'
            yield f'<tspan {place} class="{_classes(piece.style)}">{escape(text)}</tspan>'
        column += len(whole)


def _classes(style: Style | None) -> str:
    if style is None:
        return ""
    number = style.color.number if style.color is not None else None
    colour, _ = COLOURS.get((number or 0) % 8, ("", ""))
    names = [name for name, on in (("bold", style.bold), ("dim", style.dim), (colour, colour)) if on]
    return " ".join(names)


def masked(text: str) -> str:
    """The picture without what differs from run to run."""
    return _MASKED.sub("…", text)


def main() -> int:
    """Draw the picture, or compare it."""
    text = picture(run())
    before = PICTURE.read_text(encoding="utf-8") if PICTURE.exists() else ""
    if masked(before) == masked(text):
        return 0
    if "--check" in sys.argv:
        sys.stderr.write("docs/assets/cast.svg is not what the commands print. Run `make docs`.\n")
        return 1
    PICTURE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
