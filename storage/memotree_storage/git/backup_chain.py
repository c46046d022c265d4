"""The backups that an increment builds on: each list names the list of the one before by its hash.

Only as many of them are needed as some workspace has no complete bundle in a later one.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from memotree_storage.errors import InvalidInputError, NotFoundError
from memotree_storage.git.backup_file import Backup, list_hash, open_backup
from memotree_storage.git.backup_list import BackupDamagedError


class BackupMissingError(NotFoundError):
    """A backup that an increment builds on is neither given nor found."""

    reason = "BACKUP_MISSING"

    def __init__(self, last: Path, since: str) -> None:
        super().__init__(
            f"{last} builds on an earlier backup, whose list has the hash {since[:12]}…, and no file given "
            f"or beside it is that backup. Nothing was changed; put the earlier backups beside {last.name}, or name "
            "them before it."
        )


class BackupNotInChainError(InvalidInputError):
    """A backup was given that the last one does not build on."""

    reason = "BACKUP_NOT_IN_CHAIN"

    def __init__(self, other: Path, last: Path) -> None:
        super().__init__(
            f"{last} does not build on {other}: its chain begins with another backup. Nothing was changed; give the "
            "backups that it builds on, or none and keep them beside it."
        )


def chain_of(files: Sequence[Path], workspace_ids: Collection[str] | None = None) -> list[Backup]:
    """A backup and those that it builds on, the oldest first.

    Args:
        files: The backup is the last one; the others are of its chain. Those that are not given are looked for beside
            it.
        workspace_ids: The workspaces that are needed; all of the backup if ``None``.

    Raises:
        BackupDamagedError: A file was cut off or changed, or is no backup.
        BackupMissingError: One is neither given nor found.
        BackupNotInChainError: One was given that is not of the chain.
    """
    *earlier, last = files
    given = {list_hash(file): file for file in earlier}
    chain = [open_backup(last)]
    ids = {each.id for each in chain[0].listed.workspaces if workspace_ids is None or each.id in workspace_ids}
    used = set[Path]()
    while (since := chain[0].listed.since) and (given.keys() & {since} or _lacking(chain, ids)):
        file = given.get(since) or _beside(last, since)
        if file is None:
            raise BackupMissingError(chain[0].file, since)
        used.add(file)
        found = open_backup(file)
        if found.listed.sha256 != since:
            raise BackupDamagedError("its list of workspaces has another hash")
        chain.insert(0, found)
    for file in earlier:
        if file not in used:
            open_backup(file)  # a file that is no backup is told as such
            raise BackupNotInChainError(file, last)
    return chain


def links_of(chain: Sequence[Backup], workspace_id: str) -> list[Backup]:
    """The backups of a chain whose bundles make up a workspace, the oldest first.

    Raises:
        BackupDamagedError: The chain has no complete bundle of it.
    """
    links: list[Backup] = []
    for backup in reversed(chain):
        saved = backup.listed.of(workspace_id)
        if saved is None:
            break
        if saved.bundle:
            links.insert(0, backup)
        if saved.complete:
            return links
    raise BackupDamagedError(f"no backup of its chain has the whole workspace {workspace_id}")


def _lacking(chain: Sequence[Backup], workspace_ids: Iterable[str]) -> bool:
    """Whether a workspace has no complete bundle in these."""
    return not all(
        any((saved := backup.listed.of(each)) is not None and saved.complete for backup in chain)
        for each in workspace_ids
    )


def _beside(last: Path, sha256: str) -> Path | None:
    return next((file for file in _files(last.absolute().parent) if list_hash_of(file) == sha256), None)


def list_hash_of(file: Path) -> str:
    """The hash of the list of a backup; "" if the file is none or cannot be read."""
    with suppress(OSError):
        return list_hash(file)
    return ""


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_file():
            yield path
