"""When a collection is optimised, and how: a copy is optimised by another process and takes the shard's place.

The cost follows the growth: a collection is optimised when as many points have been written as half of what it had the
last time, so a point is copied a few times in all, whatever the number of points becomes.
"""

import contextlib
import logging
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

from memotree_storage import faults
from memotree_storage.memory import return_what_is_free
from memotree_storage.qdrant.engine.collection import FIRST_SHARD, Collection, CopyGivenUpError
from memotree_storage.qdrant.engine.files import copy_shard, disk_use, read_ahead
from memotree_storage.qdrant.engine.shards import Shards

_LEAST_CHANGES: Final = 20_000
"""Fewer written points are not worth it: they take less than 200 MB, and a search through them less than 2 ms."""

_PAUSE: Final = 5.0
"""Seconds without a write before a copy is made."""

_LATEST: Final = 600.0
"""Seconds after which it is made although writes go on; and between two attempts if the first failed."""

_POLL: Final = 1.0
_DISK_FACTOR: Final = 3
"""Free space needed, in sizes of the shard: the copy, the optimised files, and the writes that come meanwhile."""

ANEW: Final = "anew"
"""Tells the process that optimises a copy to leave nothing of deleted points in it."""

_EIGHT_BITS: Final = "quantized.data"
"""The file with the 8-bit vectors, which every search by meaning reads."""

_READ_AT_START: Final = 256 << 20
_POINT_BYTES: Final = 10 * 1024
"""Memory that the other process needs for a point."""

_log = logging.getLogger("memotree.engine")


class Optimising:
    """Optimises the collections of an engine, one at a time, in a thread that waits for writes to pause."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._stopping = threading.Event()
        self._one_at_a_time = threading.Lock()
        self._due_since: dict[str, float] = {}
        self._not_before: dict[str, float] = {}
        self._thread = threading.Thread(target=self._watch, name="optimising", daemon=True)

    def start(self) -> None:
        """Begin to watch the collections."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and the process of a copy that is being optimised; the copy is removed."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        with self._one_at_a_time:  # a call of optimise() has ended
            pass

    def _watch(self) -> None:
        for collection in self._shards.collections():
            with contextlib.suppress(OSError):  # the collection was removed meanwhile
                read_ahead(collection.place, _READ_AT_START, only=_EIGHT_BITS)
        while not self._stopping.wait(_POLL):
            for collection in self._shards.collections():
                if self._is_due(collection, time.monotonic()):
                    self.optimise(collection)

    def _is_due(self, collection: Collection, now: float) -> bool:
        name = collection.settings.collection_name
        if collection.changes < max(_LEAST_CHANGES, collection.optimised_points // 2):
            self._due_since.pop(name, None)
            return False
        since = self._due_since.setdefault(name, now)
        paused = now - collection.written_at >= _PAUSE or now - since >= _LATEST
        return paused and now >= self._not_before.get(name, 0.0)

    def optimise(self, collection: Collection, *, anew: bool = False) -> bool:
        """Optimise a collection now; return whether its shard was replaced. The log says why not.

        With ``anew``, nothing of deleted points stays in its files, also in those of its log.
        """
        name = collection.settings.collection_name
        with self._one_at_a_time, collection.copying:
            began = time.monotonic()
            self._not_before[name] = began + _LATEST
            copy = collection.folder / f"{FIRST_SHARD}-{secrets.token_hex(4)}"
            try:
                self._check_running(collection)
                points = self._copy(collection, copy)
                copied = time.monotonic()
                self._optimise_copy(collection, copy, anew=anew)
                optimised = time.monotonic()
                collection.replace(copy, points)
            except Exception as error:  # noqa: BLE001 - whatever it is, the shard is as it was, and the log says it
                collection.forget_copy()
                shutil.rmtree(copy, ignore_errors=True)
                expected = isinstance(error, CopyGivenUpError)
                _log.log(
                    logging.INFO if expected else logging.WARNING,
                    "collection %s was not optimised: %s",
                    name,
                    error,
                    exc_info=None if expected else error,
                )
                return False
            return_what_is_free()
            self._not_before.pop(name, None)
            _log.info(
                "collection %s optimised: %d points, copied in %.1f s, optimised in %.1f s, replaced in %.1f s",
                *(name, points, copied - began, optimised - copied, time.monotonic() - optimised),
            )
            return True

    def _check_running(self, collection: Collection) -> None:
        if self._stopping.is_set() or collection.closed.is_set():
            raise CopyGivenUpError("the engine stops, or the collection is removed")

    def _copy(self, collection: Collection, copy: Path) -> int:
        """Copy the shard, and return how many points it has."""
        size, points = disk_use(collection.place), collection.shard.info().points_count
        free = shutil.disk_usage(collection.folder).free
        if free < _DISK_FACTOR * size:
            raise CopyGivenUpError(
                f"it needs {_DISK_FACTOR * size >> 20} MiB of free space on the disk, where {free >> 20} MiB are left"
            )
        available = _available_memory()
        if available is not None and available < points * _POINT_BYTES:
            raise CopyGivenUpError(
                f"it needs {points * _POINT_BYTES >> 20} MiB of memory, and {available >> 20} MiB are available"
            )
        with collection.frozen() as place:
            points = collection.shard.info().points_count
            copy_shard(place, copy, lambda: self._check_running(collection))
        faults.point("engine.shard_copied")
        return points

    def _optimise_copy(self, collection: Collection, copy: Path, *, anew: bool) -> None:
        """Run the process that optimises the copy; this thread waits for it, since it ends with this thread."""
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [
                *(sys.executable, "-P", "-m", "memotree_storage.qdrant.engine.optimise_copy"),
                *(str(collection.folder), str(copy), str(os.getpid()), *([ANEW] if anew else [])),
            ],
            stdin=subprocess.DEVNULL,
        )
        try:
            while process.poll() is None:
                self._check_running(collection)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL / 10)
        finally:
            process.kill()
            process.wait()
        if process.returncode != 0:
            raise CopyGivenUpError(f"the process that optimises the copy ended with status {process.returncode}")


def _available_memory() -> int | None:
    """The bytes of memory that programs can have; ``None`` where the system does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None
