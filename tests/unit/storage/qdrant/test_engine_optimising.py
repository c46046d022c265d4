"""When a collection is optimised, and why a copy is given up; the shard then stays as it is."""

import filecmp
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

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


def due(optimising: Optimising, collection: Collection, now: float) -> bool:
    return optimising._is_due(collection, now)


def test_a_collection_is_due_once_it_has_grown_by_half_and_writes_have_paused(
    shards: Shards, collection: Collection
) -> None:
    optimising = Optimising(shards)
    collection.written_at = 1000.0
    collection.changes = 19_999
    assert not due(optimising, collection, 9999.0)
    collection.changes = 20_000
    assert not due(optimising, collection, 1004.0)
    assert due(optimising, collection, 1005.0)
    collection.optimised_points = 100_000
    assert not due(optimising, collection, 1005.0)
    collection.changes = 50_000
    assert due(optimising, collection, 1005.0)


def test_a_collection_whose_writes_never_pause_is_due_after_ten_minutes(shards: Shards, collection: Collection) -> None:
    optimising = Optimising(shards)
    collection.changes = 20_000
    found = []
    for second in range(0, 700, 100):
        collection.written_at = float(second)
        found.append(due(optimising, collection, float(second)))
    assert found == [False] * 6 + [True]


def test_a_failure_is_tried_again_after_ten_minutes(
    shards: Shards, collection: Collection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    optimising = Optimising(shards)
    monkeypatch.setattr(optimising_module, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    monkeypatch.setattr(
        optimising_module, "shutil", SimpleNamespace(disk_usage=lambda _: SimpleNamespace(free=1), rmtree=shutil.rmtree)
    )
    collection.changes, collection.written_at = 20_000, 0.0
    with caplog.at_level(logging.INFO):
        assert not optimising.optimise(collection)
    assert "free space on the disk" in caplog.text
    assert [due(optimising, collection, now) for now in (1001.0, 1599.0, 1600.0)] == [False, False, True]


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
