"""Repacks a repository of many small packs with the git program, if there is one, while commits go on.

The pack of a commit is not reachable until its ref moves. So only a command that keeps unreachable objects may run
beside commits: ``git repack --geometric`` keeps every object of the packs that it combines, reachable or not, while
``git repack -a -d``, ``git gc`` and ``git prune`` would drop the pack of a commit in flight. The write path never waits
for any of this.
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from memotree_storage.errors import UnavailableError
from memotree_storage.git.disk import disk_errors, sync_folder
from memotree_storage.git.locks import PRIVATE_FOLDER

PACK_LIMIT: Final = 50
"""The number of packs above which repacking pays off: reads stay fast with more, git commands and clones do not."""

_TIMEOUT: Final = 3600.0
_REPACK: Final = ("repack", "--geometric=2", "-d", "-q", "--no-write-bitmap-index")
_REPACK_WHOLE: Final = ("repack", "-a", "-d", "-f", "-q", "--no-write-bitmap-index")
_COMMIT_GRAPH: Final = ("commit-graph", "write", "--reachable", "--changed-paths", "--no-progress")


class MaintenanceFailedError(UnavailableError):
    """The git program failed; the repository is unchanged and the next run tries again."""

    reason = "MAINTENANCE_FAILED"


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """The result of one run: the number of packs; ``note`` is a sentence that says why it did nothing, or empty."""

    packs: int
    note: str = ""


def count_packs(repository: Path) -> int:
    """Return the number of packs of a repository; cheap enough to call after each commit."""
    with disk_errors("list its packs"), os.scandir(repository / "objects" / "pack") as entries:
        return sum(entry.name.endswith(".idx") and not entry.name.startswith("tmp_") for entry in entries)


def maintain(repository: Path, *, pack_limit: int = PACK_LIMIT) -> MaintenanceReport:
    """Combine small packs if there are more than ``pack_limit``, and update git's commit graph.

    Safe while this and other processes commit and read, also through open `GitRepository` objects. Does nothing if
    there is no git program, or if another process is maintaining this repository; the note of the report says so.

    Raises:
        MaintenanceFailedError: git failed.
        RepositoryUnavailableError: The disk refused.
    """
    before = count_packs(repository)
    git = shutil.which("git")
    if git is None:
        return MaintenanceReport(before, "There is no git program on the PATH, so packs were left as they are.")
    with _only_one(repository) as alone:
        if not alone:
            return MaintenanceReport(before, "Another process is maintaining this repository now.")
        if before > pack_limit:
            _run(git, repository, _REPACK)
            with disk_errors("sync its packs"):
                sync_folder(repository / "objects" / "pack")
        _run(git, repository, _COMMIT_GRAPH)
    return MaintenanceReport(count_packs(repository))


def pack_whole(repository: Path) -> None:
    """Combine all packs of a repository that nobody else uses, with deltas; nothing is done without a git program.

    Objects that no ref reaches are dropped.

    Raises:
        MaintenanceFailedError: git failed.
    """
    git = shutil.which("git")
    if git is not None:
        _run(git, repository, _REPACK_WHOLE)


@contextmanager
def no_maintenance(repository: Path) -> Iterator[None]:
    """Wait for the maintenance of a repository, and keep it from beginning until the block ends.

    A repack that has read the packs of one generation must not write into the next one.
    """
    with _lock_file(repository) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


@contextmanager
def _only_one(repository: Path) -> Iterator[bool]:
    """Whether this process got the maintenance lock; two processes at once would remove each other's packs."""
    with _lock_file(repository) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


@contextmanager
def _lock_file(repository: Path) -> Iterator[int]:
    with disk_errors("take its maintenance lock"):
        (repository / PRIVATE_FOLDER).mkdir(exist_ok=True)
        descriptor = os.open(repository / PRIVATE_FOLDER / "maintenance.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _run(git: str, repository: Path, arguments: tuple[str, ...]) -> None:
    # The repository's own configuration applies, but nothing from the user's environment (GIT_DIR, aliases, hooks).
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "LC_ALL": "C"}
    try:
        subprocess.run(  # noqa: S603 - the program is git, the arguments are constants
            [git, f"--git-dir={repository}", *arguments],
            check=True,
            capture_output=True,
            env=environment,
            timeout=_TIMEOUT,
        )
    except (subprocess.SubprocessError, OSError) as error:
        detail = getattr(error, "stderr", None) or str(error).encode()
        last = detail.decode(errors="replace").strip().rpartition("\n")[2]
        message = f"`git {arguments[0]}` failed ({last}); run `git fsck` on the repository if the next run fails too."
        raise MaintenanceFailedError(message) from error
