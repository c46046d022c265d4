"""Folders that only the user of the server may enter, and that belong to this user."""

import os
import stat
from pathlib import Path
from typing import Final, TypeAlias

import structlog

PRIVATE: Final = 0o700
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_log = structlog.get_logger(__name__)


def make_private(folder: Path) -> None:
    """Create the folder if it is missing, and close it to all other users if it is open to them.

    A folder with the sticky bit is shared on purpose (``/tmp``), and one of another user cannot be closed (a volume of
    a container, for one). Both are left as they are, with a warning.

    Errors: ``OSError`` if the folder cannot be created.
    """
    folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    _close(folder)


def close_folders_in(folder: Path) -> None:
    """Close the folders directly in a folder; symbolic links are not followed."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _close(Path(entry.path))


def _close(folder: Path) -> None:
    mode = stat.S_IMODE(folder.stat().st_mode)
    if not mode & _OTHERS:
        return
    if mode & stat.S_ISVTX:
        _log.warning("the folder is shared with all users; give MemoTree one of its own", folder=str(folder))
        return
    try:
        folder.chmod(mode & ~_OTHERS)
    except PermissionError:
        _log.warning("other users can enter the folder, and this user may not change that", folder=str(folder))
    else:
        _log.info("closed a folder to other users", folder=str(folder), was=f"{mode:o}")


Owner: TypeAlias = tuple[int, int]
"""The ids of a user and of a group."""


def owner_of(folder: Path) -> Owner | None:
    """Return the owner of a folder if it exists and is of another user than the one that runs; root can write there."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return (found.st_uid, found.st_gid) if found.st_uid != os.geteuid() else None


def give_to(owner: Owner | None, folder: Path) -> None:
    """Give to ``owner`` what belongs to the user that runs in a folder; symbolic links are not followed.

    Errors: ``OSError`` if this user may not give files away.
    """
    if owner is None:
        return
    mine = os.geteuid()
    for here, folders, files in os.walk(folder):
        for name in ("", *folders, *files):
            path = os.path.join(here, name) if name else here  # noqa: PTH118 - as os.walk gives them
            if os.stat(path, follow_symlinks=False).st_uid == mine:  # noqa: PTH116 - the same
                os.chown(path, *owner, follow_symlinks=False)
