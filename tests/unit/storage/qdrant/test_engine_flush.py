"""A flush makes every write durable that was answered before it, whatever other calls run at the same moment."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import qdrant_client  # noqa: F401 - before the engine's own loading of its messages
import qdrant_edge as edge
from memotree_storage.qdrant.engine.collection import Collection
from memotree_storage.qdrant.engine.shards import Shards
from memotree_storage.qdrant.engine.wire import qdrant

NAME = "points"


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


@pytest.fixture
def collection(tmp_path: Path) -> Iterator[Collection]:
    shards = Shards(tmp_path)
    params = qdrant.VectorParams(size=2, distance=qdrant.Cosine)
    vectors = qdrant.VectorsConfig(params_map=qdrant.VectorParamsMap(map={"summary": params}))
    shards.create(qdrant.CreateCollection(collection_name=NAME, vectors_config=vectors))
    yield shards.get(NAME)
    shards.close()


def watch(collection: Collection) -> Watched:
    shard: Any = Watched(collection.shard)
    collection.shard = shard
    return shard  # type: ignore[no-any-return]


def write(number: int) -> edge.UpdateOperation:
    return edge.UpdateOperation.upsert_points([edge.Point(number, {"summary": [1.0, float(number)]}, {})])


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
