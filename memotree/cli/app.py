"""The command line as a whole, with all its groups and commands."""

import sys
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer

from memotree.cli import version_line
from memotree.cli.terminal.command_table import COMMANDS
from memotree.cli.terminal.examples import EPILOG, PROGRAM, SUMMARY
from memotree.cli.terminal.help_pages import FirstPage, listed


@cache
def load(path: str) -> Any:
    """The command of Typer for a path such as ``node get``; imports its module."""
    import_module(f"memotree.cli.commands.{COMMANDS[path].module}")
    from memotree.cli.context import built  # noqa: PLC0415 - lists of commands need nothing that commands need

    return built(path)


def commands() -> dict[str, Any]:
    """Every command of Typer by its path; imports all modules of commands."""
    return {path: load(path) for path in COMMANDS}


class CommandLine(FirstPage):
    """All commands; with ``--json``, usage errors found before a command runs are printed as JSON too."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        for each in listed(load):
            self.add_command(each)

    def main(self, *positional: Any, **named: Any) -> Any:
        """Run the command that the arguments name, and exit with its status."""
        given = positional[0] if positional else named.get("args")
        if "--json" not in (sys.argv[1:] if given is None else given):
            return super().main(*positional, **named)
        try:
            status = super().main(*positional, **{**named, "standalone_mode": False})
        except typer.TyperException as error:
            from memotree.cli.errors import CliError, tell_cli_error  # noqa: PLC0415 - as in `load`
            from memotree.cli.terminal.output import Output  # noqa: PLC0415 - as in `load`

            status = tell_cli_error(Output(as_json=True), CliError(error.format_message()))
        sys.exit(status or 0)


app = typer.Typer(
    cls=CommandLine,
    name=PROGRAM,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=SUMMARY,
    epilog=EPILOG,
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
        from memotree.cli.terminal.pager import use_no_pager  # noqa: PLC0415 - as in `load`

        use_no_pager()
