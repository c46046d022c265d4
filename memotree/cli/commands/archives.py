"""``memotree archive``: the memory trees of a workspace."""

from typing import Annotated

import typer

from memotree.cli.arguments import completion
from memotree.cli.arguments.options import YesOption
from memotree.cli.commands.workspaces import confirm
from memotree.cli.context import REVISION, SESSION, CliContext, command
from memotree.cli.terminal.output import counted, facts, table

ArchiveArgument = Annotated[
    str,
    typer.Argument(metavar="ARCHIVE", help="Name, id or unique prefix of an id.", autocompletion=completion.archives),
]
ModelOption = Annotated[str | None, typer.Option("--model", help="The agent or model it belongs to.")]
DescriptionOption = Annotated[str | None, typer.Option("--description", "-d", help="What the archive contains.")]


@command("archive create", SESSION)
def create(
    cli: CliContext,
    name: Annotated[str, typer.Argument(help="One line, unique among the archives.")],
    model: ModelOption = None,
    description: DescriptionOption = None,
    archive_id: Annotated[str, typer.Option("--id", help="An id of your choice.")] = "",
) -> None:
    """Stage a new archive."""
    archive = cli.session.create_archive(name, model_id=model or "", description=description or "", archive=archive_id)
    cli.output.show(archive, lambda: facts([("archive", archive.name), ("id", archive.id)]))
    cli.output.done("Staged; `memotree commit -m MESSAGE` makes it permanent.")


@command("archive list", REVISION)
def list_(cli: CliContext) -> None:
    """List the archives."""
    found = list(cli.here.archives())
    cli.output.show(
        {"archives": found},
        lambda: table(
            [("Name", "bold cyan"), ("Id", "yellow"), "Model", "Description"],
            [(each.name, each.id, each.model_id, each.description) for each in found],
            empty="There is no archive here; create one with `memotree archive create NAME`.",
        ),
    )


@command("archive show", REVISION)
def show(cli: CliContext, archive: ArchiveArgument) -> None:
    """Show one archive."""
    found = cli.here.archive(archive)
    cli.output.show(
        found,
        lambda: facts(
            [
                ("archive", found.name),
                ("id", found.id),
                ("model", found.model_id),
                ("description", found.description),
                ("etag", found.etag),
            ]
        ),
    )


@command("archive rename", SESSION)
def rename(
    cli: CliContext,
    archive: ArchiveArgument,
    new_name: Annotated[str, typer.Argument(help="The new name.")],
    model: ModelOption = None,
    description: DescriptionOption = None,
) -> None:
    """Stage a new name for an archive."""
    changed = cli.session.update_archive(archive, name=new_name, model_id=model, description=description)
    cli.output.show(changed, lambda: None)
    cli.output.done(f"Staged: the archive {changed.id} is renamed to {changed.name}.")


@command("archive delete", SESSION)
def delete(cli: CliContext, archive: ArchiveArgument, yes: YesOption = False) -> None:
    """Stage the deletion of an archive with all its nodes."""
    session = cli.session
    found = session.archive(archive)
    confirm(cli, f"Delete the archive {found.name} with all its nodes?", yes=yes)
    gone = session.delete_archive(found)
    cli.output.show({"archive": found, "deleted_nodes": gone}, lambda: None)
    cli.output.done(f"Staged: the archive {found.name} is deleted, with {counted(gone, 'node')}.")
