"""The command line as a whole: which groups and commands there are."""

from typing import Annotated

import typer

from memotree.cli import (
    archives,
    commits,
    nodes,
    refs,
    searching,
    serving,
    sessions,
    structure,
    upkeep,
    views,
    workspaces,
)

app = typer.Typer(
    name="memotree",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A Git-backed, versioned knowledge store for the memory of agents.",
    epilog="Exit codes: 0 ok, 1 refused or failed, 2 wrong usage, 3 no server. Every command takes --json.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - one option needs it

        typer.echo(f"memotree {version('memotree')}")
        raise typer.Exit


@app.callback()
def memotree(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """A Git-backed, versioned knowledge store for the memory of agents."""


serving.register(app)
searching.register(app)
commits.register(app)
upkeep.register(app)
app.add_typer(workspaces.app)
app.add_typer(archives.app)
app.add_typer(sessions.app)
structure.register(nodes.app)
app.add_typer(nodes.app)
app.add_typer(views.app)
app.add_typer(refs.branch_app)
app.add_typer(refs.tag_app)
