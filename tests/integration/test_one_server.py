"""Only one server works on a data folder, with any stores; the next one can start once it has ended."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from crash.service import Service, start
from forked import run
from integration.calls import Calls
from memotree_storage.embedded.lock import LOCK_FILE
from memotree_storage.embedded.qdrant import EmbeddedQdrant
from memotree_storage.errors import MemoTreeError
from memotree_storage.model.node import new_id
from memotree_storage.postgres import ownership as database_ownership
from memotree_storage.postgres.database import Connection, Database
from memotree_storage.postgres.ownership import DatabaseInUseError, DatabaseOwnership
from memotree_storage.postgres.reach import DatabaseUnavailableError
from psycopg.conninfo import conninfo_to_dict

from memotree.composition import compose
from memotree.server.announcement import read_announcement
from memotree.settings import load_settings

pytestmark = pytest.mark.requirement("STORE-2", "STORE-6")


@pytest.fixture(scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, str]]:
    """The settings for a server on an external Qdrant."""
    qdrant = EmbeddedQdrant(tmp_path_factory.mktemp("engine"))
    try:
        endpoint = await qdrant.start()
        yield {"MEMOTREE_QDRANT_URL": endpoint.url, "MEMOTREE_QDRANT_API_KEY": endpoint.api_key or ""}
    finally:
        await qdrant.stop()


@pytest.fixture
def shared(engine: dict[str, str], database_url: str) -> dict[str, str]:
    """The settings of a deployment whose PostgreSQL and Qdrant both have a URL."""
    named = {name: quote(str(value), safe="") for name, value in conninfo_to_dict(database_url).items()}
    url = f"postgresql://{named.pop('user')}@/{named.pop('dbname')}?{'&'.join(map('='.join, named.items()))}"
    return {**engine, "MEMOTREE_POSTGRES_URL": url}


@pytest.fixture
async def server(tmp_path: Path, shared: dict[str, str]) -> AsyncIterator[Service]:
    """A server on external stores, without child processes."""
    service = await start(tmp_path / "data", tmp_path / "first.log", environment=shared)
    assert service.children() == {}
    try:
        yield service
    finally:
        service.kill()


async def answers(service: Service) -> str:
    """Make a workspace, and return its id."""
    async with service.channel() as channel:
        return (await Calls(channel, f"w-{new_id()}").begin()).workspace


async def refusal(data: Path, settings: Mapping[str, str]) -> str:
    """What is said about the start of a server that is refused."""
    given = {name.removeprefix("MEMOTREE_").lower(): value for name, value in settings.items()}
    with pytest.raises(MemoTreeError) as refused:
        async with compose(load_settings(data_folder=data, **given)):
            pass
    return refused.value.message


async def command(*arguments: str) -> tuple[int, str]:
    """Run ``memotree``; return the exit status and its output in one line."""
    status, told = await asyncio.to_thread(run, *arguments)
    return status, " ".join(told.split())


async def test_a_second_server_on_the_data_folder_is_refused_and_the_error_names_the_first(
    server: Service, shared: dict[str, str]
) -> None:
    expected = f"in use by process {server.pid}; stop that server"
    for stores, settings in {"of others": shared, "embedded": {}}.items():
        assert f"The data folder {server.data} is {expected}" in await refusal(server.data, settings), stores
    status, told = await command("serve", "--data", str(server.data), "--port", "0")
    assert status != 0
    assert expected in told
    assert "Traceback" not in told
    found = read_announcement(server.data)
    assert found is not None
    assert (found.pid, found.address) == (server.pid, server.address)
    status, told = await command("verify", "--address", server.address, "--workspace", await answers(server))
    assert status == 0, told


@pytest.mark.requirement("STORE-8")
async def test_a_killed_server_leaves_the_data_folder_and_the_database_free(
    server: Service, tmp_path: Path, shared: dict[str, str]
) -> None:
    workspace = await answers(server)
    note = (server.data / LOCK_FILE).read_text()
    assert note.startswith(f"{server.pid}\n")
    server.kill()
    assert (server.data / LOCK_FILE).read_text() == note  # it names an ended process, which blocks no start
    moved = tmp_path / "moved"
    server.data.rename(moved)
    again = await start(moved, tmp_path / "second.log", environment=shared)  # the id of a folder moves with it
    try:
        status, told = await command("verify", "--address", again.address, "--workspace", workspace)
        assert status == 0, told
        assert await again.stop() == 0
    finally:
        again.kill()


@pytest.mark.requirement("STORE-8")
async def test_a_server_with_another_data_folder_is_refused_by_the_database(
    server: Service, tmp_path: Path, shared: dict[str, str]
) -> None:
    other = tmp_path / "other"
    told = await refusal(other, shared)
    assert f"belongs to the data folder {server.data}, not to {other}; two folders would delete" in told
    assert "Stop that server" in told
    assert await answers(server)
    assert await server.stop() == 0
    told = await refusal(other, shared)  # no server runs now, but the rows are of the first one
    assert f"belongs to the data folder {server.data}, not to {other}" in told
    way_out = told.partition("make this one its owner with `echo ")[2].partition("`")[0]
    folder_id, _, path = way_out.partition(" > ")
    await asyncio.to_thread(Path(path).write_text, f"{folder_id}\n")
    owner = await start(other, tmp_path / "second.log", environment=shared)
    try:
        assert await answers(owner)
    finally:
        owner.kill()


async def cannot_acquire(ownership: DatabaseOwnership) -> None:
    """Check that another one has the database, without patience with one that is just ending."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database_ownership, "_PATIENCE", 0)
        with pytest.raises(DatabaseInUseError):
            await ownership.acquire()


@pytest.mark.requirement("STORE-8")
async def test_after_an_outage_a_server_uses_the_database_only_if_no_other_has_taken_it(
    tmp_path: Path, database_url: str
) -> None:
    """The server of a copy of the folder has the same id, so only the lock in the database tells them apart."""
    owner, copy = (DatabaseOwnership(database_url, tmp_path) for _ in range(2))
    await owner.acquire()
    database = Database(database_url, min_size=1, max_size=2, after_outage=owner.hold_again)
    await database.open()
    try:
        for taken in (True, False):
            await _end_other_connections(database_url)
            if taken:
                await copy.acquire()
            with pytest.raises(DatabaseUnavailableError):
                async with database.connection() as conn:
                    await conn.execute("select 1")
            if taken:
                for _ in range(2):
                    with pytest.raises(DatabaseInUseError, match="during an outage"):
                        async with database.connection():
                            pass
                await copy.release()
            async with database.connection() as conn:
                await conn.execute("select 1")
            await cannot_acquire(copy)
    finally:
        await database.close()
        await owner.release()


@pytest.mark.requirement("STORE-8")
async def test_a_connection_that_answers_nothing_is_given_up(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a network drops its packets: calls would wait for it until the system gives up."""
    monkeypatch.setattr(database_ownership, "_ANSWER", 0.2)
    owner = DatabaseOwnership(database_url, tmp_path)
    await owner.acquire()
    silent = owner._conn
    assert silent is not None
    monkeypatch.setattr(silent, "execute", lambda _: asyncio.Event().wait())
    try:
        await owner.hold_again()
        assert silent.closed
        assert owner._conn is not silent
        await cannot_acquire(DatabaseOwnership(database_url, tmp_path))
    finally:
        await owner.release()


@pytest.mark.requirement("STORE-8")
@pytest.mark.parametrize("how", ["cancelled", "released"])
async def test_an_owner_that_leaves_while_it_takes_the_lock_again_leaves_no_connection(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It could have the lock, and then this server would be the other one that has taken the database."""
    owner = DatabaseOwnership(database_url, tmp_path)
    await owner.acquire()
    lock, locked, may_go_on = database_ownership._lock, asyncio.Event(), asyncio.Event()

    async def slow(conn: Connection, patience: float) -> bool:
        found = await lock(conn, patience)
        locked.set()
        await may_go_on.wait()
        return found

    monkeypatch.setattr(database_ownership, "_lock", slow)
    await _end_other_connections(database_url)
    taking = asyncio.create_task(owner.hold_again())
    async with asyncio.timeout(60):
        await locked.wait()
    if how == "cancelled":
        taking.cancel()
        await asyncio.wait([taking])
    await owner.release()
    may_go_on.set()
    await asyncio.wait([taking])
    monkeypatch.undo()
    another = DatabaseOwnership(database_url, tmp_path)
    await another.acquire()
    await another.release()


async def _end_other_connections(database_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as conn:
        await conn.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"
        )
