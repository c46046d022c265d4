"""The mark of a repository that comes from a backup, with the rows that PostgreSQL is to take from that.

PostgreSQL may know commits that the backup lacks, and lack sessions that the backup has. A file in the repository tells
the next start so, and a folder beside it has the rows. Both are written before the repository is in its place and
removed after the start has brought the two together, so a kill in between only repeats that. A clone or a backup does
not contain them.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from memotree_storage.git.backup_list import SavedTable, saved_table
from memotree_storage.git.disk import disk_errors, make_folders, sync_folder
from memotree_storage.git.locks import PRIVATE_FOLDER

_MARK: Final = f"{PRIVATE_FOLDER}/restored"
_ROWS: Final = f"{PRIVATE_FOLDER}/restored-rows"
_TABLES: Final = "tables.json"


@dataclass(frozen=True, slots=True)
class RestoredRows:
    """The rows that come with a repository: their tables, and the file of each by its name."""

    tables: tuple[SavedTable, ...]
    files: Mapping[str, Path]


def mark_restored(repository: Path, taken_at: datetime) -> None:
    """Note durably that a repository comes from a backup of that time.

    Raises:
        RepositoryUnavailableError: The disk refused.
    """
    mark = repository / _MARK
    with disk_errors("be marked as restored"):
        make_folders(mark.parent, repository)
        with mark.open("w", encoding="ascii") as file:
            file.write(f"{taken_at.isoformat(timespec='seconds')}\n")
            file.flush()
            os.fsync(file.fileno())
        sync_folder(mark.parent)


def backup_time(repository: Path) -> str | None:
    """The time of the backup that a marked repository comes from, in ISO 8601; ``None`` without a mark.

    Raises:
        RepositoryUnavailableError: The disk refused.
    """
    mark = repository / _MARK
    with disk_errors("read its mark"):
        return mark.read_text(encoding="ascii", errors="replace").strip() if mark.exists() else None


def make_rows_folder(repository: Path) -> Path:
    """Make the folder that takes a file for each table, named after it; `note_rows` completes it."""
    folder = repository / _ROWS
    with disk_errors("take the rows of a backup"):
        make_folders(folder, repository)
    return folder


def note_rows(repository: Path, tables: tuple[SavedTable, ...]) -> None:
    """Note the tables whose files are in the folder of rows; the caller syncs the repository."""
    with disk_errors("take the rows of a backup"):
        (repository / _ROWS / _TABLES).write_text(json.dumps([asdict(each) for each in tables]), encoding="ascii")


def restored_rows(repository: Path) -> RestoredRows | None:
    """The rows that come with a marked repository; ``None`` if the backup has none.

    Raises:
        RepositoryUnavailableError: The disk refused.
    """
    folder = repository / _ROWS
    with disk_errors("read the rows of a backup"):
        if not (folder / _TABLES).exists():
            return None
        tables = tuple(map(saved_table, json.loads((folder / _TABLES).read_bytes())))
    return RestoredRows(tables, {each.table: folder / each.table for each in tables})


def remove_mark(repository: Path) -> None:
    """Remove the mark durably, and the rows; safe to repeat.

    Raises:
        RepositoryUnavailableError: The disk refused.
    """
    mark = repository / _MARK
    with disk_errors("remove its mark"):
        mark.unlink(missing_ok=True)
        sync_folder(mark.parent)
        if (repository / _ROWS).exists():
            shutil.rmtree(repository / _ROWS)
            sync_folder(mark.parent)
