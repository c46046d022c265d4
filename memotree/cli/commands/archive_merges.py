"""``memotree archive suggest | join``: find archives with the same topic, and join several into one."""

from typing import Annotated

import typer
from rich.text import Text

from memotree.cli.arguments import completion
from memotree.cli.arguments.options import YesOption
from memotree.cli.commands.workspaces import confirm
from memotree.cli.context import REVISION, WORKSPACE, CliContext, command
from memotree.cli.terminal.output import ID, counted, facts, short, table


@command("archive suggest", REVISION)
def suggest(
    cli: CliContext,
    model: Annotated[str, typer.Option("--model", help="Only archives of this agent or model.")] = "",
    threshold: Annotated[
        float | None, typer.Option("--threshold", min=0.0, max=1.0, help="The least similarity; 0.6 when not given.")
    ] = None,
) -> None:
    """List archives of one model that have the same topic."""
    found = cli.here.suggest_archive_merges(model_id=model, threshold=threshold)
    cli.output.show(
        {"suggestions": found},
        lambda: table(
            ["Similarity", ("Archives", "bold cyan"), ("Ids", ID), "Model"],
            [
                (
                    f"{each.similarity:.2f}",
                    "\n".join(archive.name for archive in each.archives),
                    "\n".join(archive.id for archive in each.archives),
                    each.archives[0].model_id,
                )
                for each in found
            ],
            empty="No archives have the same topic.",
        ),
    )


@command("archive join", WORKSPACE)
def join(
    cli: CliContext,
    archives: Annotated[
        list[str],
        typer.Argument(metavar="ARCHIVE...", help="Two or more: names or ids.", autocompletion=completion.archives),
    ],
    name: Annotated[str, typer.Option("--name", "-n", help="The name of the joined archive.")],
    branch: Annotated[str, typer.Option("--branch", help="The branch that gets the commit.")] = "",
    message: Annotated[str, typer.Option("--message", "-m", help="The message of the commit.")] = "",
    yes: YesOption = False,
) -> None:
    """Join archives of one model under a new root, in one commit; nodes keep their ids and history."""
    workspace = cli.workspace
    confirm(cli, f"Join {counted(len(archives), 'archive')} into {name}?", yes=yes)
    with cli.output.waiting("Joining"):
        made = workspace.merge_archives(archives, name, branch=branch, message=message)
    cli.output.show(
        made,
        lambda: facts(
            [
                ("archive", made.archive.name),
                ("id", Text(made.archive.id, ID)),
                ("root", Text(made.root.id, ID)),
                ("commit", short(made.commit_id)),
            ]
        ),
    )
    cli.output.done(f"{counted(made.moved_nodes, 'node')} moved.")
