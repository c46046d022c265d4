"""The embedded engine: its refusals, its access key, and the data that survives kills."""

import asyncio
import ctypes
import os
import signal
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from integration.embedded.engines import Running, run_engine
from integration.embedded.programs import DEADLINE, Run, alive, until
from memotree_storage.conformance.vector_index import DIMENSIONS, entries, point, unit
from memotree_storage.embedded.lock import DataFolderInUseError
from memotree_storage.embedded.qdrant import EmbeddedQdrant
from memotree_storage.errors import UnavailableError
from memotree_storage.ports import IndexQuery, IndexUnavailableError, LineSpan, TermVector
from memotree_storage.qdrant.client import IndexMissingError, IndexRefusedError, connect
from memotree_storage.qdrant.index import ALIAS, IndexShapeError, QdrantIndex
from qdrant_client import grpc as wire
from qdrant_client import models

pytestmark = pytest.mark.requirement("STORE-6")


SERVE = """
import asyncio, sys
from pathlib import Path
from memotree_storage.embedded.qdrant import EmbeddedQdrant
async def main():
    engine = EmbeddedQdrant(Path(sys.argv[1]))
    endpoint = await engine.start()
    print(engine.supervisor.pid, endpoint.url, endpoint.api_key, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


async def code_of(call: Awaitable[object]) -> grpc.StatusCode:
    """The code with which a call is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code()


NAMED = {"summary": models.VectorParams(size=4, distance=models.Distance.COSINE)}


async def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with run_engine(tmp_path / "qdrant") as running:
        await running.index.upsert([point("w")])
        assert await running.index.count("w") == 1


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    """An engine for one test, which may kill and empty it."""
    async with run_engine(tmp_path / "qdrant") as one:
        yield one


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """An engine for tests that do not change it."""
    async with run_engine(tmp_path_factory.mktemp("qdrant")) as one:
        yield one


def nearest_any(**parts: Any) -> wire.QueryPoints:
    request = wire.QueryPoints(
        collection_name=ALIAS,
        query=wire.Query(nearest=wire.VectorInput(dense=wire.DenseVector(data=unit(1.0).tolist()))),
        using="summary",
    )
    request.MergeFrom(wire.QueryPoints(**parts))
    return request


def condition(**parts: Any) -> wire.Filter:
    return wire.Filter(must=[wire.Condition(**parts)])


def field(**parts: Any) -> wire.Filter:
    return condition(field=wire.FieldCondition(key="workspace", **parts))


def of_the_future() -> wire.Filter:
    """A filter with a field that no version of the messages knows yet."""
    return wire.Filter.FromString(field(match=wire.Match(keyword="w")).SerializeToString() + b"\xfa\x01\x01x")


def inside(some: wire.Filter) -> wire.Filter:
    return wire.Filter(should=[wire.Condition(filter=some)])


UNKNOWN_FILTERS = {
    "nested": condition(nested=wire.NestedCondition(key="a", filter=wire.Filter())),
    "has_vector": condition(has_vector=wire.HasVectorCondition(has_vector="summary")),
    "text match": field(match=wire.Match(text="x")),
    "phrase match": field(match=wire.Match(phrase="x")),
    "substring match": field(match=wire.Match(substring="x")),
    "geo": field(geo_radius=wire.GeoRadius(radius=1.0)),
    "values count": field(values_count=wire.ValuesCount(gt=1)),
    "datetime range": field(datetime_range=wire.DatetimeRange()),
    "two in one": field(match=wire.Match(keyword="w"), range=wire.Range(gt=1)),
    "none in one": field(),
    "future": of_the_future(),
    "inner": inside(inside(field(match=wire.Match(text="x")))),
    "inner future": inside(of_the_future()),
}


@pytest.mark.requirement("STORE-5")
@pytest.mark.parametrize("name", UNKNOWN_FILTERS)
async def test_an_unknown_part_of_a_filter_is_refused_and_not_ignored(shared: Running, name: str) -> None:
    unknown, points = UNKNOWN_FILTERS[name], shared.client.grpc_points
    selector = wire.PointsSelector(filter=unknown)
    workspace = f"workspace {name}"
    await shared.index.upsert([point(workspace)])
    for call in (
        points.Query(nearest_any(filter=unknown)),
        points.QueryBatch(wire.QueryBatchPoints(collection_name=ALIAS, query_points=[nearest_any(filter=unknown)])),
        points.Scroll(wire.ScrollPoints(collection_name=ALIAS, filter=unknown)),
        points.Count(wire.CountPoints(collection_name=ALIAS, filter=unknown)),
        points.Delete(wire.DeletePoints(collection_name=ALIAS, points=selector)),
        points.SetPayload(wire.SetPayloadPoints(collection_name=ALIAS, points_selector=selector)),
    ):
        assert await code_of(call) is grpc.StatusCode.UNIMPLEMENTED
    assert len(await entries(shared.index, workspace)) == 1


async def test_an_unsupported_option_is_refused(shared: Running) -> None:
    points, collections = shared.client.grpc_points, shared.client.grpc_collections
    params = wire.VectorParamsMap(map={"a": wire.VectorParams(size=4, distance=wire.Cosine)})
    quantised = wire.CreateCollection(
        collection_name="quantised",
        vectors_config=wire.VectorsConfig(params_map=params),
        quantization_config=wire.QuantizationConfig(scalar=wire.ScalarQuantization()),
    )
    for call in (
        points.Query(nearest_any(prefetch=[wire.PrefetchQuery()])),
        points.Query(nearest_any(params=wire.SearchParams(indexed_only=True))),
        points.Query(wire.QueryPoints(collection_name=ALIAS, query=wire.Query(fusion=wire.RRF))),
        points.Scroll(wire.ScrollPoints(collection_name=ALIAS, order_by=wire.OrderBy(key="line"))),
        points.Upsert(wire.UpsertPoints(collection_name=ALIAS, update_filter=wire.Filter())),
        points.Recommend(wire.RecommendPoints(collection_name=ALIAS)),
        points.ClearPayload(wire.ClearPayloadPoints(collection_name=ALIAS)),
        collections.Update(wire.UpdateCollection(collection_name=ALIAS)),
        collections.Create(quantised),
    ):
        assert await code_of(call) is grpc.StatusCode.UNIMPLEMENTED


async def test_bad_requests_are_distinguished_from_internal_errors(shared: Running) -> None:
    points = shared.client.grpc_points
    short = wire.VectorInput(dense=wire.DenseVector(data=[1.0]))
    vectors = wire.NamedVectors(vectors={"summary": wire.Vector(dense=wire.DenseVector(data=[1.0]))})
    odd = wire.PointStruct(id=wire.PointId(num=1), vectors=wire.Vectors(vectors=vectors))
    for call in (
        points.Query(wire.QueryPoints(collection_name=ALIAS, using="summary", query=wire.Query(nearest=short))),
        points.Query(wire.QueryPoints(collection_name=ALIAS, using="unknown", query=wire.Query(nearest=short))),
        points.Get(wire.GetPoints(collection_name=ALIAS, ids=[wire.PointId(uuid="no uuid")])),
        points.Get(wire.GetPoints(collection_name=ALIAS, ids=[wire.PointId()])),
        points.Upsert(wire.UpsertPoints(collection_name=ALIAS, points=[odd])),
    ):
        assert await code_of(call) is grpc.StatusCode.INVALID_ARGUMENT
    for path in ("../outside", "a/b", "", ".hidden", "x" * 300, "nul\0"):
        made = shared.client.create_collection(path, vectors_config=NAMED)
        assert await code_of(made) is grpc.StatusCode.INVALID_ARGUMENT


async def test_calls_without_the_key_are_refused(shared: Running) -> None:
    for key in (None, "", "wrong", (shared.endpoint.api_key or "")[:-1]):
        stranger = connect(shared.endpoint.url, key, timeout=10)
        index = QdrantIndex(stranger, model="test", dimensions=DIMENSIONS)
        with pytest.raises(IndexRefusedError) as caught:
            await index.prepare()
        assert "UNAUTHENTICATED" in caught.value.detail
        assert "UNAUTHENTICATED" not in caught.value.message  # a client only learns what to do
        await stranger.close()
    command = Path(f"/proc/{shared.engine.supervisor.pid}/cmdline").read_bytes()  # noqa: ASYNC240 - no disk behind it
    assert (shared.endpoint.api_key or "?").encode() not in command
    assert (shared.endpoint.api_key or "?") not in repr(shared.endpoint)


async def test_collections_and_aliases_survive_restarts(running: Running) -> None:
    client = running.client
    await client.create_collection("second", vectors_config=NAMED)
    again = client.create_collection("second", vectors_config=NAMED)
    assert await code_of(again) is grpc.StatusCode.ALREADY_EXISTS
    await running.kill()
    names = {one.name for one in (await client.get_collections()).collections}
    assert names == {"second", running.index.collection}
    assert await client.collection_exists(ALIAS)
    assert not await client.collection_exists("third")
    alias = models.CreateAlias(collection_name="second", alias_name=ALIAS)
    await client.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])
    await running.kill()
    assert (await client.get_aliases()).aliases == [models.AliasDescription(alias_name=ALIAS, collection_name="second")]
    assert await client.delete_collection("second")
    assert not await client.delete_collection("second")
    await running.kill()
    assert (await client.get_aliases()).aliases == []
    assert [one.name for one in (await client.get_collections()).collections] == [running.index.collection]


async def test_two_models_have_two_collections_and_the_alias_moves_at_once(running: Running) -> None:
    other = QdrantIndex(running.client, model="another", dimensions=4, flush=running.engine.flush)
    await other.prepare()
    assert other.collection != running.index.collection
    alias = (await running.client.get_aliases()).aliases[0]
    assert alias.collection_name == running.index.collection
    await other.make_current()
    alias = (await running.client.get_aliases()).aliases[0]
    assert alias.collection_name == other.collection


async def test_a_lost_collection_and_one_of_another_size_are_named(running: Running) -> None:
    await running.client.delete_collection(running.index.collection)
    with pytest.raises(IndexMissingError, match=running.index.collection):
        await running.index.upsert([point("w")])
    with pytest.raises(IndexMissingError, match="rebuild the index"):
        await running.index.nearest(IndexQuery("w", [LineSpan(1, 0)], 1), unit(1.0))
    await running.client.create_collection(running.index.collection, vectors_config=NAMED)
    with pytest.raises(IndexShapeError, match="holds vectors of 4 dimensions"):
        await running.index.prepare()
    await running.client.delete_collection(running.index.collection)
    await running.index.prepare()
    await running.index.upsert([point("w")])


@pytest.mark.requirement("STORE-1")
async def test_all_written_points_survive_a_kill(running: Running) -> None:
    points = [point("w", line=number % 3, first=number) for number in range(1500)]
    await running.index.upsert(points[:700])
    await running.index.flush()
    await running.index.upsert(points[700:])
    await running.index.close_versions([(points[5].point_id, 90), (points[900].point_id, 1000)])
    await running.index.upsert([replace(points[1], vector=unit(0.0, 1.0), terms=TermVector((9,), (3.0,)))])
    for _ in range(2):
        await running.kill()
        found = await entries(running.index, "w")
        assert len(found) == len(points)
        assert found[points[5].point_id].to_seq == 90
        assert found[points[900].point_id].to_seq == 1000
        state = [LineSpan(1, 5)]
        assert (await running.index.nearest(IndexQuery("w", state, 1), unit(0.0, 1.0)))[0].node_id == points[1].node_id
        hits = await running.index.best_terms(IndexQuery("w", state, 5), TermVector((9,), (1.0,)))
        assert [(hit.node_id, hit.score) for hit in hits] == [(points[1].node_id, 3.0)]


async def test_during_an_outage_calls_fail_clearly_and_afterwards_work_again(running: Running) -> None:
    index, supervisor = running.index, running.engine.supervisor
    await index.upsert([point("w")])
    os.kill(running.pid, signal.SIGSTOP)
    os.kill(running.pid, signal.SIGKILL)
    failures: list[UnavailableError] = []

    async def answers() -> bool:
        try:
            return len(await index.nearest(IndexQuery("w", [LineSpan(1, 0)], 1), unit(1.0))) == 1
        except UnavailableError as error:
            failures.append(error)
            return False

    while not await answers():  # noqa: ASYNC110 - the engine is another process
        await asyncio.sleep(0.01)
    assert all("Nothing is lost" in error.message for error in failures)
    await until(lambda: supervisor.restarts == 1, "the supervisor has seen it")
    await index.flush()


async def test_a_stopped_engine_is_unavailable(running: Running) -> None:
    flush = running.engine.flush
    await running.engine.stop()
    with pytest.raises(UnavailableError, match="does not answer"):
        await running.index.upsert([point("w")])
    with pytest.raises(IndexUnavailableError) as caught:
        await flush()
    assert caught.value.detail == "the embedded engine is not running"
    await running.engine.stop()


async def test_the_engine_ends_with_its_server_and_the_next_one_finds_all_data(
    tmp_path: Path, run_program: Run
) -> None:
    folder = tmp_path / "qdrant"
    first = await run_program(SERVE, str(folder))
    pid, url, key = (await first.line()).split()
    async with AsyncExitStack() as cleanup:
        client = connect(url, key)
        cleanup.push_async_callback(client.close)
        index = QdrantIndex(client, model="test", dimensions=DIMENSIONS)
        await index.prepare()
        await index.upsert([point("w") for _ in range(50)])
        with pytest.raises(DataFolderInUseError, match="stop that server"):
            await EmbeddedQdrant(folder).start()
        await first.kill()
    async with run_engine(folder) as second:
        assert len(await entries(second.index, "w")) == 50
    await until(lambda: not alive(int(pid)), "the orphan is gone")


async def test_a_stop_request_ends_the_engine_whichever_of_its_threads_gets_it(running: Running) -> None:
    """The kernel may give a signal to any thread. One that was beginning a thread got it, and the engine outlived its
    killed server, so that no other could start."""
    pid = running.pid
    await until(running.threads, "the engine has more than one thread")
    back = asyncio.Event()
    running.engine.supervisor.on_restart(back.set)
    tgkill = ctypes.CDLL(None).tgkill
    assert any(tgkill(pid, thread, signal.SIGTERM) == 0 for thread in running.threads()), "some may have ended"
    await until(lambda: not alive(pid), "the engine ends")
    await asyncio.wait_for(back.wait(), DEADLINE)


async def test_an_incomplete_collection_is_removed_at_the_next_start(running: Running, tmp_path: Path) -> None:
    unfinished = tmp_path / "qdrant" / "data" / "collections" / "unfinished" / "shard"
    await asyncio.to_thread(unfinished.mkdir, parents=True)
    await running.kill()
    assert not await asyncio.to_thread(unfinished.exists)
    assert await running.client.collection_exists(running.index.collection)
