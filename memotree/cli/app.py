"""The command line as a whole, with all its groups and commands."""

import sys
from typing import Annotated, Any

import typer

from memotree.cli import version_line
from memotree.cli.commands import (
    archive_merges,
    archives,
    ask,
    backups,
    commits,
    explore,
    ingest,
    jobs,
    maintenance,
    nodes,
    recall,
    refs,
    remembering,
    searching,
    serving,
    sessions,
    setup,
    structure,
    summaries,
    views,
    workspaces,
)
from memotree.cli.errors import CliError, ExitCode, tell_cli_error
from memotree.cli.terminal.examples import PROGRAM, panel
from memotree.cli.terminal.help_pages import FirstPage, HelpfulGroup
from memotree.cli.terminal.output import Output
from memotree.cli.terminal.pager import use_no_pager


class CommandLine(FirstPage):
    """All commands; with ``--json``, usage errors found before a command runs are printed as JSON too."""

    def main(self, *positional: Any, **named: Any) -> Any:
        """Run the command that the arguments name, and exit with its status."""
        given = positional[0] if positional else named.get("args")
        if "--json" not in (sys.argv[1:] if given is None else given):
            return super().main(*positional, **named)
        try:
            status = super().main(*positional, **{**named, "standalone_mode": False})
        except typer.TyperException as error:
            status = tell_cli_error(Output(as_json=True), CliError(error.format_message()))
        sys.exit(status or ExitCode.OK)


app = typer.Typer(
    cls=CommandLine,
    name=PROGRAM,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A Git-backed, versioned knowledge store for the memory of agents.",
    epilog="Exit codes: 0 ok, 1 refused or failed, 2 wrong usage, 3 no server, 130 stopped. "
    "Every command takes --json.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version_line())
        raise typer.Exit


@app.callback()
def memotree(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
    no_pager: Annotated[bool, typer.Option("--no-pager", help="Do not show long output in a pager.")] = False,
) -> None:
    """A Git-backed, versioned knowledge store for the memory of agents."""
    if no_pager:
        use_no_pager()


serving.register(app)
setup.register(app)
remembering.register(app, nodes.app)
searching.register(app)
ingest.register(app)
recall.register(app)
ask.register(app)
explore.register(app)
commits.register(app)
maintenance.register(app)
backups.register(app)
archive_merges.register(archives.app)
structure.register(nodes.app)
for group in (
    workspaces.app,
    archives.app,
    sessions.app,
    nodes.app,
    views.app,
    refs.branch_app,
    refs.tag_app,
    jobs.app,
    summaries.app,
):
    app.add_typer(group, cls=HelpfulGroup, rich_help_panel=panel(str(group.info.name)))
