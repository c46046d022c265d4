"""Options that the commands of the memory forest share: filters, strategy and budget."""

from enum import StrEnum
from typing import Annotated

import typer

from memotree.cli.arguments import completion
from memotree.cli.arguments.node_names import NODE_NAME
from memotree.cli.arguments.times import SENT


class StrategyChoice(StrEnum):
    """The recall strategies."""

    LCA = "lca"
    COLLAPSED = "collapsed"
    HYBRID = "hybrid"


QueryArgument = Annotated[
    list[str], typer.Argument(metavar="QUESTION...", help="A question. Plain text; no query operators.")
]
StrategyOption = Annotated[
    StrategyChoice,
    typer.Option(
        "--strategy",
        case_sensitive=False,
        help="hybrid packs leaves, collapsed takes the best nodes of all levels, lca their lowest common ancestors.",
    ),
]
BudgetOption = Annotated[
    int,
    typer.Option("--budget", "-b", min=0, max=200_000, help="The most tokens of text; the server's default when 0."),
]
ArchivesOption = Annotated[
    list[str],
    typer.Option(
        "--archive", "-a", help="Only this archive; may be given several times.", autocompletion=completion.archives
    ),
]
ModelOption = Annotated[str, typer.Option("--model", help="Only archives of this agent or model.")]
TypesOption = Annotated[list[str], typer.Option("--type", help="Only this type; may be given several times.")]
SinceOption = Annotated[str, typer.Option("--since", metavar="TIME", help=f"Only nodes from this time or later{SENT}")]
UntilOption = Annotated[str, typer.Option("--until", metavar="TIME", help=f"Only nodes from before this time{SENT}")]
ValidAtOption = Annotated[str, typer.Option("--valid-at", metavar="TIME", help=f"Only what holds at this time{SENT}")]
OutdatedOption = Annotated[bool, typer.Option("--outdated", help="Also what does not hold any more.")]
UnderOption = Annotated[
    str,
    typer.Option(
        "--under",
        metavar="NODE",
        help="Only this node and the nodes below it.",
        autocompletion=completion.nodes,
    ),
    NODE_NAME,
]
