"""The mark of a repository that comes from a backup: the next start compares sessions and request ids with it.

PostgreSQL may know commits that the backup lacks. A file in the repository tells the start so. It is written before the
repository is in its place and removed after the start has compared the two, so a kill in between only repeats that. A
clone or a backup does not contain it.
"""

import os
from datetime import datetime
from pathlib import Path
from typing import Final

from memotree_storage.git.disk import disk_errors, make_folders, sync_folder
from memotree_storage.git.locks import PRIVATE_FOLDER

_MARK: Final = f"{PRIVATE_FOLDER}/restored"


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


def remove_mark(repository: Path) -> None:
    """Remove the mark durably; safe to repeat.

    Raises:
        RepositoryUnavailableError: The disk refused.
    """
    mark = repository / _MARK
    with disk_errors("remove its mark"):
        mark.unlink(missing_ok=True)
        sync_folder(mark.parent)
