"""Real stores for integration tests: one PostgreSQL and one Qdrant engine per worker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path

import builtin_weights  # noqa: F401 - it is enough that it is imported
import grpc
import pytest
from databases import new_database
from integration.prepared import prepare
from integration.pushes import OpenAgain
from integration.sides import Sides
from integration.wires import PAGE_KEY, UNBOUNDED, Wire
from integration.worlds import World
from memotree_storage.embedded.qdrant import EmbeddedQdrant
from memotree_storage.maintenance.background import BackgroundMaintenance
from memotree_storage.postgres.database import Database
from memotree_storage.qdrant.client import connect
from memotree_storage.qdrant.index import QdrantIndex
from memotree_storage.store import Store

from memotree.canvas import NodeOperations, ViewOperations
from memotree.canvas.conflict_resolution import ConflictResolution
from memotree.history import HistoryOperations
from memotree.models.builtin import WordllamaEmbedder
from memotree.request.limits import ServiceLimits
from memotree.request.pages import PageTokens
from memotree.server.app import Server
from memotree.sessions import SessionOperations
from memotree.settings import Settings
from memotree.v1 import history_service_pb2
from memotree.workspaces import WorkspaceOperations


@pytest.fixture(scope="session")
def embedder() -> WordllamaEmbedder:
    """The built-in embedding."""
    return WordllamaEmbedder()


@pytest.fixture(scope="session")
async def shared_index(
    tmp_path_factory: pytest.TempPathFactory, embedder: WordllamaEmbedder
) -> AsyncIterator[QdrantIndex]:
    """The embedded engine; tests share its collection, and each uses workspaces of its own."""
    engine = EmbeddedQdrant(tmp_path_factory.mktemp("engine"))
    async with AsyncExitStack() as cleanup:
        endpoint = await engine.start()
        cleanup.push_async_callback(engine.stop)
        client = connect(endpoint.url, endpoint.api_key)
        cleanup.push_async_callback(client.close)
        index = QdrantIndex(client, model=embedder.model, dimensions=embedder.dimensions, flush=engine.flush)
        await index.prepare()
        yield index


async def _wait_for_ever(_: BackgroundMaintenance) -> None:
    await asyncio.Event().wait()


@asynccontextmanager
async def _opened(data: Path, url: str, index: QdrantIndex, embedder: WordllamaEmbedder) -> AsyncIterator[Store]:
    # A copy, since a test may replace methods of its store's index: the indexer of another store must not call them.
    store = Store(data, Database(url), copy(index), embedder)
    with pytest.MonkeyPatch.context() as patch:
        # Its first round may come at any time after the start, and removes lines that a test has damaged.
        patch.setattr(BackgroundMaintenance, "_tidy_often", _wait_for_ever)
        await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def store(
    tmp_path: Path, database_url: str, shared_index: QdrantIndex, embedder: WordllamaEmbedder
) -> AsyncIterator[Store]:
    """An empty store on real servers that no other test uses."""
    async with _opened(tmp_path / "data", database_url, shared_index, embedder) as opened:
        yield opened


@pytest.fixture(scope="session")
async def shared_store(
    tmp_path_factory: pytest.TempPathFactory,
    postgres: str,
    template: str,
    shared_index: QdrantIndex,
    embedder: WordllamaEmbedder,
) -> AsyncIterator[Store]:
    """The store of all tests that change only a workspace of their own."""
    async with (
        new_database(postgres, template) as url,
        _opened(tmp_path_factory.mktemp("shared") / "data", url, shared_index, embedder) as opened,
    ):
        yield opened


@pytest.fixture
def world_store(request: pytest.FixtureRequest) -> Store:
    """The shared store; one of its own for a test that names it or its database, or is marked ``own_store``."""
    own = request.node.get_closest_marker("own_store") or {"store", "database_url"} & {*request.fixturenames}
    found: Store = request.getfixturevalue("store" if own else "shared_store")
    return found


@pytest.fixture
def pages() -> PageTokens:
    """Makes and reads page tokens."""
    return PageTokens()


@pytest.fixture
def limits() -> ServiceLimits:
    """The default limits."""
    return ServiceLimits()


@pytest.fixture
async def world(world_store: Store, pages: PageTokens, limits: ServiceLimits) -> World:
    """A new workspace with an archive."""
    return await World.create(world_store, pages, limits)


@pytest.fixture(scope="session")
async def wire_server(
    tmp_path_factory: pytest.TempPathFactory,
    postgres: str,
    template: str,
    shared_index: QdrantIndex,
    embedder: WordllamaEmbedder,
) -> AsyncIterator[Server]:
    """A server on loopback over real stores, for all tests that call it over gRPC."""
    folder = tmp_path_factory.mktemp("wire")
    async with new_database(postgres, template) as url, _opened(folder, url, shared_index, embedder) as store:
        pages, limits = PageTokens(PAGE_KEY), ServiceLimits()
        operations = {
            "WorkspaceService": WorkspaceOperations(store, pages, limits),
            "SessionService": SessionOperations(store, pages, limits, resolver=ConflictResolution(store, limits)),
            "NodeService": NodeOperations(store, pages, limits),
            "ViewService": ViewOperations(store, pages),
            "HistoryService": HistoryOperations(store, pages, limits),
        }
        async with Server(Settings(data_folder=folder, port=0), operations) as server:
            yield server


@pytest.fixture
async def wire(wire_server: Server) -> AsyncIterator[Wire]:
    """A connection with a workspace and a session of the test's own."""
    async with grpc.aio.insecure_channel(wire_server.address, options=UNBOUNDED) as channel:
        yield await Wire.begin(channel)


@pytest.fixture(scope="session")
async def prepared(wire_server: Server) -> AsyncIterator[Wire]:
    """A workspace that no test may change."""
    async with grpc.aio.insecure_channel(wire_server.address, options=UNBOUNDED) as channel:
        yield await prepare(channel)


@pytest.fixture
async def untouched(prepared: Wire) -> AsyncIterator[Wire]:
    """The prepared workspace; checks that the test leaves it unchanged."""
    before = await prepared.snapshot()
    yield prepared
    assert await prepared.snapshot() == before


@pytest.fixture
def history(world: World) -> HistoryOperations:
    """The history of the world."""
    return HistoryOperations(world.store, world.pages, world.limits)


@pytest.fixture
def sides(world: World, history: HistoryOperations) -> Sides:
    """The world with calls that bring changes from one branch into another."""
    return Sides(world, history)


@pytest.fixture
def again(world: World, database_url: str) -> OpenAgain:
    """Opens the store of the world again."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Store]:
        store = Store(world.store.data_folder, Database(database_url), world.store.index, world.store.embedder)
        try:
            await store.open()
            yield store
        finally:
            await store.close()

    return opened


@pytest.fixture
async def lived_in(world: World) -> World:
    """A workspace with branches, tags, moves, deletions, a file that is no entry, and a merge made with git."""
    history = HistoryOperations(world.store, world.pages, world.limits)
    top, other, third = world.nodes(3)
    below = world.node("Below", parent=top)
    first = await world.put(top, other, below, tag="v1")
    await history.create_branch(
        history_service_pb2.CreateBranchRequest(workspace=world.workspace, name="side", revision=first)
    )
    await world.put(replace(top, title="Top"), replace(below, parent_id=other.id))
    await world.put(third, delete=[below])
    await world.put(replace(top, summary="On the side."), branch="side")
    await world.put(below, delete=[third])
    return world
