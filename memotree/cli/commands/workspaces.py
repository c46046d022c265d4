"""``memotree ws``: manage workspaces."""

import sys
from typing import Annotated

import typer

from memotree.cli.arguments import completion
from memotree.cli.arguments.options import YesOption
from memotree.cli.context import SERVER, WORKSPACE, CliContext, command
from memotree.cli.errors import CliError
from memotree.cli.target import Choice
from memotree.cli.terminal.output import facts, table, when

NameArgument = Annotated[
    str, typer.Argument(metavar="WORKSPACE", help="Name or id.", autocompletion=completion.workspaces)
]
OptionalNameArgument = Annotated[
    str,
    typer.Argument(
        metavar="[WORKSPACE]", help="Name or id; the chosen one when not given.", autocompletion=completion.workspaces
    ),
]


class NotConfirmedError(CliError):
    """A deletion was not confirmed."""

    reason = "NOT_CONFIRMED"


def confirm(cli: CliContext, question: str, *, yes: bool) -> None:
    """Asks for confirmation, unless ``yes`` is set.

    Errors: ``NotConfirmedError`` if the answer is no, or there is no terminal.
    """
    if yes:
        return
    if cli.as_json or not sys.stdin.isatty():
        raise NotConfirmedError(f"{question} Confirm with --yes, since there is no terminal to ask on.")
    if not typer.confirm(question, err=True):
        raise NotConfirmedError("Nothing was changed.")


@command("ws create", SERVER)
def create(
    cli: CliContext,
    name: Annotated[str, typer.Argument(help='1 to 64 letters, digits, ".", "_" or "-".')],
    description: Annotated[str, typer.Option("--description", "-d", help="The purpose of the workspace.")] = "",
    use: Annotated[bool, typer.Option(help="Choose it for later commands.")] = True,
) -> None:
    """Create a workspace, and choose it."""
    info = cli.client.create_workspace(name, description)
    if use:
        cli.choose(Choice(info.name))
    cli.output.show(info, lambda: facts([("workspace", info.name), ("id", info.id), ("repository", info.repository)]))
    cli.output.done(f"The workspace {info.name} is created{' and chosen' if use else ''}.")


@command("ws list", SERVER)
def list_(cli: CliContext) -> None:
    """List the workspaces."""
    found = list(cli.client.workspaces())
    chosen = cli.choice.workspace
    cli.output.show(
        {"workspaces": found, "chosen": chosen},
        lambda: table(
            ["", ("Name", "bold cyan"), ("Id", "yellow"), "Description", ("Created", "dim")],
            [
                (
                    "*" if chosen in {each.name, each.id} else "",
                    each.name,
                    each.id,
                    each.description,
                    when(each.create_time),
                )
                for each in found
            ],
            empty="There is no workspace yet; create one with `memotree ws create NAME`.",
        ),
    )


@command("ws show", WORKSPACE)
def show(cli: CliContext, name: OptionalNameArgument = "") -> None:
    """Show one workspace."""
    info = (cli.client.workspace(name) if name else cli.workspace).info()
    cli.output.show(
        info,
        lambda: facts(
            [
                ("workspace", info.name),
                ("id", info.id),
                ("description", info.description),
                ("created", when(info.create_time)),
                ("default branch", info.default_branch),
                ("repository", info.repository),
            ]
        ),
    )


@command("ws use", SERVER)
def use(cli: CliContext, name: NameArgument) -> None:
    """Choose the workspace for later commands."""
    info = cli.client.workspace(name).info()
    cli.choose(Choice(info.name))
    cli.output.show({"workspace": info.name}, lambda: None)
    cli.output.done(f"Commands now use the workspace {info.name}.")


@command("ws rename", SERVER)
def rename(
    cli: CliContext,
    name: NameArgument,
    new_name: Annotated[str, typer.Argument(help="The new name.")],
    description: Annotated[str | None, typer.Option("--description", "-d", help="The new description.")] = None,
) -> None:
    """Rename a workspace; its id and repository stay."""
    chosen = cli.choice
    info = cli.client.workspace(name).change(name=new_name, description=description)
    if chosen.workspace == name:
        cli.choose(Choice(info.name, chosen.session))
    cli.output.show(info, lambda: None)
    cli.output.done(f"The workspace {name} is now called {info.name}.")


@command("ws delete", SERVER)
def delete(cli: CliContext, name: NameArgument, yes: YesOption = False) -> None:
    """Delete a workspace; its repository is moved to the server's trash folder."""
    workspace = cli.client.workspace(name)
    info = workspace.info()
    confirm(cli, f"Delete the workspace {info.name}?", yes=yes)
    trash = workspace.remove(confirm_name=info.name)
    if cli.choice.workspace in {info.name, info.id}:
        cli.choose(Choice())
    cli.output.show({"workspace": info.name, "trash": trash}, lambda: None)
    cli.output.done(f"The workspace {info.name} is deleted; its repository is now in {trash} of the data folder.")
