"""``memotree setup``: makes MemoTree the memory of an agent's program, or takes it out again."""

import difflib
import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from memotree.cli.arguments.options import YesOption
from memotree.cli.commands.agent_hosts import Host, HostChoice, host
from memotree.cli.commands.settings_files import delete, edited, entry_text, is_empty, write
from memotree.cli.context import NOWHERE, CliContext, command
from memotree.cli.errors import CliError

ENTRY: Final = "memotree"
SHARED: Final = "main"
"""The workspace of a memory that several programs share; also that of the command line."""


class NoProjectFileError(CliError):
    """The program has no configuration for a project."""

    reason = "NO_PROJECT_FILE"


class StartChoice(StrEnum):
    """How the program starts MemoTree."""

    INSTALLED = "installed"
    UVX = "uvx"


@command("setup", NOWHERE)
def setup(
    cli: CliContext,
    program: Annotated[HostChoice, typer.Argument(metavar="PROGRAM", help=f"One of {', '.join(HostChoice)}.")],
    project: Annotated[
        bool, typer.Option("--project", help="For the project in this folder alone; for all of yours when not given.")
    ] = False,
    shared: Annotated[
        bool,
        typer.Option("--shared", help="Share one memory with other programs; when not given, each has its own."),
    ] = False,
    workspace: Annotated[
        str, typer.Option("--workspace", "-w", help="The workspace of the memory; named after the program otherwise.")
    ] = "",
    tools: Annotated[
        str, typer.Option("--tools", help="The tools to offer: everyday, all, or names with commas.")
    ] = "",
    start: Annotated[
        StartChoice, typer.Option("--start", help="Start this installation, or fetch MemoTree by uvx each time.")
    ] = StartChoice.INSTALLED,
    remove: Annotated[bool, typer.Option("--remove", help="Take MemoTree out of the configuration again.")] = False,
    show: Annotated[bool, typer.Option("--print", help="Only print the entry; change nothing.")] = False,
    yes: YesOption = False,
) -> None:
    """Make MemoTree the memory of a program that runs agents, by an entry in its configuration.

    What would change is shown first. The memory itself is not touched, neither now nor by --remove.
    """
    chosen = host(program)
    path = _file(chosen, project=project)
    name = workspace or (SHARED if shared else program.value)
    entry = chosen.entry(*_command(start, ["mcp", "--workspace", name, *(["--tools", tools] if tools else [])]))
    if show:
        cli.output.show(entry, lambda: entry_text(path, chosen.table, ENTRY, entry))
        return
    before, after = edited(path, chosen.table, ENTRY, None if remove else entry)
    facts = {"program": program.value, "file": str(path), "workspace": name, "changed": before != after}
    if before == after or (remove and not before):
        cli.output.show({**facts, "changed": False}, lambda: None)
        cli.output.done(f"Nothing to change: {path} {'has no entry of MemoTree' if remove else 'is as wanted'}.")
        return
    is_gone = is_empty(path, after) and not path.is_symlink()  # a link is the person's own
    cli.output.note(_difference(path, before, "" if is_gone else after))
    if project and not remove and start is StartChoice.INSTALLED:
        cli.output.note("The path of the command is that of this machine; in a file that others use, take --start uvx.")
    if not yes and not cli.as_json:
        typer.confirm(f"{'Delete' if is_gone else 'Change'} {path}?", abort=True, err=True)
    if is_gone:
        delete(path)
    else:
        write(path, after)
    cli.output.show(facts, lambda: None)
    told = "no longer uses MemoTree" if remove else f"uses MemoTree with the workspace {name}"
    cli.output.done(f"{chosen.name} {told}. {chosen.then}")


def _file(chosen: Host, *, project: bool) -> Path:
    if not project:
        return chosen.user_file
    if not chosen.project_file:
        raise NoProjectFileError(f"{chosen.name} has no configuration for a project; leave --project out.")
    return Path.cwd() / chosen.project_file


def _command(start: StartChoice, arguments: list[str]) -> tuple[str, list[str]]:
    """The command that starts MemoTree, and its arguments."""
    if start is StartChoice.UVX:
        return "uvx", ["memotree[mcp]", *arguments]
    found = shutil.which("memotree")
    beside = Path(sys.executable).with_name("memotree")
    # a program that is not started from a terminal often has another PATH, so the entry has the whole path
    return (
        (found or str(beside), arguments)
        if found or beside.exists()
        else (sys.executable, ["-m", "memotree.cli", *arguments])
    )


def _difference(path: Path, before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), str(path), str(path), n=2, lineterm="")
    return "\n".join(lines)
