"""Only one server works on a data folder, with any stores; the next one can start once it has ended."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from crash.service import ServerEndedError, Service, start
from integration.calls import Calls
from memotree_storage.embedded.lock import LOCK_FILE
from memotree_storage.embedded.qdrant import EmbeddedQdrant
from memotree_storage.model.node import new_id
from memotree_storage.postgres import ownership
from memotree_storage.postgres.database import Connection, Database
from memotree_storage.postgres.ownership import DatabaseInUseError, DatabaseOwnership
from memotree_storage.postgres.reach import DatabaseUnavailableError
from psycopg.conninfo import conninfo_to_dict

from memotree.server.announcement import read_announcement

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


async def answers(service: Service) -> bool:
    async with service.channel() as channel:
        return bool((await Calls(channel, f"w-{new_id()}").begin()).session)


@pytest.mark.parametrize("stores", ["of others", "embedded"])
async def test_a_second_server_on_the_data_folder_is_refused_and_the_error_names_the_first(
    server: Service, tmp_path: Path, shared: dict[str, str], stores: str
) -> None:
    with pytest.raises(ServerEndedError) as refused:
        await start(server.data, tmp_path / "second.log", environment=shared if stores == "of others" else None)
    assert f"The data folder {server.data} is in use by process {server.pid}; stop that server" in str(refused.value)
    found = read_announcement(server.data)
    assert found is not None
    assert (found.pid, found.address) == (server.pid, server.address)
    assert await answers(server)


async def test_the_command_line_names_the_server_on_the_folder_and_gives_advice(
    server: Service, shared: dict[str, str]
) -> None:
    status, told = await cli(shared, "serve", "--data", str(server.data), "--port", "0")
    assert status != 0
    assert f"in use by process {server.pid}; stop that server" in " ".join(told.split())
    assert "Traceback" not in told


async def test_a_killed_server_leaves_the_data_folder_free(
    server: Service, tmp_path: Path, shared: dict[str, str]
) -> None:
    note = (server.data / LOCK_FILE).read_text()
    assert note.startswith(f"{server.pid}\n")
    server.kill()
    assert (server.data / LOCK_FILE).read_text() == note  # it names an ended process, which blocks no start
    second = await start(server.data, tmp_path / "second.log", environment=shared)
    try:
        assert await answers(second)
    finally:
        assert await second.stop() == 0
    third = await start(server.data, tmp_path / "third.log", environment=shared)
    third.kill()


async def test_verify_uses_the_running_server_of_the_folder(server: Service, shared: dict[str, str]) -> None:
    async with server.channel() as channel:
        workspace = (await Calls(channel, f"w-{new_id()}").begin()).workspace
    status, told = await cli(shared, "verify", "--address", server.address, "--workspace", workspace)
    assert status == 0, told


@pytest.mark.requirement("STORE-8")
async def test_after_an_outage_a_server_uses_the_database_only_if_nobody_has_taken_it(
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
            with pytest.raises(DatabaseInUseError):
                await copy.acquire()
    finally:
        await database.close()
        await owner.release()


@pytest.mark.requirement("STORE-8")
async def test_a_connection_that_answers_nothing_is_given_up(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a network drops its packets: calls would wait for it until the system gives up."""
    monkeypatch.setattr(ownership, "_ANSWER", 0.2)
    owner = DatabaseOwnership(database_url, tmp_path)
    await owner.acquire()
    silent = owner._conn
    assert silent is not None
    monkeypatch.setattr(silent, "execute", lambda _: asyncio.Event().wait())
    try:
        await owner.hold_again()
        assert silent.closed
        assert owner._conn is not silent
        with pytest.raises(DatabaseInUseError):
            await DatabaseOwnership(database_url, tmp_path).acquire()
    finally:
        await owner.release()


@pytest.mark.requirement("STORE-8")
@pytest.mark.parametrize("how", ["cancelled", "released"])
async def test_whoever_leaves_while_the_lock_is_taken_again_leaves_no_connection(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It could have the lock, and then this server would be the other one that has taken the database."""
    owner = DatabaseOwnership(database_url, tmp_path)
    await owner.acquire()
    lock, locked, may_go_on = ownership._lock, asyncio.Event(), asyncio.Event()

    async def slow(conn: Connection, patience: float) -> bool:
        found = await lock(conn, patience)
        locked.set()
        await may_go_on.wait()
        return found

    monkeypatch.setattr(ownership, "_lock", slow)
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


@pytest.mark.requirement("STORE-8")
async def test_a_server_with_another_data_folder_is_refused_by_the_database(
    server: Service, tmp_path: Path, shared: dict[str, str]
) -> None:
    other = tmp_path / "other"
    told = await refused(other, tmp_path / "second.log", shared)
    assert f"belongs to the data folder {server.data}, not to {other}; two folders would delete" in told
    assert "Stop that server" in told
    assert await answers(server)
    assert await server.stop() == 0
    told = await refused(other, tmp_path / "third.log", shared)  # nobody runs now, but the rows are of the first one
    assert f"belongs to the data folder {server.data}, not to {other}" in told
    way_out = told.partition("make this one its owner with `echo ")[2].partition("`")[0]
    folder_id, _, path = way_out.partition(" > ")
    await asyncio.to_thread(Path(path).write_text, f"{folder_id}\n")
    owner = await start(other, tmp_path / "fourth.log", environment=shared)
    assert await answers(owner)
    assert await owner.stop() == 0


@pytest.mark.requirement("STORE-8")
async def test_a_killed_server_leaves_the_database_free(
    server: Service, tmp_path: Path, shared: dict[str, str]
) -> None:
    async with server.channel() as channel:
        workspace = (await Calls(channel, f"w-{new_id()}").begin()).workspace
    server.kill()
    moved = tmp_path / "moved"
    server.data.rename(moved)
    again = await start(moved, tmp_path / "second.log", environment=shared)  # the id of a folder moves with it
    try:
        status, told = await cli(shared, "verify", "--address", again.address, "--workspace", workspace)
        assert status == 0, told
    finally:
        again.kill()


async def refused(data: Path, log: Path, settings: Mapping[str, str]) -> str:
    """Start a server that is refused; return what it says."""
    with pytest.raises(ServerEndedError) as error:
        await start(data, log, environment=settings)
    return str(error.value)


async def cli(settings: Mapping[str, str], *arguments: str) -> tuple[int, str]:
    """Run ``memotree``; return the exit code and its output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "memotree.cli", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, **settings, "COLUMNS": "200"},
    )
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, output.decode(errors="replace")
