"""Keeping a repository of many small packs fast: the git program repacks it, beside commits, when there is one.

A commit's pack is in no history until its ref moves, so only work that keeps objects that nothing names may run beside
commits: ``git repack --geometric`` takes every object of the packs that it rolls up, reachable or not, while
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
"""Packs above which repacking pays: reading stays fast with more, but git commands and clones do not."""

_TIMEOUT: Final = 3600.0
_REPACK: Final = ("repack", "--geometric=2", "-d", "-q", "--no-write-bitmap-index")
_COMMIT_GRAPH: Final = ("commit-graph", "write", "--reachable", "--changed-paths", "--no-progress")


class MaintenanceFailedError(UnavailableError):
    """The git program ended with an error; the repository is as good as before and the next run tries again."""

    reason = "MAINTENANCE_FAILED"


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """What one run left: how many packs there are; ``note`` says in a sentence why it did nothing, or is empty."""

    packs: int
    note: str = ""


def count_packs(repository: Path) -> int:
    """How many packs a repository has; cheap enough to ask after each commit."""
    with disk_errors("list its packs"), os.scandir(repository / "objects" / "pack") as entries:
        return sum(entry.name.endswith(".idx") and not entry.name.startswith("tmp_") for entry in entries)


def maintain(repository: Path, *, pack_limit: int = PACK_LIMIT) -> MaintenanceReport:
    """Roll up small packs when there are more than ``pack_limit``, and bring git's commit graph up to date.

    Safe beside commits and reads of this and other processes, also of open `GitRepository` objects. Without a git
    program, or while another process maintains this repository, nothing happens and the note says so.

    Raises:
        MaintenanceFailedError: when git fails.
        RepositoryUnavailableError: when the disk refuses.
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


@contextmanager
def _only_one(repository: Path) -> Iterator[bool]:
    """Whether this process may maintain now; two at once would remove packs under each other's hands."""
    with disk_errors("take its maintenance lock"):
        (repository / PRIVATE_FOLDER).mkdir(exist_ok=True)
        descriptor = os.open(repository / PRIVATE_FOLDER / "maintenance.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def _run(git: str, repository: Path, arguments: tuple[str, ...]) -> None:
    # The repository's own settings hold, and none of a person's environment (GIT_DIR, aliases, hooks elsewhere).
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
