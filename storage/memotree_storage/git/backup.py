"""Backups: one tar file with a Git bundle for each workspace, and a list of them with hashes at the end.

The list comes last, so a file that was cut off has none and is refused. A person needs only tar and git to read one.
"""

import hashlib
import json
import shutil
import tarfile
from collections.abc import Collection, Generator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from memotree_storage.errors import AlreadyExistsError, CorruptError, NotFoundError
from memotree_storage.git.bundles import bundle_refs, read_bundle, write_bundle
from memotree_storage.git.disk import sync_folder, sync_tree
from memotree_storage.git.restored import mark_restored
from memotree_storage.git.work_folders import clear_work_folders, work_folder
from memotree_storage.git.workspaces import Repositories
from memotree_storage.model.node import is_id

FORMAT: Final = 1
"""The format of a backup file."""

CHUNK_BYTES: Final = 1 << 18
LIST_NAME: Final = "backup.json"
HASH_NAME: Final = "backup.json.sha256"

_BACKUP: Final = "backup"
_RESTORE: Final = "restore"


class BackupDamagedError(CorruptError):
    """The file is not a whole backup."""

    reason = "BACKUP_DAMAGED"

    def __init__(self, why: str) -> None:
        super().__init__(f"This is not a whole backup: {why}. Nothing was changed; use another backup.")


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


@dataclass(frozen=True, slots=True)
class SavedWorkspace:
    """A workspace in a backup.

    Attributes:
        id: Its id.
        name: Its name at the time of the backup.
        bundle: The name of its bundle in the file.
        bytes: The size of the bundle.
        sha256: The hash of the bundle.
        refs: Its branches, tags and other refs with the ids of their objects.
    """

    id: str
    name: str
    bundle: str
    bytes: int
    sha256: str
    refs: dict[str, str]


def write_backup(repositories: Repositories, scratch: Path, version: str) -> Generator[bytes, None, None]:
    """Yield a backup of all workspaces in chunks; one bundle at a time is on the disk, below ``scratch``.

    Raises:
        GitMissingError: There is no git program.
        BundleRefusedError: git could not read a repository.
    """
    saved: list[SavedWorkspace] = []
    with work_folder(scratch, _BACKUP) as folder:
        for workspace_id, name in names_of(repositories).items():
            bundle = folder / f"{workspace_id}.bundle"
            write_bundle(repositories.path(workspace_id), bundle)
            member = f"workspaces/{bundle.name}"
            refs = bundle_refs(bundle)
            size = bundle.stat().st_size
            yield _header(member, size)
            seen = hashlib.sha256()
            with bundle.open("rb") as file:
                while chunk := file.read(CHUNK_BYTES):
                    seen.update(chunk)
                    yield chunk
            yield _padding(size)
            saved.append(SavedWorkspace(workspace_id, name, member, size, seen.hexdigest(), refs))
            bundle.unlink()
    listed = {
        "format": FORMAT,
        "memotree": version,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "workspaces": [asdict(each) for each in saved],
    }
    text = (json.dumps(listed, ensure_ascii=False, indent=2) + "\n").encode()
    digest = f"{hashlib.sha256(text).hexdigest()}  {LIST_NAME}\n".encode()
    for name, content in ((LIST_NAME, text), (HASH_NAME, digest)):
        yield _header(name, len(content)) + content + _padding(len(content))
    yield bytes(2 * tarfile.BLOCKSIZE)


def names_of(repositories: Repositories) -> dict[str, str]:
    """The names of all workspaces, by id; one whose description cannot be read is called by its id."""
    found = repositories.descriptions()
    return {info.workspace_id: info.name for info in found.readable} | {each: each for each in found.faults}


def read_backup(file: Path) -> list[SavedWorkspace]:
    """What a backup holds; checks the list and the hash of every bundle.

    Raises:
        BackupDamagedError: The file was cut off or changed, or is no backup.
    """
    return _read(file)[0]


def _read(file: Path) -> tuple[list[SavedWorkspace], datetime]:
    """The workspaces of a backup, checked, and when it was made."""
    try:
        with tarfile.open(file, "r:") as archive:
            text, digest = _content(archive, LIST_NAME), _content(archive, HASH_NAME)
            if digest.split() != [hashlib.sha256(text).hexdigest().encode(), LIST_NAME.encode()]:
                raise BackupDamagedError("its list of workspaces has another hash")
            listed = json.loads(text)
            saved = _parsed(listed)
            for each in saved:
                _check(archive, each)
            return saved, datetime.fromisoformat(listed["created_at"])
    except (tarfile.TarError, EOFError, KeyError, ValueError, TypeError) as error:
        raise BackupDamagedError(str(error).strip("'\"") or type(error).__name__) from error


def restore_backup(
    file: Path, data_folder: Path, *, names: Collection[str] = (), replace: bool = False
) -> list[SavedWorkspace]:
    """Put workspaces of a backup into a data folder that no server uses; the caller holds its lock.

    All of them are unpacked and checked before the first one is put in its place. The next start mirrors them, and
    forgets what PostgreSQL keeps about commits that the backup lacks (`memotree_storage.maintenance.restored`).

    Args:
        file: The backup.
        data_folder: The data folder.
        names: Names or ids of the workspaces; all if empty.
        replace: Move workspaces that are there already to the trash folder, instead of refusing.

    Raises:
        BackupDamagedError: The file was cut off or changed, or is no backup.
        NotInBackupError: The backup has no workspace of a given name.
        WorkspaceInPlaceError: The data folder has one of them, by id or by name.
        GitMissingError: There is no git program.
    """
    saved, taken_at = _read(file)
    chosen = _chosen(saved, names)
    repositories = Repositories(data_folder / "workspaces", data_folder / "trash")
    present = names_of(repositories)
    ids, taken = {each.id for each in chosen}, {each.name for each in chosen}
    in_place = {each: name for each, name in present.items() if each in ids or name in taken}
    if in_place and not replace:
        raise WorkspaceInPlaceError(sorted(in_place.values()))
    with work_folder(data_folder, _RESTORE) as folder:
        unpack_backup(file, chosen, folder)
        for workspace in chosen:
            mark_restored(folder / f"{workspace.id}.git", taken_at)
            sync_tree(folder / f"{workspace.id}.git")  # git does not sync all that it writes
        for each in in_place:
            repositories.discard(each)
        for workspace in chosen:
            (folder / f"{workspace.id}.git").rename(repositories.path(workspace.id))
        sync_folder(data_folder / "workspaces")
    repositories.close()
    return chosen


def clear_unfinished(data_folder: Path) -> None:
    """Remove what backups and restores of killed processes left in a data folder; those that run are kept."""
    clear_work_folders(data_folder, _BACKUP, _RESTORE)


def unpack_backup(file: Path, workspaces: Collection[SavedWorkspace], target: Path) -> None:
    """Make a repository of each bundle, and check that it has the refs of the list and that each object is whole.

    Raises:
        BackupDamagedError: A repository differs from the list.
        BundleRefusedError: git found an object damaged or missing.
    """
    with tarfile.open(file, "r:") as archive:
        for each in workspaces:
            bundle = target / f"{each.id}.bundle"
            source = archive.extractfile(each.bundle)
            if source is None:
                raise BackupDamagedError(f"it has no file {each.bundle}")
            with source, bundle.open("wb") as copy:
                shutil.copyfileobj(source, copy)
            if read_bundle(bundle, target / f"{each.id}.git", each.name) != each.refs:
                raise BackupDamagedError(f"the refs of {each.name} differ from its list")
            bundle.unlink()


def _chosen(saved: list[SavedWorkspace], names: Collection[str]) -> list[SavedWorkspace]:
    chosen = [each for each in saved if not names or each.name in names or each.id in names]
    missing = [name for name in names if all(name not in (each.name, each.id) for each in chosen)]
    if missing:
        raise NotInBackupError(
            f"The backup has no workspace {', '.join(missing)}. It has: {', '.join(each.name for each in saved)}."
        )
    return chosen


def _parsed(listed: Any) -> list[SavedWorkspace]:
    if listed["format"] != FORMAT:
        raise BackupDamagedError(f"it has format {listed['format']}, and this version of MemoTree knows {FORMAT}")
    saved = [SavedWorkspace(**each) for each in listed["workspaces"]]
    for each in saved:
        if not is_id(each.id):  # it becomes the name of a folder
            raise BackupDamagedError(f"{each.id!r} is not the id of a workspace")
    return saved


def _check(archive: tarfile.TarFile, saved: SavedWorkspace) -> None:
    source = archive.extractfile(saved.bundle)
    if source is None:
        raise BackupDamagedError(f"it has no file {saved.bundle}")
    with source:
        if hashlib.file_digest(source, "sha256").hexdigest() != saved.sha256:  # type: ignore[arg-type] # it reads bytes
            raise BackupDamagedError(f"the workspace {saved.name} has another hash than its list says")


def _content(archive: tarfile.TarFile, name: str) -> bytes:
    source = archive.extractfile(name)
    return b"" if source is None else source.read()


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o600
    return info.tobuf(tarfile.PAX_FORMAT)


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)
