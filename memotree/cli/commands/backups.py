"""``memotree backup | restore``: all workspaces as one file, and back into a data folder that no server uses."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memotree.cli.context import NOWHERE, SERVER, CliContext, command
from memotree.cli.errors import CliError, ExitCode, FileError
from memotree.cli.terminal.output import counted, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memotree_storage.git.backup_list import SavedWorkspace


class BackupRefusedError(CliError):
    """The backup cannot be made, checked or restored."""

    exit_code = ExitCode.FAILED
    reason = "BACKUP_REFUSED"


@command("backup", SERVER)
def backup(
    cli: CliContext,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write; it must not exist.")],
    since: Annotated[
        Path | None,
        typer.Option(
            "--since",
            metavar="PREVIOUS",
            help="Save only what that backup, and those it builds on, lack; restoring needs them all.",
        ),
    ] = None,
) -> None:
    """Save all workspaces of the server to one file, while it runs, and check the file by restoring it aside."""
    from memotree_storage.backup.restoring import check_backup  # noqa: PLC0415 - only these commands need the store
    from memotree_storage.errors import MemoTreeError  # noqa: PLC0415 - the same
    from memotree_storage.git.work_folders import clear_work_folders, work_folder  # noqa: PLC0415 - the same

    from memotree.server.logs import configure_logging  # noqa: PLC0415 - the same

    configure_logging("warning", "auto")
    if str(file) == "-":
        raise FileError("A backup is checked before it is kept, so it needs a file; give a name, and copy that file.")
    if file.exists():
        raise FileError(f"{file} exists. Name another file, or remove it first.")
    unfinished = file.with_name(f"{file.name}.unfinished")
    try:
        earlier, listed = _earlier(since)
        with unfinished.open("wb") as target, cli.output.progress() as bar:
            unfinished.chmod(0o600)
            for chunk in cli.client.back_up(since=listed):
                target.write(chunk)
                bar.at("bytes", target.tell(), 0)
        beside, work = file.absolute().parent, f".{file.name}."
        clear_work_folders(beside, work)  # of a backup to this file that was killed
        with work_folder(beside, work) as aside:
            saved = check_backup([*earlier, unfinished], aside)
        unfinished.rename(file)
    except OSError as error:
        raise FileError(f"{file} cannot be written: {error.strerror or error}.") from None
    except MemoTreeError as error:
        raise BackupRefusedError(error.message) from None
    finally:
        unfinished.unlink(missing_ok=True)
    _show(cli, saved)
    if any(each.tables is None for each in saved):
        cli.output.warn(
            "PostgreSQL did not answer, so open sessions, jobs and results of request ids are not in this backup."
        )
    cli.output.done(f"{counted(len(saved), 'workspace')} in {file}; each was restored aside and checked.")


def _earlier(since: Path | None) -> "tuple[Sequence[Path], bytes]":
    """The backups that a new one builds on, oldest first, and the list of the last of them."""
    from memotree_storage.git.backup_chain import chain_of  # noqa: PLC0415 - as in `backup`
    from memotree_storage.git.backup_file import read_list  # noqa: PLC0415 - the same

    if since is None:
        return (), b""
    if not since.is_file():
        raise FileError(f"There is no file {since}.")
    return [each.file for each in chain_of([since])], read_list(since)


@command("restore", NOWHERE)
def restore(
    cli: CliContext,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="A file that `memotree backup` wrote. Those that it builds on are found beside it, or are given before"
            " it.",
        ),
    ],
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="PATH", help="The data folder; that of the settings by default."),
    ] = None,
    workspace: Annotated[
        list[str] | None,
        typer.Option("--workspace", "-w", help="Restore only this workspace; may be given again."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Move workspaces that are there already to the trash folder.")
    ] = False,
) -> None:
    """Put the workspaces of a backup into a data folder; stop its server first. The next start mirrors them.

    Run by root, it gives what it wrote to the owner of the data folder.
    """
    from memotree_storage.backup.restoring import restore_backup  # noqa: PLC0415 - as in `backup`
    from memotree_storage.embedded.lock import DataFolderLock  # noqa: PLC0415 - the same
    from memotree_storage.embedded.privacy import give_to, owner_of  # noqa: PLC0415 - the same
    from memotree_storage.errors import MemoTreeError  # noqa: PLC0415 - the same
    from memotree_storage.git.backup_chain import chain_of  # noqa: PLC0415 - the same

    from memotree.server.logs import configure_logging  # noqa: PLC0415 - the same
    from memotree.settings import load_settings  # noqa: PLC0415 - the same

    for file in files:
        if not file.is_file():
            raise FileError(f"There is no file {file}.")
    try:
        folder = load_settings(data_folder=data).data_folder
        chain_of(files, ())  # before the data folder is touched
        configure_logging("warning", "auto")
        owner = owner_of(folder)
        with DataFolderLock(folder):
            restored = restore_backup(files, folder, names=workspace or (), replace=replace)
            give_to(owner, folder)
    except MemoTreeError as error:
        raise BackupRefusedError(error.message) from None
    except OSError as error:
        raise FileError(f"{folder} cannot be written: {error.strerror or error}.") from None
    _show(cli, restored)
    serve = "memotree serve" if data is None else f"memotree serve --data {shlex.quote(str(data))}"
    cli.output.done(f"{counted(len(restored), 'workspace')} restored. Start the server with `{serve}`.")


def _show(cli: CliContext, saved: list["SavedWorkspace"]) -> None:
    cli.output.show(
        {"workspaces": saved},
        lambda: table(
            ["Workspace", "Id", "Branches", "Tags", "Bytes", "Saved"],
            [
                (
                    each.name,
                    each.id,
                    _count(each, "refs/heads/"),
                    _count(each, "refs/tags/"),
                    f"{each.bytes:,}",
                    _extent(each),
                )
                for each in saved
            ],
            empty="The server has no workspaces.",
        ),
    )


def _extent(saved: "SavedWorkspace") -> str:
    """How much of the history the file itself has."""
    if saved.complete:
        return "whole"
    return "changes" if saved.bundle else "nothing new"


def _count(saved: "SavedWorkspace", prefix: str) -> str:
    return str(sum(name.startswith(prefix) for name in saved.refs))
