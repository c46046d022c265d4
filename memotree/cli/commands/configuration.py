"""``memotree config``: the settings of the server, checked and shown without starting it."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from memotree import environment
from memotree.cli.context import NOWHERE, SERVER, CliContext, command
from memotree.cli.errors import ExitCode, StartError
from memotree.cli.terminal.output import counted, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memotree_storage.errors import FieldViolation
    from rich.console import RenderableType

FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="PATH",
        help="The TOML file; that of MEMOTREE_CONFIG when not given, else memotree.toml in the working folder.",
        show_default=False,
    ),
]


@command("config check", NOWHERE)
def check(
    cli: CliContext,
    file: FileOption = None,
    stores: Annotated[
        bool, typer.Option("--stores", help="Also connect to the PostgreSQL and Qdrant that the settings name.")
    ] = False,
) -> None:
    """Check the settings as `memotree serve` reads them, without starting it; lists all faults, with their places."""
    # only the commands that load the settings need pydantic
    from memotree.settings import InvalidSettingsError, config_path, read_settings  # noqa: PLC0415 - see above

    path = file or config_path()
    read = str(path) if path.exists() else None
    warnings: list[FieldViolation] = []
    try:
        loaded = read_settings(file)
    except InvalidSettingsError as error:
        faults = list(error.violations)
    else:
        from memotree.settings_check import faults_of, warnings_of  # noqa: PLC0415 - wrong settings are told before

        faults, warnings = faults_of(loaded, ask_stores=stores), warnings_of(loaded)
    document = {
        "ok": not faults,
        "file": read,
        "faults": [_document(each) for each in faults],
        "warnings": [_document(each) for each in warnings],
    }
    cli.output.show(document, lambda: _faults(faults, read) if faults else Text(_ok(read)))
    for each in warnings:
        cli.output.warn(f"{each.field} {each.description}")
    if faults:
        raise typer.Exit(ExitCode.FAILED)


def _document(violation: "FieldViolation") -> dict[str, str]:
    return {"place": violation.field, "description": violation.description}


def _faults(faults: "Sequence[FieldViolation]", read: str | None) -> "RenderableType":
    found = table([("Where", "bold"), "What is wrong"], [(each.field, each.description) for each in faults], empty="")
    return Group(found, Text(f"A server cannot start with these settings ({_sources(read)})."))


def _ok(read: str | None) -> str:
    return f"OK: a server can start with these settings ({_sources(read)})."


def _sources(read: str | None) -> str:
    """Which file was read, and how many variables."""
    count = sum(1 for _ in environment.given(os.environ))
    return f"{read or 'no file'}, {counted(count, 'variable')} of the environment"


@command("config reload", SERVER)
def reload(cli: CliContext) -> None:
    """Make the running server read its settings file again; shows what changed, and what needs a restart."""
    cli.own_options = {name: name for name in environment.SETTINGS}  # faults are of settings, not of options
    changed = cli.client.reload_settings()
    cli.output.show(
        {"changed": changed},
        lambda: table(
            [("Setting", "bold cyan"), "Before", "Now", "Takes effect", ("Given by", "dim")],
            [
                (
                    each.name,
                    each.old_value,
                    each.new_value,
                    "now" if each.in_effect else Text("after a restart", "yellow"),
                    each.place or "default",
                )
                for each in changed
            ],
            empty="Nothing has changed.",
        ),
    )


@command("config show", NOWHERE)
def show(
    cli: CliContext,
    file: FileOption = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only settings that the file or the environment gives.")
    ] = False,
) -> None:
    """Show each setting of the server with its value and where that was given; secrets are hidden."""
    from memotree_storage.errors import MemoTreeError  # noqa: PLC0415 - as in `check`

    from memotree.settings import read_settings  # noqa: PLC0415 - as in `check`
    from memotree.settings_shown import shown_settings  # noqa: PLC0415 - as in `check`

    try:
        loaded = read_settings(file)
    except MemoTreeError as error:
        raise StartError(error.message) from None
    found = [each for each in shown_settings(loaded) if not changed or each.source != "default"]
    document: dict[str, Any] = {"file": None if loaded.file is None else str(loaded.file), "settings": found}
    cli.output.show(
        document,
        lambda: table(
            [("Setting", "bold cyan"), "Value", ("Given by", "dim")],
            [(each.name, each.text, each.place or "default") for each in found],
            empty="Every setting has its default.",
        ),
    )
