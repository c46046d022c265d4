"""One repository as one file and back: Git bundles, made and read by the git program.

A bundle has all branches and tags and ``refs/memotree/*``, without the refs that protect the base commits of sessions:
sessions are not part of it. git reads the refs first and then what they reach, so a bundle is consistent while commits
go on.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from memotree_storage.errors import CorruptError, FailedPreconditionError
from memotree_storage.git.repository import GitRepository

_SESSIONS: Final = "refs/memotree/keep/*"
_TIMEOUT: Final = 3600.0


class GitMissingError(FailedPreconditionError):
    """There is no git program."""

    reason = "GIT_MISSING"

    def __init__(self) -> None:
        super().__init__("There is no git program on the PATH, and backups need it. Install git.")


class BundleRefusedError(CorruptError):
    """git cannot make or read a bundle."""

    reason = "BUNDLE_REFUSED"


def write_bundle(repository: Path, target: Path) -> None:
    """Write all refs of a repository, and what they reach, to a file.

    Raises:
        GitMissingError: There is no git program.
        BundleRefusedError: git failed; the message has its last line.
    """
    _git("--git-dir", str(repository), "bundle", "create", "--quiet", str(target), f"--exclude={_SESSIONS}", "--all")


def bundle_refs(bundle: Path) -> dict[str, str]:
    """The refs in a bundle with the object ids that they hold, without ``HEAD``."""
    lines = _git("bundle", "list-heads", str(bundle)).splitlines()
    pairs = [line.split(" ", 1) for line in lines]
    return {ref: object_id for object_id, ref in pairs if ref != "HEAD"}


def read_bundle(bundle: Path, target: Path, description: str) -> dict[str, str]:
    """Create a repository from a bundle, and check every object in it; return its refs.

    Raises:
        GitMissingError: There is no git program.
        BundleRefusedError: git found the bundle damaged.
        RepositoryExistsError: There is already something at ``target``.
    """
    GitRepository.create(target, description=description).close()
    folder = ("--git-dir", str(target))
    _git(*folder, "fetch", "--quiet", "--no-write-fetch-head", str(bundle.absolute()), "+refs/*:refs/*")
    _git(*folder, "fsck", "--full", "--no-progress", "--no-dangling")
    with GitRepository.open(target) as repository:
        return repository.refs()


def _git(*arguments: str) -> str:
    program = shutil.which("git")
    if program is None:
        raise GitMissingError
    # The repository's own configuration applies, but nothing from the user's environment (GIT_DIR, aliases, hooks).
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "LC_ALL": "C"}
    try:
        done = subprocess.run(  # noqa: S603 - the program is git, without a shell
            [program, *arguments], check=True, capture_output=True, env=environment, timeout=_TIMEOUT
        )
    except (subprocess.SubprocessError, OSError) as error:
        detail = (getattr(error, "stderr", None) or str(error).encode()).decode(errors="replace").strip()
        raise BundleRefusedError(f"git could not do its part of the backup: {detail.splitlines()[-1]}.") from error
    return done.stdout.decode()
