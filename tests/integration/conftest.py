"""Real stores for integration tests: one PostgreSQL and one Qdrant engine per run, one database and folder per test.

``MEMOTREE_TEST_POSTGRES=system`` runs the same tests on a PostgreSQL of the machine instead of the bundled one.
"""

import os
import re
import secrets
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import psycopg
import pytest
from integration.prepared import prepare
from integration.pushes import OpenAgain
from integration.sides import Sides
from integration.wires import PAGE_KEY, UNBOUNDED, Wire
from integration.worlds import World
from memotree_storage.embedded.postgres import EmbeddedPostgres
from memotree_storage.embedded.qdrant import EmbeddedQdrant
from memotree_storage.postgres.database import Database
from memotree_storage.qdrant.client import connect
from memotree_storage.qdrant.index import QdrantIndex
from memotree_storage.store import Store
from psycopg import sql
from psycopg.conninfo import make_conninfo

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

QUICK = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "4GB",
}
"""Settings without durability, since the data is not needed after the run; crash tests test durability."""

_HAS_STRATEGIES = 15_00_00


def system_binaries() -> Path | None:
    """The folder of the newest PostgreSQL server on the machine, or ``None``."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    config = shutil.which("pg_config")
    if config:
        answer = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=True)  # noqa: S603 - found by us
        found.append(Path(answer.stdout.strip()))
    found += [Path(path).parent for name in ("initdb",) if (path := shutil.which(name))]
    usable = [path for path in found if (path / "initdb").is_file() and (path / "postgres").is_file()]
    return max(usable, key=_version, default=None)


def _version(folder: Path) -> tuple[int, ...]:
    numbers = re.findall(r"\d+", str(folder))
    return tuple(int(number) for number in numbers)


def _chosen_binaries() -> Path | None:
    """The binaries to use in this run; ``None`` for the bundled ones."""
    choice = os.environ.get("MEMOTREE_TEST_POSTGRES", "embedded")
    if choice == "embedded":
        return None
    assert choice == "system", f"MEMOTREE_TEST_POSTGRES is {choice!r}; set it to embedded or system"
    found = system_binaries()
    if found is None:
        pytest.skip("this machine has no PostgreSQL server")
    return found


@pytest.fixture(scope="session")
async def postgres(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The conninfo of a running PostgreSQL."""
    server = EmbeddedPostgres(tmp_path_factory.mktemp("postgres"), binaries=_chosen_binaries(), settings=QUICK)
    try:
        yield await server.start()
    finally:
        await server.stop()


async def make_template(postgres: str) -> str:
    """Make a database with all tables, to be copied, and return its name.

    Copying it takes a quarter of the time that it takes to make the tables and to drop them.
    """
    async with await psycopg.AsyncConnection.connect(postgres, autocommit=True) as conn:
        await conn.execute("create database prepared")
    database = Database(make_conninfo(postgres, dbname="prepared"))
    await database.open()
    await database.close()
    return "prepared"


@pytest.fixture(scope="session")
async def template(postgres: str) -> str:
    """The database that is copied for each test."""
    return await make_template(postgres)


@asynccontextmanager
async def _new_database(postgres: str, template: str) -> AsyncIterator[str]:
    name = f"test_{secrets.token_hex(6)}"
    async with await psycopg.AsyncConnection.connect(postgres, autocommit=True) as conn:
        copied = sql.SQL("create database {} template {}").format(sql.Identifier(name), sql.Identifier(template))
        if conn.info.server_version >= _HAS_STRATEGIES:
            copied += sql.SQL(" strategy file_copy")
        await conn.execute(copied)
        try:
            yield make_conninfo(postgres, dbname=name)
        finally:
            await conn.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture
async def database_url(postgres: str, template: str) -> AsyncIterator[str]:
    """The conninfo of a database that has all tables, without rows, and that no other test uses."""
    async with _new_database(postgres, template) as url:
        yield url


@pytest.fixture
async def empty_database_url(postgres: str) -> AsyncIterator[str]:
    """The conninfo of a database without tables that no other test uses."""
    async with _new_database(postgres, "template0") as url:
        yield url


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


@asynccontextmanager
async def _opened(data: Path, url: str, index: QdrantIndex, embedder: WordllamaEmbedder) -> AsyncIterator[Store]:
    store = Store(data, Database(url), index, embedder)
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
        _new_database(postgres, template) as url,
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
    shared_index: QdrantIndex,
    embedder: WordllamaEmbedder,
) -> AsyncIterator[Server]:
    """A server on loopback over real stores, for all tests that call it over gRPC."""
    folder = tmp_path_factory.mktemp("wire")
    name = f"wire_{secrets.token_hex(6)}"
    async with await psycopg.AsyncConnection.connect(postgres, autocommit=True) as conn:
        await conn.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    store = Store(folder, Database(make_conninfo(postgres, dbname=name)), shared_index, embedder)
    await store.open()
    pages, limits = PageTokens(PAGE_KEY), ServiceLimits()
    operations = {
        "WorkspaceService": WorkspaceOperations(store, pages, limits),
        "SessionService": SessionOperations(store, pages, limits, resolver=ConflictResolution(store, limits)),
        "NodeService": NodeOperations(store, pages, limits),
        "ViewService": ViewOperations(store, pages),
        "HistoryService": HistoryOperations(store, pages, limits),
    }
    try:
        async with Server(Settings(data_folder=folder, port=0), operations) as server:
            yield server
    finally:
        await store.close()


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
