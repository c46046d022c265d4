"""``memotree archive``: the memory trees of a workspace."""

from typing import Annotated

import typer

from memotree.cli import completion
from memotree.cli.context import REVISION, SESSION, Desk, command
from memotree.cli.options import YesOption
from memotree.cli.output import counted, facts, table
from memotree.cli.workspaces import confirm

app = typer.Typer(name="archive", no_args_is_help=True, help="Archives: the memory trees of a workspace.")

ArchiveArgument = Annotated[
    str,
    typer.Argument(metavar="ARCHIVE", help="Name, id or unique prefix of an id.", autocompletion=completion.archives),
]
ModelOption = Annotated[str | None, typer.Option("--model", help="The agent or model it belongs to.")]
DescriptionOption = Annotated[str | None, typer.Option("--description", "-d", help="What it holds.")]


@command(app, "create", SESSION)
def create(
    desk: Desk,
    name: Annotated[str, typer.Argument(help="One line, unique among the archives.")],
    model: ModelOption = None,
    description: DescriptionOption = None,
    archive_id: Annotated[str, typer.Option("--id", help="An id of your choice.")] = "",
) -> None:
    """Stage a new archive."""
    archive = desk.session.create_archive(name, model_id=model or "", description=description or "", archive=archive_id)
    desk.output.show(archive, lambda: facts([("archive", archive.name), ("id", archive.id)]))
    desk.output.done("Staged; `memotree commit -m MESSAGE` makes it permanent.")


@command(app, "list", REVISION)
def list_(desk: Desk) -> None:
    """List the archives."""
    found = list(desk.here.archives())
    desk.output.show(
        {"archives": found},
        lambda: table(
            [("Name", "bold cyan"), ("Id", "yellow"), "Model", "Description"],
            [(each.name, each.id, each.model_id, each.description) for each in found],
            empty="There is no archive here; make one with `memotree archive create NAME`.",
        ),
    )


@command(app, "show", REVISION)
def show(desk: Desk, archive: ArchiveArgument) -> None:
    """Show one archive."""
    found = desk.here.archive(archive)
    desk.output.show(
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


@command(app, "rename", SESSION)
def rename(
    desk: Desk,
    archive: ArchiveArgument,
    new_name: Annotated[str, typer.Argument(help="The new name.")],
    model: ModelOption = None,
    description: DescriptionOption = None,
) -> None:
    """Stage another name of an archive."""
    changed = desk.session.update_archive(archive, name=new_name, model_id=model, description=description)
    desk.output.show(changed, lambda: None)
    desk.output.done(f"Staged: the archive {changed.id} is called {changed.name}.")


@command(app, "delete", SESSION)
def delete(desk: Desk, archive: ArchiveArgument, yes: YesOption = False) -> None:
    """Stage the removal of an archive with all its nodes."""
    session = desk.session
    found = session.archive(archive)
    confirm(desk, f"Remove the archive {found.name} with all its nodes?", yes=yes)
    gone = session.delete_archive(found)
    desk.output.show({"archive": found, "deleted_nodes": gone}, lambda: None)
    desk.output.done(f"Staged: the archive {found.name} is removed, with {counted(gone, 'node')}.")
