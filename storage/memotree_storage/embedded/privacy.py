"""Folders that only the user of the server may enter."""

import os
import stat
from pathlib import Path
from typing import Final

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
