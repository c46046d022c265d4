"""``memotree view``: manage views, the nodes that an agent has open and their levels."""

from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from memotree.cli.arguments.options import ArchiveOption, LevelChoice, LevelOption, NodeArgument, word
from memotree.cli.context import REVISION, CliContext, command
from memotree.cli.terminal import display
from memotree.cli.terminal.output import table, when

NameOption = Annotated[str, typer.Option("--view", "-v", help="The view.")]


@command("view render", REVISION)
def render(
    cli: CliContext,
    name: NameOption = "default",
    budget: Annotated[
        int, typer.Option("--budget", "-b", min=0, help="At most this many tokens; no limit when 0.")
    ] = 0,
    archive: ArchiveOption = "",
) -> None:
    """Print a view as Markdown."""
    found = cli.here.view(name).render(budget, archive=archive or None)
    cli.output.show(found, lambda: found.markdown)
    usage = found.usage
    limit = f" of {usage.token_budget}" if usage.token_budget else ""
    cli.output.note(Text(f"{usage.tokens_used}{limit} tokens, {usage.nodes_shown} nodes shown", "dim"))


@command("view expand", REVISION)
def expand(
    cli: CliContext,
    node: NodeArgument,
    name: NameOption = "default",
    level: LevelOption = LevelChoice.DETAIL,
    children: Annotated[bool, typer.Option("--children", help="Add its children to the view.")] = False,
    relations: Annotated[bool, typer.Option("--relations", help="Show its relations.")] = False,
) -> None:
    """Open a node in a view and print its text."""
    found = cli.here.view(name).expand(node, word(level), include_children=children, include_relations=relations)

    def look() -> RenderableType:
        lines = [display.node_line(child) for child in found.children]
        for each in found.relations:
            arrow = "→" if each.outgoing else "←"
            lines.append(Text(f"{arrow} {each.relation.type} {each.node.title if each.node else 'a deleted node'}"))
        return Group(Text(found.text), *lines)

    cli.output.show(found, look)


@command("view collapse", REVISION)
def collapse(
    cli: CliContext,
    node: NodeArgument,
    name: NameOption = "default",
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Also reset all nodes below it.")] = False,
) -> None:
    """Set a node of a view back to its title."""
    found = cli.here.view(name).collapse(node, recursive=recursive)
    cli.output.show(found, lambda: display.node_line(found.node))
    cli.output.done(f"The view {name} now has {found.usage.tokens_used} tokens.")


@command("view list", REVISION)
def list_(cli: CliContext) -> None:
    """List the views of the session or branch."""
    found = list(cli.here.views())
    cli.output.show(
        {"views": found},
        lambda: table(
            [("Name", "bold cyan"), "Of", "Expanded", ("Changed", "dim")],
            [(each.name, each.scope, str(each.nodes_expanded), when(each.update_time)) for each in found],
            empty="There is no view here; `memotree view expand NODE` creates one.",
        ),
    )


@command("view delete", REVISION)
def delete(cli: CliContext, name: Annotated[str, typer.Argument(metavar="VIEW", help="The view.")]) -> None:
    """Delete a view."""
    cli.here.view(name).delete()
    cli.output.show({"deleted": name}, lambda: None)
    cli.output.done(f"The view {name} is deleted.")
