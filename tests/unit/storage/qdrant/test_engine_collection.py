"""A collection of the engine: when it is optimised, why a copy is given up, and what a flush makes durable.

If a copy is given up, the shard stays as it is. A flush makes every write durable that was answered before it, whatever
other calls run at the same moment.
"""

import filecmp
import logging
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import qdrant_client  # noqa: F401 - before the engine's own loading of its messages
import qdrant_edge as edge
from memotree_storage.qdrant.engine import collection as collection_module
from memotree_storage.qdrant.engine import optimising as optimising_module
from memotree_storage.qdrant.engine.collection import Collection, CopyGivenUpError
from memotree_storage.qdrant.engine.files import copy_shard, disk_use, read_ahead
from memotree_storage.qdrant.engine.optimising import Optimising
from memotree_storage.qdrant.engine.shards import Shards
from memotree_storage.qdrant.engine.wire import qdrant

NAME = "points"


@pytest.fixture
def shards(tmp_path: Path) -> Iterator[Shards]:
    opened = Shards(tmp_path)
    params = qdrant.VectorParams(size=2, distance=qdrant.Cosine)
    vectors = qdrant.VectorsConfig(params_map=qdrant.VectorParamsMap(map={"summary": params}))
    opened.create(qdrant.CreateCollection(collection_name=NAME, vectors_config=vectors))
    yield opened
    opened.close()


@pytest.fixture
def collection(shards: Shards) -> Collection:
    return shards.get(NAME)


def write(number: int) -> edge.UpdateOperation:
    return edge.UpdateOperation.upsert_points([edge.Point(number, {"summary": [1.0, float(number)]}, {})])


def copied(collection: Collection) -> Path:
    """A copy of the shard that is not optimised, which is all the same to what takes its place."""
    copy = collection.folder / "shard-copy"
    with collection.frozen() as place:
        copy_shard(place, copy, lambda: None)
    return copy


def count(collection: Collection) -> int:
    return collection.shard.info().points_count


def test_a_copy_with_all_later_writes_takes_the_place_of_the_shard(collection: Collection, tmp_path: Path) -> None:
    collection.update(write(1))
    copy = copied(collection)
    for number in range(2, 50):
        collection.update(write(number))
    collection.update(edge.UpdateOperation.delete_points([1]))
    before = collection.shard
    collection.replace(copy, 1)
    assert collection.shard is not before
    assert (count(collection), collection.place) == (48, copy)
    assert sorted(path.name for path in collection.folder.iterdir() if path.is_dir()) == ["shard-copy"]
    assert (collection.optimised_points, collection.changes) == (1, 49)
    collection.update(write(60))
    collection.close()
    again = Shards(tmp_path).get(NAME)
    assert (count(again), again.optimised_points, again.changes) == (49, 1, 48)
    again.close()


def test_a_copy_is_given_up_after_too_many_writes(collection: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection_module, "_MOST_BYTES", 100)
    copy = copied(collection)
    before = collection.shard
    for number in range(5):
        collection.update(write(number), size=30)
    with pytest.raises(CopyGivenUpError, match="too many"):
        collection.replace(copy, 0)
    assert collection.shard is before
    collection.forget_copy()
    collection.update(write(7), size=30)
    assert count(collection) == 6


def test_a_copy_is_given_up_after_a_write_that_failed(collection: Collection) -> None:
    """How much of it was applied is not known."""
    copy = copied(collection)
    with pytest.raises(Exception, match="No point with id 9"):
        collection.update(edge.UpdateOperation.set_payload([9], {"a": 1}))
    with pytest.raises(CopyGivenUpError, match="failed"):
        collection.replace(copy, 0)


def test_a_copy_that_lacks_points_is_given_up(collection: Collection) -> None:
    empty = copied(collection)
    collection.forget_copy()
    collection.update(write(1))
    other = collection.folder / "shard-other"
    with collection.frozen() as place:
        copy_shard(place, other, lambda: None)
    with pytest.raises(CopyGivenUpError, match="number of points"):
        collection.replace(empty, 0)
    assert count(collection) == 1


def test_an_interrupted_copy_is_removed_at_the_next_start(collection: Collection, tmp_path: Path) -> None:
    collection.update(write(1))
    copied(collection)
    collection.close()
    again = Shards(tmp_path).get(NAME)
    assert sorted(path.name for path in again.folder.iterdir() if path.is_dir()) == ["shard"]
    assert count(again) == 1
    again.close()


@pytest.mark.parametrize(
    ("changes", "optimised_points", "now", "is_due"),
    [
        (19_999, 0, 9999.0, False),
        (20_000, 0, 1004.0, False),
        (20_000, 0, 1005.0, True),
        (20_000, 100_000, 1005.0, False),
        (50_000, 100_000, 1005.0, True),
    ],
)
def test_a_collection_is_due_once_it_has_grown_by_half_and_writes_have_paused(
    shards: Shards, collection: Collection, changes: int, optimised_points: int, now: float, *, is_due: bool
) -> None:
    collection.written_at, collection.changes, collection.optimised_points = 1000.0, changes, optimised_points
    assert Optimising(shards)._is_due(collection, now) is is_due


def test_a_collection_whose_writes_never_pause_is_due_after_ten_minutes(shards: Shards, collection: Collection) -> None:
    optimising = Optimising(shards)
    collection.changes = 20_000
    found = []
    for second in range(0, 700, 100):
        collection.written_at = float(second)
        found.append(optimising._is_due(collection, float(second)))
    assert found == [False] * 6 + [True]


def test_a_failure_is_tried_again_after_ten_minutes(
    shards: Shards, collection: Collection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    optimising = Optimising(shards)
    monkeypatch.setattr(optimising_module, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    disk = SimpleNamespace(disk_usage=lambda _: SimpleNamespace(free=1), rmtree=shutil.rmtree)
    monkeypatch.setattr(optimising_module, "shutil", disk)
    collection.changes, collection.written_at = 20_000, 0.0
    with caplog.at_level(logging.INFO):
        assert not optimising.optimise(collection)
    assert "free space on the disk" in caplog.text
    assert [optimising._is_due(collection, now) for now in (1001.0, 1599.0, 1600.0)] == [False, False, True]


def test_too_little_memory_is_a_reason_not_to_start(
    shards: Shards, collection: Collection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    collection.update(write(1))
    monkeypatch.setattr(optimising_module, "_available_memory", lambda: 1000)
    with caplog.at_level(logging.INFO):
        assert not Optimising(shards).optimise(collection)
    assert "of memory" in caplog.text


def test_nothing_is_optimised_once_the_engine_stops(shards: Shards, collection: Collection) -> None:
    optimising = Optimising(shards)
    optimising.start()
    optimising.stop()
    before = collection.shard
    assert not optimising.optimise(collection)
    assert collection.shard is before


def test_a_folder_is_copied_with_the_holes_of_its_files(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "inner").mkdir(parents=True)
    with (source / "inner" / "sparse").open("wb") as file:
        file.seek(3 << 20)
        file.write(b"x" * 3_000_000)
        file.truncate(32 << 20)
    (source / "empty").touch()
    with (source / "hole").open("wb") as file:
        file.truncate(1 << 20)
    calls: list[None] = []
    copy_shard(source, tmp_path / "copy", lambda: calls.append(None))
    for name in ("inner/sparse", "empty", "hole"):
        assert filecmp.cmp(tmp_path / "copy" / name, source / name, shallow=False), name
    assert disk_use(tmp_path / "copy") <= disk_use(source)
    assert len(calls) > 3
    read_ahead(tmp_path / "copy", 1 << 20)


def test_what_the_shard_is_making_is_not_copied(collection: Collection) -> None:
    """A thread of the shard makes the next part of its log, and renames it, while the folder is copied."""
    collection.update(write(1))
    (collection.place / "wal" / "tmp-open-9").touch()
    copy = copied(collection)
    assert sorted(path.name for path in (copy / "wal").glob("tmp-*")) == []
    collection.replace(copy, 0)
    assert count(collection) == 1


def test_copying_ends_when_it_is_told_to(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").write_bytes(b"x")

    def stop() -> None:
        raise CopyGivenUpError("stop")

    with pytest.raises(CopyGivenUpError):
        copy_shard(tmp_path / "source", tmp_path / "copy", stop)


# --- Flushing ---------------------------------------------------------------------------------------------------------


class Watched:
    """A shard that counts its flushes, and calls something just before its next write or flush."""

    def __init__(self, shard: edge.EdgeShard) -> None:
        self._shard = shard
        self.flushes = 0
        self.before_write: Callable[[], object] = lambda: None
        self.before_flush: Callable[[], object] = lambda: None

    def update(self, operation: edge.UpdateOperation) -> None:
        call, self.before_write = self.before_write, lambda: None
        call()
        self._shard.update(operation)

    def flush(self) -> None:
        call, self.before_flush = self.before_flush, lambda: None
        call()
        self.flushes += 1
        self._shard.flush()

    def close(self) -> None:
        self._shard.close()


def watch(collection: Collection) -> Watched:
    shard: Any = Watched(collection.shard)
    collection.shard = shard
    return shard  # type: ignore[no-any-return]


def test_a_write_beside_a_flush_is_flushed_by_the_next(collection: Collection) -> None:
    shard = watch(collection)
    shard.before_write = collection.flush  # it comes after the call of the write has begun, before the shard has it
    collection.update(write(1))
    before = shard.flushes
    collection.flush()
    assert shard.flushes == before + 1
    collection.flush()
    assert shard.flushes == before + 1  # nothing was written since


def test_a_write_that_fails_halfway_is_flushed(collection: Collection) -> None:
    """The shard may have applied a part of it."""
    shard = watch(collection)
    collection.flush()
    before = shard.flushes

    def fail() -> None:
        raise RuntimeError("halfway")

    shard.before_write = fail
    with pytest.raises(RuntimeError, match="halfway"):
        collection.update(write(1))
    collection.flush()
    assert shard.flushes == before + 1


def test_a_flush_beside_one_that_fails_is_not_answered_before_it_has_flushed(collection: Collection) -> None:
    shard = watch(collection)
    collection.update(write(1))
    second = threading.Thread(target=collection.flush)

    def fail_beside_another() -> None:
        second.start()
        second.join(0.2)  # a flush that does not wait for this one has ended by then
        raise RuntimeError("the disk is full")

    shard.before_flush = fail_beside_another
    with pytest.raises(RuntimeError, match="disk is full"):
        collection.flush()
    second.join()
    assert shard.flushes == 1  # by the second one
