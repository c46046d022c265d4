"""Locks that a dead process cannot leave behind.

Two locks protect a ref. One ``flock`` per repository lets only one MemoTree process (and thread) move refs at a time;
the kernel releases it when its owner dies. While it is held, the ``<ref>.lock`` file of Git's own protocol keeps the
git program out. That file does survive a killed process, and then every later write would be refused until someone
deletes it.

So each lock file is created as a second name (hard link) of an entry in the journal folder ``memotree/locks``, which is
written first. A process that holds the repository's ``flock`` knows that no other MemoTree process is moving a ref. So
a lock file that has the inode of a journal entry is stale and may be removed; one that has not belongs to another
program (git) and must stay. The hard link guarantees both that the lock was recorded before it was created and that it
is this very lock, without a synced write per commit. After a power cut the disk may have the lock and not the entry,
since nothing is synced: a lock file that is older than the machine's start is stale, too. Entries are named after their
owner (host, boot, pid, start time), so that recovery can report what it removed.
"""

import fcntl
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from memotree_storage.errors import UnavailableError
from memotree_storage.git.disk import discard, disk_errors, make_folders, write_all

PRIVATE_FOLDER: Final = "memotree"
"""A folder inside the repository that git does not know and leaves alone."""

_FIRST_PAUSE: Final = 0.0005
_LONGEST_PAUSE: Final = 0.005
_FILE_MODE: Final = 0o644


class RepositoryBusyError(UnavailableError):
    """Another process holds the repository's write lock."""

    reason = "REPOSITORY_BUSY"

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"Another process has held the repository's write lock for {seconds:g} seconds; send the call again, or "
            "end that process if it hangs."
        )


class RefLockedError(UnavailableError):
    """Another program (git) holds the lock file of a ref."""

    reason = "REF_LOCKED"


class RepositoryLock:
    """The write lock of one repository, across threads and processes; released automatically when its owner dies."""

    def __init__(self, repository: Path) -> None:
        self._path = repository / PRIVATE_FOLDER / "write.lock"
        self._threads = threading.Lock()

    @contextmanager
    def hold(self, timeout: float) -> Iterator[None]:
        """Hold the lock for the block.

        Raises:
            RepositoryBusyError: The lock was not free within ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        if not self._threads.acquire(timeout=timeout):
            raise RepositoryBusyError(timeout)
        try:
            with disk_errors("take its write lock"):
                descriptor = self._open()
            try:
                _flock(descriptor, deadline, timeout)
                yield
            finally:
                os.close(descriptor)
        finally:
            self._threads.release()

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            return os.open(self._path, flags, _FILE_MODE)
        except FileNotFoundError:
            # A repository that git created, or a copy without this folder.
            self._path.parent.mkdir(exist_ok=True)
            return os.open(self._path, flags, _FILE_MODE)


def _flock(descriptor: int, deadline: float, timeout: float) -> None:
    for _ in waits(deadline):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        return
    raise RepositoryBusyError(timeout)


def waits(deadline: float) -> Iterator[None]:
    """Yield for each attempt until ``deadline`` (monotonic seconds), at least once, with growing pauses in between."""
    pause = _FIRST_PAUSE
    while True:
        yield
        left = deadline - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(pause, left))
        pause = min(pause * 2, _LONGEST_PAUSE)


class LockFile:
    """A ``<target>.lock`` file of Git's protocol: `commit` renames it over the target, `release` removes it."""

    def __init__(self, target: Path, entry: Path, descriptor: int) -> None:
        self._target = target
        self._entry = entry
        self._descriptor = descriptor
        self._held = False

    def try_take(self) -> bool:
        """Create the lock file as a second name of the journal entry; ``False`` if there is one already."""
        try:
            os.link(self._entry, lock_path(self._target))
        except FileExistsError:
            return False
        self._held = True
        return True

    def commit(self, data: bytes) -> None:
        """Write and sync ``data`` and rename the lock over the target; the caller must sync the folder."""
        write_all(self._descriptor, data)
        os.fsync(self._descriptor)
        lock_path(self._target).rename(self._target)
        self._held = False

    def release(self) -> None:
        """Remove the lock, unless it was committed, and its journal entry."""
        os.close(self._descriptor)
        if self._held:
            discard(lock_path(self._target))
        discard(self._entry)


class LockJournal:
    """Creates lock files of Git's protocol that can be told apart from those of other programs after a crash.

    Call every method with the `RepositoryLock` held: only that proves a recorded lock to be stale.
    """

    def __init__(self, repository: Path) -> None:
        self._repository = repository
        self._folder = repository / PRIVATE_FOLDER / "locks"

    @contextmanager
    def lock(self, target: Path, timeout: float) -> Iterator[LockFile]:
        """Hold ``<target>.lock`` for the block.

        A stale lock of a MemoTree process is removed; a lock of another program is waited for.

        Raises:
            RefLockedError: Another program held it for ``timeout`` seconds.
        """
        lock = LockFile(target, *self._note())
        try:
            self._take(lock, lock_path(target), timeout)
            yield lock
        finally:
            lock.release()

    def _take(self, lock: LockFile, path: Path, timeout: float) -> None:
        for _ in waits(time.monotonic() + timeout):
            if lock.try_take():
                return
            if self.owns(path):
                discard(path)
        raise RefLockedError(
            f"Another program has kept {path.relative_to(self._repository)} for {timeout:g} seconds; send the call "
            "again when its git command is done. If none is running, it is a leftover that the server removes at its "
            "next start."
        )

    def owns(self, lock: Path) -> bool:
        """Whether a MemoTree process created this lock file: a journal entry has the same inode."""
        try:
            found = lock.stat()
        except FileNotFoundError:
            return False
        return found.st_nlink > 1 and any(_same(entry, found) for entry in self.entries())

    def entries(self) -> list[Path]:
        """Return all journal entries: of locks held now, and of processes that died while holding one."""
        return list(self._folder.iterdir()) if self._folder.is_dir() else []

    def _note(self) -> tuple[Path, int]:
        entry = self._folder / f"{owner()}.{secrets.token_hex(8)}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            return entry, os.open(entry, flags, _FILE_MODE)
        except FileNotFoundError:
            make_folders(self._folder, self._repository)
            return entry, os.open(entry, flags, _FILE_MODE)


def lock_path(target: Path) -> Path:
    """Return the path of a file's lock in Git's protocol."""
    return target.with_name(f"{target.name}.lock")


def _same(entry: Path, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(entry.stat(), found)
    except FileNotFoundError:
        return False


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()[:8]
    except OSError:
        return "unknown"


def booted_at() -> float:
    """When this machine was started, in seconds since 1970: no process that did something before is alive."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def owner() -> str:
    """Return the name of this process in journal entries: host, boot, pid and start time (clock ticks since boot)."""
    host = "".join(c if c.isascii() and c.isalnum() else "-" for c in socket.gethostname())[:64]
    pid = os.getpid()
    return f"{host}.{_boot()}.{pid}.{_start_time(pid)}"


def _start_time(pid: int) -> str:
    try:
        # Field 22. The second field is the command in parentheses and may contain anything.
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except OSError:
        return "0"


def describe_owner(entry: Path) -> str:
    """Describe the owner that an entry's name contains, for a report."""
    host, boot, pid, start, *_ = (*entry.name.split("."), "?", "?", "?")
    return f"process {pid} on {host} (boot {boot}, start time {start})"
