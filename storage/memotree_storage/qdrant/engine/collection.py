"""One collection: its open shard, its writes, and the step from a shard to its optimised copy.

The folder holds ``collection.binpb`` (the request that created it), ``shard.json`` (which folder is its shard, and how
many points it had when it was optimised; missing as long as it never was), and the shard: ``shard`` or, once optimised,
``shard-<random>``. Any other folder is what an interrupted copy left, and is removed when the collection is opened.
"""

import contextlib
import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import qdrant_edge as edge

from memotree_storage import faults
from memotree_storage.qdrant.engine.files import write_synced
from memotree_storage.qdrant.engine.wire import qdrant

SETTINGS: Final = "collection.binpb"
FIRST_SHARD: Final = "shard"
_CURRENT: Final = "shard.json"
_MOST_BYTES: Final = 64 << 20
"""Writes kept for a copy, in bytes on the wire; beyond, the copy is given up."""

_LAST_WRITES: Final = 2
"""With so few writes to replay, other writes wait for them; each takes as long as it took the first time."""

_MOST_ROUNDS: Final = 20
_DISK_FAILED: Final = 74  # EX_IOERR of sysexits.h

_log = logging.getLogger("memotree.engine")


class CopyGivenUpError(Exception):
    """A copy cannot replace the shard; the message says why."""


@dataclass(slots=True)
class WritesSince:
    """The writes to a shard since a copy of it was made, in order; used while writes wait.

    Attributes:
        operations: Those that the copy does not have yet.
        size: Their bytes on the wire.
        points: How many points were changed since the copy was made.
        failed: A write failed, or there were too many, so the copy can never become what the shard is.
    """

    operations: list[edge.UpdateOperation] = field(default_factory=list)
    size: int = 0
    points: int = 0
    failed: bool = False

    def add(self, operation: edge.UpdateOperation, points: int, size: int) -> None:
        """Keep a write that changes so many points at most and takes so many bytes on the wire."""
        self.size += size
        self.points += points
        if self.size > _MOST_BYTES:
            self.give_up()
        elif not self.failed:
            self.operations.append(operation)

    def take(self) -> list[edge.UpdateOperation]:
        """Return the writes that were not taken yet."""
        some, self.operations, self.size = self.operations, [], 0
        return some

    def give_up(self) -> None:
        """Keep no more."""
        self.failed = True
        self.operations = []


class Collection:
    """One open shard.

    Attributes:
        settings: The request that created it.
        shard: The engine's own object; every call of it holds the GIL. It is replaced by its optimised copy, so callers
            read this attribute once for each request.
        changes: How many points have been written since it was last optimised.
        written_at: The monotonic time of the last write, or of the opening.
        optimised_points: How many points it had then; 0 if it never was.
        closed: Set when the collection is closed or removed.
        copying: Held as long as there is a copy of the shard, in its folder.
    """

    def __init__(self, folder: Path, settings: qdrant.CreateCollection, shard: edge.EdgeShard, place: Path) -> None:
        self.folder = folder
        self.settings = settings
        self.shard = shard
        self.place = place
        self.closed = threading.Event()
        self.copying = threading.Lock()
        self.written_at = time.monotonic()
        self.optimised_points = 0
        self.changes = 0
        self._dirty = False
        self._writing = threading.Lock()
        self._flushing = threading.Lock()
        self._since: WritesSince | None = None

    @classmethod
    def load(cls, folder: Path, settings: qdrant.CreateCollection) -> "Collection":
        """Open the collection of a folder, and remove what an interrupted copy left in it."""
        name, points = _current(folder)
        for other in folder.iterdir():
            if other.is_dir() and other.name != name:
                shutil.rmtree(other, ignore_errors=True)
        collection = cls(folder, settings, edge.EdgeShard.load(str(folder / name)), folder / name)
        collection.optimised_points = points
        collection.changes = abs(collection.shard.info().points_count - points)
        return collection

    def update(self, operation: edge.UpdateOperation, *, points: int = 1, size: int = 0) -> None:
        """Apply one write; it is in the log when this returns, and durable after ``flush``.

        Args:
            operation: The write.
            points: How many points it may change.
            size: Its bytes on the wire, by which the memory is bounded that keeps it for a copy.
        """
        with self._writing:
            try:
                self.shard.update(operation)
            except BaseException:
                if self._since is not None:
                    self._since.give_up()  # what was applied is not known
                raise
            finally:
                # Afterwards, since a flush that comes in between takes the mark away without having this write; and
                # after a failure too, which may have applied a part of it.
                self._dirty = True
                self.changes += points
                self.written_at = time.monotonic()
            if self._since is not None:
                self._since.add(operation, points, size)

    def flush(self) -> None:
        """Make every write durable whose ``update`` has returned."""
        with self._flushing:  # one that finds nothing to flush must not overtake the one that is flushing it
            if self._dirty:
                self._dirty = False
                try:
                    self.shard.flush()
                except BaseException:
                    self._dirty = True
                    raise

    @contextlib.contextmanager
    def frozen(self) -> Iterator[Path]:
        """Let writes wait while the flushed shard, whose folder is given, is copied; keep the writes that follow.

        After this, either ``replace`` or ``forget_copy`` must be called.
        """
        with self._writing:
            self.flush()
            self._since = WritesSince()
            yield self.place

    def forget_copy(self) -> None:
        """Keep no more writes for a copy."""
        with self._writing:
            self._since = None

    def replace(self, place: Path, points: int) -> None:
        """Let the optimised copy in a folder take the place of the shard; readers never wait for it.

        Everything in the copy must be on stable storage. First most of the writes that came since are replayed while
        others go on, then the last ones while others wait. The copy is flushed before ``shard.json`` names it: a kill
        before leaves the old shard, one after the new shard, and each has every write that was answered.

        Raises:
            CopyGivenUpError: The copy lacks a write, or the collection is closed; the shard stays as it is.
        """
        fresh = edge.EdgeShard.load(str(place))
        for _ in range(_MOST_ROUNDS):
            with self._writing:
                some = self._kept().take()
            _apply(fresh, some)
            if len(some) <= _LAST_WRITES:
                break
        with self._writing:
            since = self._kept()
            _apply(fresh, since.take())
            if fresh.info().points_count != self.shard.info().points_count:
                raise CopyGivenUpError("it has another number of points than the shard")
            with self._flushing:
                faults.point("engine.copy_flushed")
                self._name_shard(place.name, points)
                faults.point("engine.shard_replaced")
                old, self.shard, self.place = self.place, fresh, place
                self._dirty, self._since = False, None
                self.optimised_points, self.changes = points, since.points
        # The old shard ends with the last call that still uses it; its files may go before, since they are open.
        shutil.rmtree(old, ignore_errors=True)

    def _kept(self) -> WritesSince:
        since = self._since
        if self.closed.is_set():
            raise CopyGivenUpError("the collection is closed")
        if since is None or since.failed:
            raise CopyGivenUpError("a write failed, or there were too many")
        return since

    def _name_shard(self, name: str, points: int) -> None:
        """Write which folder is the shard; end the process if it is not certain whether that succeeded.

        To go on with either shard could lose writes then, while both have every write that was answered so far.
        """
        try:
            write_synced(self.folder / _CURRENT, json.dumps({"shard": name, "points": points}).encode())
        except OSError:
            if _current(self.folder)[0] == name:
                _log.critical("a folder cannot be synced, the disk may fail", exc_info=True)
                os._exit(_DISK_FAILED)
            raise

    def close(self) -> None:
        """Flush and close the shard."""
        self.closed.set()
        with self._writing:
            self.flush()
            self.shard.close()


def _current(folder: Path) -> tuple[str, int]:
    """Which folder is the shard, and how many points it had when it was optimised."""
    try:
        current = json.loads((folder / _CURRENT).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return FIRST_SHARD, 0
    return str(current["shard"]), int(current["points"])


def _apply(shard: edge.EdgeShard, operations: Sequence[edge.UpdateOperation]) -> None:
    """Apply writes to a shard; they are on stable storage when this returns."""
    for operation in operations:
        shard.update(operation)
    if operations:
        shard.flush()
