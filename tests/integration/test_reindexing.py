"""Another embedding model gets an index beside the old one, which answers until the new one is whole."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from integration.damage import differences
from integration.pushes import DEADLINE, rows
from integration.worlds import World
from memotree_storage import reindexing
from memotree_storage.concurrency.cancellation import cancel_and_wait
from memotree_storage.embedded.qdrant import EmbeddedQdrant
from memotree_storage.index.search import SearchQuery
from memotree_storage.ports import IndexPoint, Vectors
from memotree_storage.postgres import indexes
from memotree_storage.postgres.database import Database
from memotree_storage.postgres.reach import DatabaseUnavailableError
from memotree_storage.postgres.tree import State
from memotree_storage.qdrant.client import connect
from memotree_storage.qdrant.index import QdrantIndex, collection_name
from memotree_storage.reindexing import NewModel, reindex_with
from memotree_storage.store import Store
from qdrant_client import AsyncQdrantClient

from memotree.models.builtin import WordllamaEmbedder
from memotree.request.limits import ServiceLimits
from memotree.request.pages import PageTokens
from memotree.v1 import workspace_service_pb2
from memotree.workspaces import WorkspaceOperations

pytestmark = pytest.mark.requirement("STORE-7")


@dataclass(frozen=True, slots=True)
class Engine:
    """The engine, with the places of the points of each model."""

    client: AsyncQdrantClient
    process: EmbeddedQdrant

    def points(self, model: str, dimensions: int) -> QdrantIndex:
        return QdrantIndex(self.client, model=model, dimensions=dimensions, flush=self.process.flush)

    def of(self, embedder: WordllamaEmbedder) -> NewModel:
        return NewModel(embedder, self.points(embedder.model, embedder.dimensions))

    async def collections(self) -> set[str]:
        return {each.name for each in (await self.client.get_collections()).collections}


@pytest.fixture(scope="module")
async def running_engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    process = EmbeddedQdrant(tmp_path_factory.mktemp("engine"))
    async with AsyncExitStack() as cleanup:
        endpoint = await process.start()
        cleanup.push_async_callback(process.stop)
        client = connect(endpoint.url, endpoint.api_key)
        cleanup.push_async_callback(client.close)
        yield Engine(client, process)


@pytest.fixture
async def engine(running_engine: Engine) -> Engine:
    """An engine without collections."""
    for name in await running_engine.collections():
        await running_engine.client.delete_collection(name)
    return running_engine


Open = Callable[[WordllamaEmbedder], AbstractAsyncContextManager[Store]]


@pytest.fixture
def opened(tmp_path: Path, database_url: str, engine: Engine) -> Open:
    """Opens the store with a model, each time on the same data."""

    @asynccontextmanager
    async def begin(embedder: WordllamaEmbedder) -> AsyncIterator[Store]:
        points = engine.points(embedder.model, embedder.dimensions)
        store = Store(tmp_path / "data", Database(database_url), points, embedder, open_points=engine.points)
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    return begin


@pytest.fixture
async def store(opened: Open) -> AsyncIterator[Store]:
    async with opened(OLD) as found:
        yield found


ROSES = {"content": "Roses need water.", "position": "a1"}


def ignore(*_: object) -> None:
    """Hear of no progress."""


OLD, NEW, OTHER = WordllamaEmbedder(), WordllamaEmbedder(64), WordllamaEmbedder(128)


async def nearest(world: World, query: str, commit: str = "") -> str:
    state = State(world.workspace, commit or await world.head())
    found = await world.store.search.find(state, SearchQuery(query, limit=1, words=False, meaning=True))
    return found[0].version.title


async def has_roses(world: World) -> None:
    """Check that the note about roses is found by its meaning, and that nothing is lost."""
    assert await nearest(world, "roses need water") == "Roses"
    assert await differences(world) == []


async def records(store: Store) -> indexes.IndexRecords:
    async with store.database.connection() as conn:
        return await indexes.read_begun(conn)


async def numbers(store: Store) -> list[int]:
    """The indexes that have leaf features."""
    return [number for (number,) in await rows(store, "select distinct index_number from mirror.passage order by 1")]


async def test_the_new_index_answers_at_the_end_and_the_old_one_is_gone(
    opened: Open, engine: Engine, pages: PageTokens, limits: ServiceLimits
) -> None:
    async with opened(OLD) as store:
        world = await World.create(store, pages, limits)
        first = await world.put(*world.nodes(40), world.node("Roses", **ROSES))
        steps: list[tuple[str, int, int]] = []
        assert await reindex_with(store, engine.of(NEW), lambda *step: steps.append(step))
        assert store.embedder is NEW
        assert await nearest(world, "roses need water") == "Roses"
        assert await engine.collections() == {collection_name(NEW.model, 64)}
        assert await numbers(store) == [2]
        assert (await records(store)).retired == ()
        assert await differences(world) == []
        assert ("index", 41, 41) in steps
        last = await world.put(world.node("Bread", content="Bread is baked.", position="a2"))
        assert await nearest(world, "baked bread") == "Bread"
        assert await nearest(world, "roses need water", first) == "Roses"
        assert not await reindex_with(store, engine.of(NEW), ignore), "it answers already"
    async with opened(NEW) as store:
        world = world.on(store)
        assert await nearest(world, "baked bread", last) == "Bread"
        assert await numbers(store) == [2], "nothing was made again"
        assert await differences(world) == []


async def test_what_is_committed_meanwhile_is_in_both_indexes_and_the_old_one_answers(
    store: Store, world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = world.node("Gone", content="A comet passes.", position="a1")
    await world.put(*world.nodes(40), gone)
    seen: list[str] = []

    model = engine.of(NEW)
    upsert = model.points.upsert

    async def meanwhile(points: Sequence[IndexPoint]) -> None:
        if len(seen) < 3:
            title = f"kiln{len(seen)}"
            fresh = world.node(title, content=f"About {title} and ferns.", position="a2")
            await world.put(fresh, delete=[] if seen else [gone])
            seen.append(await nearest(world, f"{title} and ferns"))
            assert store.embedder is OLD
            assert await differences(world) == []
        await upsert(points)

    monkeypatch.setattr(model.points, "upsert", meanwhile)
    assert await reindex_with(store, model, ignore)
    assert len(seen) == 3, "the next round has what came in the one before"
    assert store.embedder is NEW
    for title in seen:
        assert await nearest(world, f"{title} and ferns") == title
    assert await nearest(world, "A comet passes.") != "Gone"
    assert await differences(world) == []


async def test_a_cancelled_run_leaves_the_old_index_and_the_next_one_goes_on(
    store: Store, world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await World.create(store, world.pages, world.limits)
    await world.put(*world.nodes(10))
    await other.put(*other.nodes(10))
    model, begun = engine.of(NEW), asyncio.Event()
    upsert, written = model.points.upsert, list[IndexPoint]()
    flush, flushed = model.points.flush, asyncio.Event()

    async def stuck(points: Sequence[IndexPoint]) -> None:
        if written:
            await flushed.wait()
            begun.set()
            await asyncio.Event().wait()
        written.extend(points)
        await upsert(points)

    async def noticed() -> None:
        await flush()
        flushed.set()

    monkeypatch.setattr(reindexing, "_FLUSH_SECONDS", 0.05)
    monkeypatch.setattr(model.points, "flush", noticed)
    monkeypatch.setattr(model.points, "upsert", stuck)
    making = asyncio.create_task(reindex_with(store, model, ignore))
    async with asyncio.timeout(DEADLINE):
        await begun.wait()
    making.cancel()
    await asyncio.gather(making, return_exceptions=True)
    assert store.embedder is OLD
    assert not store.indexes.making.locked()
    last = await world.put(world.node("Roses", **ROSES))
    await has_roses(world)

    again = engine.of(NEW)
    upsert, more = again.points.upsert, list[IndexPoint]()

    async def noted(points: Sequence[IndexPoint]) -> None:
        more.extend(points)
        await upsert(points)

    monkeypatch.setattr(again.points, "upsert", noted)
    assert await reindex_with(store, again, ignore)
    assert len(more) < 21, "what was written is not written again"
    assert await nearest(world, "roses need water", last) == "Roses"
    for each in (world, other):
        assert await differences(each) == []


@pytest.mark.parametrize("how", ["abandoned", "for another model"])
async def test_what_was_begun_is_deleted_if_nobody_goes_on_with_it(
    opened: Open, engine: Engine, pages: PageTokens, limits: ServiceLimits, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async with opened(OLD) as store:
        world = await World.create(store, pages, limits)
        await world.put(*world.nodes(10))
        model = engine.of(NEW)

        async def failing(_points: Sequence[IndexPoint]) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(model.points, "upsert", failing)
        with pytest.raises(ZeroDivisionError):
            await reindex_with(store, model, ignore)
        assert collection_name(NEW.model, 64) in await engine.collections()
    async with opened(OLD) as store:  # it is known after a start, too
        world = world.on(store)
        await world.put(world.node("Roses", **ROSES))
        await store.indexer.current(world.workspace)
        if how == "abandoned":
            assert await store.indexes.abandon()
            assert not await store.indexes.abandon()
            assert await engine.collections() == {collection_name(OLD.model, 256)}
            assert (await numbers(store), (await records(store)).next) == ([1], None)
        else:
            assert await reindex_with(store, engine.of(OTHER), ignore)
            assert await engine.collections() == {collection_name(OTHER.model, 128)}
            assert await numbers(store) == [3], "a number is never used again"
        await has_roses(world)
        waiting = (
            "select count(*) from mirror.outbox o left join mirror.fed_index i"
            " on i.number = o.index_number where i.number is null"
        )
        assert await rows(store, waiting) == [(0,)], "nothing waits for an index that is gone"


async def test_a_search_that_has_begun_ends_on_the_old_index(
    store: Store, world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.put(*world.nodes(10), world.node("Roses", **ROSES))
    await store.indexer.current(world.workspace)
    begun, may_go_on = asyncio.Event(), asyncio.Event()
    nearest_of = store.index.nearest

    async def late(*arguments: object) -> object:
        begun.set()
        await may_go_on.wait()
        return await nearest_of(*arguments)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(store.index, "nearest", late)
    searching = asyncio.create_task(nearest(world, "roses need water"))
    making = asyncio.create_task(reindex_with(store, engine.of(NEW), ignore))
    async with asyncio.timeout(DEADLINE):
        await begun.wait()
        while store.embedder is OLD:  # noqa: ASYNC110 - the switch tells nobody
            await asyncio.sleep(0.01)
        assert not making.done()
        assert collection_name(OLD.model, 256) in await engine.collections()
        await has_roses(world)
        may_go_on.set()
        assert await searching == "Roses"
        assert await making
    assert await engine.collections() == {collection_name(NEW.model, 64)}


async def test_a_cancellation_after_the_switch_has_no_effect(store: Store, world: World, engine: Engine) -> None:
    await world.put(*world.nodes(10), world.node("Roses", **ROSES))
    switched = asyncio.Event()

    async def noticed(_made: object) -> None:
        switched.set()

    store.indexes.when_switched.append(noticed)
    with store.current.in_use():
        making = asyncio.create_task(reindex_with(store, engine.of(NEW), ignore))
        async with asyncio.timeout(DEADLINE):
            await switched.wait()
        await cancel_and_wait([making])
        assert making.result(), "the new index answers, so it is no failure"
    async with asyncio.timeout(DEADLINE):
        while len(await engine.collections()) > 1:  # noqa: ASYNC110 - the background tells nobody
            await asyncio.sleep(0.01)
    assert store.embedder is NEW
    await has_roses(world)


async def test_the_old_index_is_used_and_fed_while_the_answer_to_the_switch_is_lost(
    store: Store, world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.put(*world.nodes(10))

    async def lost(_made: object) -> None:
        raise DatabaseUnavailableError("PostgreSQL went away behind the commit.")

    with monkeypatch.context() as patch:
        patch.setattr(store.indexes, "answer_with", lost)
        with pytest.raises(DatabaseUnavailableError):
            await reindex_with(store, engine.of(NEW), ignore)
    await store.indexes.delete_retired()
    assert not await store.indexes.abandon()
    await world.put(world.node("Roses", **ROSES))
    assert store.embedder is OLD
    await has_roses(world)
    await reindex_with(store, engine.of(NEW), ignore)
    assert store.embedder is NEW
    assert await engine.collections() == {collection_name(NEW.model, 64)}
    await has_roses(world)


async def test_workspaces_that_come_go_or_are_rebuilt_meanwhile_are_whole_or_gone(
    store: Store, world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.put(*world.nodes(10), world.node("Roses", **ROSES))
    leaving = await World.create(store, world.pages, world.limits, "leaving")
    await leaving.put(*leaving.nodes(5))
    model, come = engine.of(NEW), list[World]()
    flush = model.points.flush

    async def meanwhile() -> None:
        await flush()
        if not come:
            come.append(await World.create(store, world.pages, world.limits))
            await come[0].put(come[0].node("Roses", **ROSES))
            await WorkspaceOperations(store, world.pages, world.limits).delete_workspace(
                workspace_service_pb2.DeleteWorkspaceRequest(workspace="leaving", confirm_name="leaving")
            )
            await store.rebuild(world.workspace)

    monkeypatch.setattr(model.points, "flush", meanwhile)
    assert await reindex_with(store, model, ignore)
    for each, count in ((world, 11), (come[0], 1)):
        await has_roses(each)
        assert await store.index.count(each.workspace) == count, "no point of rows that went is left"
    assert await store.index.count(leaving.workspace) == 0


async def test_what_the_old_index_had_in_hand_at_the_switch_is_counted_by_the_new_one(
    opened: Open, engine: Engine, pages: PageTokens, limits: ServiceLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = WordllamaEmbedder()
    begun, may_go_on = asyncio.Event(), asyncio.Event()
    embed = old.embed

    async def late(texts: Sequence[str]) -> Vectors:
        begun.set()
        await may_go_on.wait()
        return await embed(texts)

    async with opened(old) as store:
        world = await World.create(store, pages, limits)
        await store.indexer.stop()
        monkeypatch.setattr(old, "embed", late)
        await world.put(*world.nodes(10), world.node("Roses", **ROSES))
        drained = asyncio.create_task(store.index_rows(world.workspace))
        async with asyncio.timeout(DEADLINE):
            await begun.wait()
        assert await reindex_with(store, engine.of(NEW), ignore)
        may_go_on.set()
        await drained
        await has_roses(world)
