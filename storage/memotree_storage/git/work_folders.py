"""Folders for work in progress: removed at its end, or by a later start if the process was killed.

Each is locked with ``flock`` while its process lives, so what nobody holds is a leftover.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import structlog

_log = structlog.get_logger(__name__)
UNFINISHED: Final = ".unfinished-"
"""In the name of each such folder, after the name of the work."""


@contextmanager
def work_folder(parent: Path, work: str) -> Iterator[Path]:
    """Create a folder for a piece of work, held until the block ends; then remove it."""
    while True:
        folder = Path(tempfile.mkdtemp(dir=parent, prefix=f"{work}{UNFINISHED}"))
        held = _hold(folder)
        if held is not None:
            break  # otherwise `clear_work_folders` took it for a leftover before it was held
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def clear_work_folders(parent: Path, *works: str) -> None:
    """Remove the folders of these works that no living process holds; one that cannot be removed is logged."""
    for folder in (found for work in works for found in sorted(parent.glob(f"{work}{UNFINISHED}*"))):
        try:
            held = _hold(folder)
            if held is not None:
                try:
                    shutil.rmtree(folder)
                finally:
                    os.close(held)
                _log.info("removed what a killed process left behind", folder=folder.name)
        except OSError as error:
            _log.warning("a leftover could not be removed; remove it", folder=folder.name, why=error.strerror)


def _hold(folder: Path) -> int | None:
    """The open and locked folder; ``None`` if another holds it or it is gone."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_there = folder.exists()  # else another process held it, removed it and let go of it
    except BlockingIOError:
        is_there = False
    except BaseException:
        os.close(descriptor)
        raise
    if is_there:
        return descriptor
    os.close(descriptor)
    return None
