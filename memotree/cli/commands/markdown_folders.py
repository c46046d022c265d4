"""``memotree export | import``: folders of Markdown files, and what people edited in them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from memotree.cli.arguments import completion
from memotree.cli.commands.commits import AtOption
from memotree.cli.commands.conflicts import WhoOption
from memotree.cli.commands.memory_tests import BranchOption
from memotree.cli.context import WORKSPACE, CliContext, command
from memotree.cli.errors import CliError, FileError
from memotree.cli.terminal.output import ID, counted, short, table

if TYPE_CHECKING:
    from memotree.client import MarkdownEdit, MarkdownImport

FORMATS: Final = ("export", "plain", "basic-memory", "letta")
_MOST_SHOWN: Final = 50
_WORDS: Final = {"create": "new", "update": "changed", "move": "moved", "delete": "deleted"}

ArchivesOption = Annotated[
    list[str] | None,
    typer.Option("--archive", "-a", help="Only this archive; may be given again.", autocompletion=completion.archives),
]


class UnknownFormatError(CliError):
    """The format is none that is read."""

    reason = "UNKNOWN_FORMAT"


@command("export", WORKSPACE)
def export(
    cli: CliContext,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder: new, empty, or an earlier export.")],
    archive: ArchivesOption = None,
    at: AtOption = "",
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace an earlier export although its files were edited.")
    ] = False,
) -> None:
    """Write archives to a folder of Markdown files, which Obsidian, GitHub and every editor read.

    An archive becomes a folder, a node a file named by its title; relations become links. `memotree import` brings
    edits back. The same commit gives the same bytes. What is staged in a session is not in it. Hidden files at the top
    (.git, .obsidian) and files that are no Markdown stay.
    """
    done = cli.workspace.at(at).export_markdown(folder, archive or (), replace=replace)
    cli.output.show(done, lambda: None)
    cli.output.done(
        f"{counted(done.nodes, 'node')} of {counted(done.archives, 'archive')} at {short(done.commit_id)} in {folder}. "
        f"`memotree import {folder}` brings edits back."
    )


@command("import", WORKSPACE)
def import_folder(
    cli: CliContext,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder, or an agent file of Letta (.af).")],
    archive: Annotated[
        str,
        typer.Option(
            "--archive", "-a", help="For notes of another program: the archive; named like the folder if not given."
        ),
    ] = "",
    file_format: Annotated[
        str,
        typer.Option("--format", help=f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}; detected when not given."),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would change.")] = False,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete nodes whose files are gone; they stay otherwise.")
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="For notes of another program: replace nodes that were changed here as well."),
    ] = False,
    resolve: Annotated[
        bool, typer.Option("--resolve", help="Keep conflicts with newer commits in a session, to be resolved there.")
    ] = False,
    no_refresh: Annotated[
        bool, typer.Option("--no-refresh", help="Do not write the export again at the new commit.")
    ] = False,
    branch: BranchOption = "",
    message: Annotated[str, typer.Option("--message", "-m", help="The message of the commit.")] = "",
    agent: WhoOption = "",
) -> None:
    """Bring a folder of Markdown into the workspace: an edited export, or notes of another program.

    Files of an export keep their ids: a changed file is a changed node, a moved file a moved node, a file without an
    id a new one. Edits are made at the commit that the export shows and merged into the branch, so nothing that was
    committed meanwhile is lost. Notes of Obsidian, basic-memory and Letta become an archive; the same command again
    brings only what changed. All of it is one commit, or nothing.
    """
    if file_format and file_format not in FORMATS:
        raise UnknownFormatError(f"{file_format!r} is no format; give {', '.join(FORMATS[:-1])} or {FORMATS[-1]}.")
    try:
        workspace = cli.workspace if dry_run else cli.workspace_or_first()
        done = workspace.import_markdown(
            folder,
            branch=branch,
            archive=archive,
            file_format=file_format,
            delete=delete,
            overwrite=overwrite,
            preview=dry_run,
            keep_conflicts=resolve,
            message=message,
            agent=agent,
            refresh=not no_refresh,
        )
    except FileNotFoundError as error:
        raise FileError(str(error)) from None
    cli.output.show(done, lambda: _look(done))
    for warning in done.warnings:
        cli.output.warn(warning)
    if done.missing:
        gone = counted(len(done.missing), "entry", "entries")
        cli.output.note(f"No file any more: {gone}, kept. With --delete they are deleted.")
    _tell(cli, done, folder, dry_run=dry_run)


def _look(done: "MarkdownImport") -> RenderableType | None:
    if not done.edits:
        return None
    rows = [_row(each) for each in done.edits[:_MOST_SHOWN]]
    shown: list[RenderableType] = [table(["", ("Id", ID), "Title", "What", "File"], rows, empty="")]
    if len(done.edits) > _MOST_SHOWN:
        shown.append(Text(f"and {len(done.edits) - _MOST_SHOWN:,} more", "dim"))
    return Group(*shown)


def _row(edit: "MarkdownEdit") -> Sequence[str]:
    what = "archive" if edit.is_archive else ", ".join(edit.fields)
    return (_WORDS[edit.kind], edit.id, edit.title, what, edit.file)


def _tell(cli: CliContext, done: "MarkdownImport", folder: Path, *, dry_run: bool) -> None:
    edits = counted(len(done.edits), "edit")
    if not done.edits:
        cli.output.done(f"Nothing in {folder} differs from {short(done.base_commit_id)}; there is nothing to import.")
    elif dry_run:
        merged = " and merged into newer commits" if done.is_behind else ""
        cli.output.done(f"{edits} would be committed{merged}; nothing was changed.")
    elif done.session_id:
        cli.output.note(
            f"{counted(done.conflict_count, 'conflict')} with newer commits; the session {done.session_id} keeps them: "
            f"`memotree session conflicts --session {done.session_id}`."
        )
    else:
        cli.output.done(f"{edits} committed at {short(done.commit_id)}.")
