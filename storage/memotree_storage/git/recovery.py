"""Cleaning up after dead writers: MemoTree's leftovers at any time, git's only with exclusive access."""

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

from memotree_storage.git.disk import discard
from memotree_storage.git.locks import LockJournal, booted_at, describe_owner
from memotree_storage.git.pack import TEMPORARY_PREFIX, remove_abandoned
from memotree_storage.git.refs import RefStore

LEFTOVER_AGE: Final = timedelta(hours=1)
"""No git command holds a lock that long unless it is stuck."""


def recover(repository: Path, journal: LockJournal, refs: RefStore, foreign_age: timedelta | None) -> list[str]:
    """Remove leftovers; the caller must hold the repository's write lock.

    Args:
        repository: The bare repository.
        journal: Its lock journal.
        refs: Its refs. Broken ones are reported, not repaired.
        foreign_age: Also remove leftovers of git that are older than this, or than the machine's start; ``None`` keeps
            them all.

    Returns:
        One sentence for each thing that was done or found.
    """
    done = [*_clear_noted_locks(repository, journal)]
    done += [
        f"Removed {name}, an incomplete pack of a writer that died."
        for name in remove_abandoned(repository / "objects" / "pack")
    ]
    if foreign_age is not None:
        done += _clear_foreign(repository, max(time.time() - foreign_age.total_seconds(), booted_at()))
    done += [
        f"{name} holds no object id, left by a crash of another program; delete it or set it with `git update-ref`."
        for name in refs.broken()
    ]
    return done


def _clear_noted_locks(repository: Path, journal: LockJournal) -> Iterator[str]:
    entries = {}
    for entry in journal.entries():
        found = entry.stat()
        entries[found.st_dev, found.st_ino] = entry
    if not entries:
        return
    for lock in _ref_locks(repository):
        found = lock.stat()
        owner = entries.get((found.st_dev, found.st_ino))
        if owner is not None and discard(lock):
            yield f"Removed {lock.relative_to(repository)}, the stale lock of {describe_owner(owner)}."
    for entry in entries.values():
        discard(entry)


def _ref_locks(repository: Path) -> Iterator[Path]:
    yield from (repository / "refs").rglob("*.lock")
    packed = repository / "packed-refs.lock"
    if packed.exists():
        yield packed


def _clear_foreign(repository: Path, before: float) -> Iterator[str]:
    for path in _foreign_leftovers(repository):
        if path.stat().st_mtime < before and discard(path):
            yield f"Removed {path.relative_to(repository)}, an old leftover of a command that was interrupted."


def _foreign_leftovers(repository: Path) -> Iterator[Path]:
    yield from repository.glob("*.lock")
    yield from (repository / "refs").rglob("*.lock")
    yield from (repository / "objects" / "info").rglob("*.lock")
    packs = repository / "objects" / "pack"
    yield from packs.glob("*.lock")
    yield from (path for path in packs.glob("tmp_*") if not path.name.startswith(TEMPORARY_PREFIX))
    yield from (path for path in packs.glob(".tmp-*") if path.is_file())
    yield from (path for path in packs.glob("pack-*.pack") if not path.with_suffix(".idx").exists())
    yield from (repository / "objects").glob("[0-9a-f][0-9a-f]/tmp_obj_*")
