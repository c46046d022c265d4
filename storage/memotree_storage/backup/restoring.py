"""Puts workspaces of a backup into a data folder that no server uses."""

from collections.abc import Collection, Sequence
from pathlib import Path

from memotree_storage.backup.writing import names_of
from memotree_storage.errors import AlreadyExistsError, FailedPreconditionError, NotFoundError
from memotree_storage.git.backup_chain import chain_of
from memotree_storage.git.backup_file import open_backup
from memotree_storage.git.backup_list import BackupList, SavedWorkspace
from memotree_storage.git.unpacking import RESTORE_WORK, complete, finish_restore, put_in_place, unpack
from memotree_storage.git.work_folders import work_folder
from memotree_storage.git.workspaces import Repositories
from memotree_storage.postgres.database import WORK_MIGRATIONS


class WorkspaceInPlaceError(AlreadyExistsError):
    """The data folder has workspaces that are to be restored."""

    reason = "WORKSPACE_IN_PLACE"

    def __init__(self, names: Collection[str]) -> None:
        super().__init__(
            f"The data folder has these workspaces: {', '.join(names)}. Nothing was changed. Choose others with "
            "--workspace, or add --replace to move the present ones to the trash folder."
        )


class NotInBackupError(NotFoundError):
    """The backup has no such workspace."""

    reason = "WORKSPACE_NOT_IN_BACKUP"


class BackupTooNewError(FailedPreconditionError):
    """A later version of MemoTree made the backup."""

    reason = "BACKUP_TOO_NEW"


def check_backup(files: Sequence[Path], folder: Path) -> list[SavedWorkspace]:
    """Restore a backup and those that it builds on into a folder, as a test; return its workspaces.

    Raises:
        BackupDamagedError, BackupMissingError, BackupNotInChainError, BundleRefusedError: It cannot be restored.
        GitMissingError: There is no git program.
    """
    chain = chain_of(files)
    workspaces = chain[-1].listed.workspaces
    unpack(chain, workspaces, folder)
    return list(workspaces)


def restore_backup(
    files: Sequence[Path], data_folder: Path, *, names: Collection[str] = (), replace: bool = False
) -> list[SavedWorkspace]:
    """Put workspaces of a backup into a data folder that no server uses; the caller holds its lock.

    All of them are unpacked and checked before the first one is put in its place. The next start mirrors them, and
    brings PostgreSQL back to the backup too (`memotree_storage.maintenance.restored`).

    Args:
        files: The backup is the last one. Others that it builds on may come before it; the rest is found beside it.
        data_folder: The data folder.
        names: Names or ids of the workspaces; all if empty.
        replace: Move workspaces that are there already to the trash folder, instead of refusing.

    Raises:
        BackupDamagedError: A file was cut off or changed, or is no backup.
        BackupMissingError: One that the backup builds on is neither given nor found.
        BackupNotInChainError: One was given that it does not build on.
        BackupTooNewError: A later version of MemoTree made it.
        NotInBackupError: The backup has no workspace of a given name.
        WorkspaceInPlaceError: The data folder has one of them, by id or by name.
        GitMissingError: There is no git program.
    """
    last = open_backup(files[-1])
    _refuse_newer(last.listed)
    chosen = _chosen(last.listed.workspaces, names)
    ids, taken = {each.id for each in chosen}, {each.name for each in chosen}
    chain = chain_of(files, ids)
    finish_restore(data_folder)  # of a restore that was killed
    repositories = Repositories(data_folder / "workspaces", data_folder / "trash")
    present = names_of(repositories)
    repositories.close()
    in_place = {each: name for each, name in present.items() if each in ids or name in taken}
    if in_place and not replace:
        raise WorkspaceInPlaceError(sorted(in_place.values()))
    with work_folder(data_folder, RESTORE_WORK) as folder:
        unpack(chain, chosen, folder)
        complete(last, chosen, folder)
        put_in_place(folder, data_folder, in_place, ids)
    return chosen


def _refuse_newer(listed: BackupList) -> None:
    if listed.work_format > len(WORK_MIGRATIONS):
        raise BackupTooNewError(
            f"MemoTree {listed.memotree} made this backup, and its rows have format {listed.work_format}; this version "
            f"knows {len(WORK_MIGRATIONS)}. Nothing was changed; restore it with the newer version."
        )


def _chosen(saved: Collection[SavedWorkspace], names: Collection[str]) -> list[SavedWorkspace]:
    chosen = [each for each in saved if not names or each.name in names or each.id in names]
    missing = [name for name in names if all(name not in (each.name, each.id) for each in chosen)]
    if missing:
        raise NotInBackupError(
            f"The backup has no workspace {', '.join(missing)}. It has: {', '.join(each.name for each in saved)}."
        )
    return chosen
