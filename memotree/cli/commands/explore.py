"""``memotree explore``: walk through the trees in the terminal, with or without a question."""

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from memotree.cli.arguments import completion
from memotree.cli.arguments.node_names import NODE_NAME
from memotree.cli.arguments.options import NODE_HELP
from memotree.cli.context import REVISION, CliContext, command
from memotree.cli.terminal import display
from memotree.cli.terminal.output import ID, counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from memotree.client import Archive, Node

_HELP = "number: go down · u: up · t: full text · /QUESTION: change the question · /: no question · q: quit"
_INDENT = 6
_LINE_CHARS = 160


@dataclass
class _Stop:
    """One place on the way down: all archives, one archive, or a node."""

    archive: "Archive | None" = None
    node: "Node | None" = None

    @property
    def name(self) -> str:
        if self.node is not None:
            return self.node.title
        return self.archive.name if self.archive is not None else "All archives"


@dataclass(frozen=True)
class _Choice:
    """A place that can be chosen by its number; with a question, its score (``None``: not ranked)."""

    stop: _Stop
    score: float | None = None


@dataclass
class Walk:
    """A walk with its path so far and the current question."""

    cli: CliContext
    query: str
    threshold: float
    limit: int
    way: list[_Stop] = field(default_factory=list)

    @property
    def here(self) -> _Stop:
        """The current place."""
        return self.way[-1]

    def begin(self, node: str, archive: str) -> None:
        """Begins at a node, at an archive, or above all archives; for a node, the path includes its ancestors."""
        revision = self.cli.here
        if node:
            found = revision.node(node)
            above = [revision.node(each, "SUMMARY") for each in found.path]
            home = revision.archive(found.archive_id)
            self.way = [_Stop(), _Stop(archive=home), *(_Stop(home, each) for each in above), _Stop(home, found)]
        elif archive:
            self.way = [_Stop(), _Stop(archive=revision.archive(archive))]
        else:
            self.way = [_Stop()]

    def choices(self) -> tuple[list[_Choice], int]:
        """The places below, with a question best first; and how many are left out."""
        revision, here = self.cli.here, self.here
        if here.archive is None:
            found = [_Choice(_Stop(archive=each)) for each in revision.archives()]
        elif here.node is None:
            found = [
                _Choice(_Stop(here.archive, each)) for each in revision.children(archive=here.archive, level="SUMMARY")
            ]
        elif not here.node.child_count:
            return [], 0
        elif self.query:
            below = revision.drill_down(here.node, self.query, threshold=self.threshold)
            ranked = [_Choice(_Stop(here.archive, each.node), each.score) for each in below]
            return ranked[: self.limit], here.node.child_count - len(ranked[: self.limit])
        else:
            found = [_Choice(_Stop(here.archive, each)) for each in revision.children(here.node, level="SUMMARY")]
        return found[: self.limit], len(found) - len(found[: self.limit])

    def text(self) -> str:
        """The full text of the node."""
        return self.cli.here.node(self.here.node).content if self.here.node is not None else ""


@command("explore", REVISION)
def explore(
    cli: CliContext,
    node: Annotated[
        str,
        typer.Option("--node", "-n", help=f"Begin at this node. {NODE_HELP}", autocompletion=completion.nodes),
        NODE_NAME,
    ] = "",
    query: Annotated[str, typer.Option("--query", "-q", help="A question that ranks the nodes below.")] = "",
    archive: Annotated[str, typer.Option("--archive", "-a", help="Begin at this archive.")] = "",
    threshold: Annotated[
        float,
        typer.Option("--threshold", min=0.0, max=1.0, help="With a question, only children with at least this score."),
    ] = 0.0,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Show at most this many.")] = 40,
) -> None:
    """Walk through the trees: see a node and the nodes below it, and choose where to go.

    With --json it prints one place and ends.
    """
    walk = Walk(cli, query, threshold, limit)
    walk.begin(node, archive)
    if cli.output.as_json:
        cli.output.document(_document(walk))
        return
    choices = _show(walk)
    while (line := _read(cli)) is not None and line not in {"q", "quit"}:
        if line in {"u", "..", "up"} and len(walk.way) > 1:
            walk.way.pop()
        elif line in {"t", "text"}:
            cli.output.show(
                None, lambda: Text(walk.text() or "It has no text of its own.", "" if walk.text() else "dim")
            )
            continue
        elif line.startswith("/"):
            walk.query = line[1:].strip()
        elif line.isascii() and line.isdigit() and 0 < int(line) <= len(choices):
            walk.way.append(choices[int(line) - 1].stop)
        else:
            cli.output.note(Text(_HELP, "dim"))
            continue
        choices = _show(walk)


def _read(cli: CliContext) -> str | None:
    """The next input line, or ``None`` at the end of the input."""
    if sys.stdin.isatty():
        cli.output.err.print(Text("> ", "bold"), end="")
    line = sys.stdin.readline()
    return line.strip() if line else None


def _show(walk: Walk) -> list[_Choice]:
    choices, rest = walk.choices()
    walk.cli.output.show(None, lambda: look(walk, choices, rest))
    if walk.query and walk.here.node is None:
        walk.cli.output.note(Text("The question ranks the nodes below a node; go down to one.", "dim"))
    return choices


def look(walk: Walk, choices: list[_Choice], rest: int) -> "RenderableType":
    """A place and its choices, formatted for a person."""
    here = walk.here
    way = Text(" > ").join(Text(stop.name, "dim") for stop in walk.way[:-1])
    parts: list[RenderableType] = [way] if walk.way[1:] else []
    if here.node is not None:
        parts.append(display.node_line(here.node))
        summary = display.summary_of(here.node) or here.node.brief
        if not here.node.child_count:
            summary = walk.text() or summary
        parts += [Padding(Text(summary.strip()), (0, 0, 0, _INDENT), expand=False)] if summary else []
    else:
        parts.append(Text(here.name, "bold cyan"))
    parts += [_line(number, each) for number, each in enumerate(choices, start=1)]
    if rest:
        parts.append(Text(f"     … and {counted(rest, 'other')}; change --limit or --threshold to show more", "dim"))
    return Group(*parts, Text(""))


def _line(number: int, choice: _Choice) -> "RenderableType":
    """A choice on one line, with the beginning of its summary below."""
    node, archive = choice.stop.node, choice.stop.archive
    line = Text(f"{number:3}. ", "bold")
    if choice.score is not None:
        line.append(f"{choice.score:.2f}  ", "green")
    if node is None:
        return line.append(archive.name if archive else "", "cyan")
    line.append(node.title, "cyan")
    line.append(f"  {node.id}", ID)
    if node.child_count:
        line.append(f"  (+{node.child_count})", "magenta")
    summary = " ".join((display.summary_of(node) or node.brief).split())
    if not summary or summary == node.title:
        return line
    about = Text(f"{summary[:_LINE_CHARS]}{'…' if len(summary) > _LINE_CHARS else ''}", "dim")
    return Group(line, Padding(about, (0, 0, 0, _INDENT), expand=False))


def _document(walk: Walk) -> dict[str, Any]:
    choices, rest = walk.choices()
    return {
        "archive": walk.here.archive,
        "node": walk.here.node,
        "query": walk.query,
        "children": [
            {"score": each.score, "node": each.stop.node}
            if each.stop.node is not None
            else {"score": None, "archive": each.stop.archive}
            for each in choices
        ],
        "left_out": rest,
    }
