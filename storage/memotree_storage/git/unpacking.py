"""Backups become repositories again: beside the present ones, checked, and then put in their places all or none.

Everything is unpacked into a folder that is removed if it is not finished. Once it is, the folder gets another name,
and from then on the restore ends, also after a kill: the next start or restore puts the rest in its place.
"""

import json
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from memotree_storage import faults
from memotree_storage.git.backup_chain import links_of
from memotree_storage.git.backup_file import Backup, check_files, extract
from memotree_storage.git.backup_list import BackupDamagedError, SavedWorkspace
from memotree_storage.git.bundles import check_objects, unbundle
from memotree_storage.git.disk import disk_errors, sync_folder, sync_tree
from memotree_storage.git.repository import GitRepository
from memotree_storage.git.restored import make_rows_folder, mark_restored, note_rows
from memotree_storage.git.work_folders import clear_work_folders
from memotree_storage.git.workspaces import Repositories

BACKUP_WORK: Final = "backup"
RESTORE_WORK: Final = "restore"
"""The names of the folders for work in progress in a data folder."""

_READY: Final = "restore.ready"
_PLAN: Final = "plan.json"


def unpack(chain: Sequence[Backup], workspaces: Collection[SavedWorkspace], target: Path) -> None:
    """Make a repository of each workspace, and check that it has the refs of the list and that each object is whole.

    Args:
        chain: The backup, and before it those that it builds on.
        workspaces: Workspaces of the backup.
        target: The folder of the new repositories.

    Raises:
        BackupDamagedError: A bundle or a repository differs from its list.
        BundleRefusedError: git found an object damaged or missing.
        GitMissingError: There is no git program.
    """
    for each in workspaces:
        links = links_of(chain, each.id)
        for backup in chain:
            if backup in links or backup is chain[-1]:  # that has the rows, whether it has a bundle or not
                check_files(backup, [saved for saved in backup.listed.workspaces if saved.id == each.id])
        repository = target / f"{each.id}.git"
        GitRepository.create(repository, description=each.name).close()
        bundle = target / f"{each.id}.bundle"
        for backup in links:
            saved = backup.listed.of(each.id)
            extract(backup, "" if saved is None else saved.bundle, bundle)
            unbundle(bundle, repository)
            bundle.unlink()
        if check_objects(repository) != each.refs:
            raise BackupDamagedError(f"the refs of {each.name} differ from its list")


def complete(backup: Backup, workspaces: Collection[SavedWorkspace], target: Path) -> None:
    """Give unpacked repositories their mark and their rows, and make all of it durable.

    Raises:
        BackupDamagedError: A table is missing.
        RepositoryUnavailableError: The disk refused.
    """
    for each in workspaces:
        repository = target / f"{each.id}.git"
        if each.tables is not None:
            folder = make_rows_folder(repository)
            for table in each.tables:
                extract(backup, table.file, folder / table.table)
            note_rows(repository, each.tables)
        mark_restored(repository, backup.listed.created_at)
        sync_tree(repository)  # git does not sync all that it writes


def put_in_place(unpacked: Path, data_folder: Path, replaced: Collection[str], workspace_ids: Collection[str]) -> None:
    """Put unpacked repositories in their places; those that they replace go to the trash folder.

    Args:
        unpacked: The folder with the repositories, which is complete and durable; it is gone afterwards.
        data_folder: The data folder.
        replaced: The ids of the workspaces that go.
        workspace_ids: The ids of the workspaces that come.

    Raises:
        RepositoryUnavailableError: The disk refused; the next start ends it.
    """
    with disk_errors("be restored"):
        plan = unpacked / _PLAN
        with plan.open("w", encoding="ascii") as file:
            json.dump({"replaced": sorted(replaced), "restored": sorted(workspace_ids)}, file)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(unpacked)
        faults.point("restore.unpacked")
        unpacked.rename(data_folder / _READY)
        sync_folder(data_folder)
    faults.point("restore.ready")
    finish_restore(data_folder)


def finish_restore(data_folder: Path) -> None:
    """Put in their places what a restore has unpacked and checked, also one that was killed; safe to repeat.

    Raises:
        RepositoryUnavailableError: The disk refused.
    """
    ready = data_folder / _READY
    if not ready.exists():
        return
    repositories = Repositories(data_folder / "workspaces", data_folder / "trash")
    with disk_errors("be restored"):
        if (ready / _PLAN).exists():
            plan = json.loads((ready / _PLAN).read_bytes())
            for workspace_id in plan["replaced"]:
                # If it comes back under the same id, the present one is old only as long as the new one waits.
                waits = (ready / f"{workspace_id}.git").exists() or workspace_id not in plan["restored"]
                if waits and repositories.path(workspace_id).exists():
                    repositories.discard(workspace_id)
                    faults.point("restore.discarded")
            for workspace_id in plan["restored"]:
                if (ready / f"{workspace_id}.git").exists():
                    (ready / f"{workspace_id}.git").rename(repositories.path(workspace_id))
                    faults.point("restore.placed")
            sync_folder(data_folder / "workspaces")
            (ready / _PLAN).unlink()
        ready.rmdir()
        sync_folder(data_folder)
    repositories.close()


def clear_unfinished(data_folder: Path) -> None:
    """Remove what backups and restores of killed processes left in a data folder; those that run are kept."""
    clear_work_folders(data_folder, BACKUP_WORK, RESTORE_WORK)
