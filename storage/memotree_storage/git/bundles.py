"""One repository as one file and back: Git bundles, whose packs are made and read by the git program.

A bundle has all refs of a repository, also those below ``refs/memotree/``, as they were at one moment. The header is
written here and not by ``git bundle``: that leaves out a ref whose objects are all known already, and reads the refs
itself, at another moment than the rows of PostgreSQL are read.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from io import BufferedWriter
from pathlib import Path
from typing import Final

from memotree_storage.errors import CorruptError, FailedPreconditionError
from memotree_storage.git.repository import GitRepository
from memotree_storage.model.workspace import DEFAULT_BRANCH

_TIMEOUT: Final = 3600.0
_SIGNATURE: Final = b"# v2 git bundle\n"


class GitMissingError(FailedPreconditionError):
    """There is no git program."""

    reason = "GIT_MISSING"

    def __init__(self) -> None:
        super().__init__("There is no git program on the PATH, and backups need it. Install git.")


class BundleRefusedError(CorruptError):
    """git cannot make or read a bundle."""

    reason = "BUNDLE_REFUSED"


def write_bundle(
    repository: Path, target: Path, refs: Mapping[str, str], known: Mapping[str, str | None] | None = None
) -> None:
    """Write refs, and what they reach, to a file.

    Args:
        repository: The repository.
        target: The file.
        refs: The refs with their objects.
        known: Objects of the repository that the reader has, with all that they reach, each with the commit that it
            leads to, if any.

    Raises:
        GitMissingError: There is no git program.
        BundleRefusedError: git failed; the message has its last line.
    """
    needed = sorted({commit for commit in (known or {}).values() if commit is not None})
    head = refs.get(f"refs/heads/{DEFAULT_BRANCH}")
    lines = [f"-{commit}".encode() for commit in needed]
    lines += [f"{head} HEAD".encode()] if head is not None else []
    lines += [object_id.encode() + b" " + os.fsencode(name) for name, object_id in sorted(refs.items())]
    wanted = [*sorted(set(refs.values())), *(f"^{object_id}" for object_id in sorted(known or {}))]
    options = ("--revs", "--stdout", "--quiet", "--delta-base-offset", *(("--thin",) if known else ()))
    with target.open("wb") as file:
        file.write(_SIGNATURE + b"\n".join(lines) + b"\n\n")
        file.flush()
        _git("--git-dir", str(repository), "pack-objects", *options, given="\n".join(wanted).encode(), output=file)


def unbundle(bundle: Path, repository: Path) -> None:
    """Put the objects of a bundle into a repository, and give it exactly the refs of the bundle.

    Raises:
        GitMissingError: There is no git program.
        BundleRefusedError: git found the bundle damaged, or the repository lacks what it builds on.
    """
    options = ("--quiet", "--no-write-fetch-head", "--prune", "--no-tags")
    _git("--git-dir", str(repository), "fetch", *options, str(bundle.absolute()), "+refs/*:refs/*")


def check_objects(repository: Path) -> dict[str, str]:
    """Check every object of a repository; return its refs.

    Raises:
        GitMissingError: There is no git program.
        BundleRefusedError: git found an object damaged or missing.
    """
    _git("--git-dir", str(repository), "fsck", "--full", "--no-progress", "--no-dangling")
    with GitRepository.open(repository) as opened:
        return opened.refs()


def _git(*arguments: str, given: bytes | None = None, output: BufferedWriter | None = None) -> None:
    program = shutil.which("git")
    if program is None:
        raise GitMissingError
    # The repository's own configuration applies, but nothing from the user's environment (GIT_DIR, aliases, hooks).
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "LC_ALL": "C"}
    try:
        subprocess.run(  # noqa: S603 - the program is git, without a shell
            [program, *arguments],
            check=True,
            input=given if given is not None else b"",
            stdout=output or subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            timeout=_TIMEOUT,
        )
    except (subprocess.SubprocessError, OSError) as error:
        detail = (getattr(error, "stderr", None) or str(error).encode()).decode(errors="replace").strip()
        last = (detail.splitlines() or [type(error).__name__])[-1]
        raise BundleRefusedError(f"git could not do its part of the backup: {last}.") from error
