"""The embedded PostgreSQL, with the bundled binaries and with the system's."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
from integration.embedded.programs import Run, alive, exists, mode, read, until
from memotree_storage.embedded import cluster as files
from memotree_storage.embedded.child import ChildStartError
from memotree_storage.embedded.lock import DataFolderInUseError
from memotree_storage.embedded.postgres import EmbeddedPostgres

pytestmark = pytest.mark.requirement("STORE-6")


SYSTEM = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
needs_system = pytest.mark.skipif(not SYSTEM, reason="the system has no PostgreSQL of its own")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as another user")

SERVE = """
import asyncio, sys
from pathlib import Path
from memotree_storage.embedded.postgres import EmbeddedPostgres
async def main():
    server = EmbeddedPostgres(Path(sys.argv[1]))
    url = await server.start()
    print(server.supervisor.pid, url, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


async def ask(url: str, statement: str) -> object:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        cursor = await connection.execute(statement.encode())
        row = await cursor.fetchone() if cursor.description else None
        return row[0] if row else None


async def answer_of(server: EmbeddedPostgres, statement: str = "SELECT 1") -> object:
    """Start a server, ask it, and stop it."""
    try:
        return await ask(await server.start(), statement)
    finally:
        await server.stop()


BINARIES = ["bundled", pytest.param("system", marks=needs_system)]


def chosen(request: pytest.FixtureRequest) -> Path | None:
    return None if request.param == "bundled" else SYSTEM[-1].parent


binaries = pytest.fixture(params=BINARIES)(chosen)


async def test_it_starts_serves_and_starts_again_with_its_data(tmp_path: Path, binaries: Path | None) -> None:
    server = EmbeddedPostgres(tmp_path / "postgres", binaries=binaries)
    url = await server.start()
    assert await server.start() == url
    await ask(url, "CREATE TABLE kept AS SELECT 'größer 知识' AS text")
    pid = server.supervisor.pid
    await server.stop()
    assert pid is not None
    assert not alive(pid)
    assert not exists(Path(str(psycopg.conninfo.conninfo_to_dict(url)["host"])))
    await server.stop()
    again = EmbeddedPostgres(tmp_path / "postgres", binaries=binaries)
    assert await answer_of(again, "SELECT text FROM kept") == "größer 知识"


@pytest.fixture(scope="module", params=BINARIES)
async def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[EmbeddedPostgres]:
    """A server with a new cluster; tests add tables to it and may kill it."""
    server = EmbeddedPostgres(tmp_path_factory.mktemp("served") / "postgres", binaries=chosen(request))
    await server.start()
    yield server
    await server.stop()


async def test_it_is_durable_private_and_sorts_by_code_point(served: EmbeddedPostgres) -> None:
    url = await served.start()
    for setting, value in (
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("full_page_writes", "on"),
        ("data_checksums", "on"),
        ("listen_addresses", ""),
        ("server_encoding", "UTF8"),
        ("TimeZone", "UTC"),
    ):
        assert await ask(url, f"SHOW {setting}") == value, setting
    assert await ask(url, "SELECT string_agg(t, '' ORDER BY t) FROM unnest('{a,B,b,A,é,z}'::text[]) t") == "ABabzé"
    assert await ask(url, "SELECT upper('é')") == "É"
    sockets = Path(str(psycopg.conninfo.conninfo_to_dict(url)["host"]))
    assert mode(sockets) == 0o700
    assert mode(served.cluster) == 0o700


def size(folder: Path) -> int:
    """The bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


async def test_a_new_cluster_is_small_and_its_log_stays_so(served: EmbeddedPostgres) -> None:
    url = await served.start()
    # Two databases beside ours that PostgreSQL copies new ones from; there is no third.
    assert await ask(url, "SELECT string_agg(datname, ' ' ORDER BY datname) FROM pg_database") == (
        "memotree template0 template1"
    )
    assert size(served.cluster) < 45 << 20
    await ask(url, "CREATE TABLE filled (text text)")
    await ask(url, "INSERT INTO filled SELECT repeat('x', 1000) FROM generate_series(1, 60000)")
    assert await ask(url, "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn > 60000000") is True
    await ask(url, "CHECKPOINT")
    assert size(served.cluster / "pg_wal") <= 12 << 20


async def test_a_cluster_of_an_earlier_version_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = files.initdb_arguments
    monkeypatch.setattr(
        files,
        "initdb_arguments",
        lambda *places: [part for part in now(*places) if not part.startswith("--wal-segsize")],
    )
    before = EmbeddedPostgres(tmp_path / "postgres", settings={"min_wal_size": "80MB", "max_wal_size": "1GB"})
    url = await before.start()
    await ask(url, "CREATE DATABASE postgres")
    await ask(url, "CREATE TABLE kept AS SELECT 7 AS number")
    await before.stop()
    server = EmbeddedPostgres(tmp_path / "postgres")
    assert await answer_of(server, "SELECT current_setting('wal_segment_size') || number FROM kept") == "16MB7"


async def test_a_killed_server_restarts_under_the_same_address(served: EmbeddedPostgres) -> None:
    url = await served.start()
    await ask(url, "CREATE TABLE kept AS SELECT 1 AS number")
    back = asyncio.Event()
    served.supervisor.on_restart(back.set)
    assert served.supervisor.pid is not None
    os.kill(served.supervisor.pid, signal.SIGKILL)
    await asyncio.wait_for(back.wait(), 60)
    assert await ask(url, "SELECT number FROM kept") == 1


async def test_it_ends_with_its_server_and_the_next_one_finds_all_data(tmp_path: Path, run_program: Run) -> None:
    folder = tmp_path / "postgres"
    first = await run_program(SERVE, str(folder))
    pid, url = (await first.line()).split(" ", 1)
    await ask(url, "CREATE TABLE kept AS SELECT 7 AS number")
    with pytest.raises(DataFolderInUseError, match=f"in use by process {first.process.pid}; stop that server"):
        await EmbeddedPostgres(folder).start()
    await first.kill()
    # At once, so that the next start has to handle an orphan that is just ending.
    server = EmbeddedPostgres(folder)
    assert await answer_of(server, "SELECT number FROM kept") == 7
    await until(lambda: not alive(int(pid)), "the orphan is gone")


async def test_a_kill_during_the_creation_of_the_cluster_is_harmless(tmp_path: Path, run_program: Run) -> None:
    folder = tmp_path / "postgres"
    first = await run_program(SERVE, str(folder))
    await until(lambda: list(folder.glob("cluster*/base")), "the cluster is being made")
    await first.kill()
    assert await answer_of(EmbeddedPostgres(folder)) == 1
    assert not list(folder.glob("cluster.unfinished-*"))


async def test_a_cancelled_start_leaves_the_folder_free(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "postgres")
    start = asyncio.create_task(server.start())
    await until(lambda: list((tmp_path / "postgres").glob("cluster*")), "the cluster is being made")
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert await answer_of(server) == 1


async def test_a_stale_file_with_the_id_of_another_process_does_not_block_the_start(
    tmp_path: Path, run_program: Run
) -> None:
    server = EmbeddedPostgres(tmp_path / "postgres")
    await server.start()
    pid_file = server.cluster / "postmaster.pid"
    text = pid_file.read_text()
    await server.stop()
    stranger = await run_program("import signal; print('here', flush=True); signal.pause()")
    await stranger.line()
    pid_file.write_text(text.replace(text.split("\n", 1)[0], str(stranger.process.pid), 1))
    assert await answer_of(server) == 1
    assert stranger.process.returncode is None


async def test_any_folder_name_works(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / f"with space, comma 'quote' and ünïcode{'x' * 120}")
    url = await server.start()
    try:
        assert await ask(url, "SELECT 1") == 1
        sockets = Path(str(psycopg.conninfo.conninfo_to_dict(url)["host"]))
    finally:
        await server.stop()
    assert not exists(sockets)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, unlike pytest's folders."""
    folder = Path("/tmp") / f"memotree-test-{os.getpid()}"  # noqa: S108 - the point is a folder open to all
    folder.mkdir(mode=0o755)
    yield folder
    shutil.rmtree(folder)


@needs_root
async def test_root_closes_the_folder_to_others_and_leaves_postgres_one_capability(open_folder: Path) -> None:
    server = EmbeddedPostgres(open_folder / "postgres")
    url = await server.start()
    try:
        assert await ask(url, "SELECT 1") == 1
        assert mode(open_folder / "postgres") == 0o700
        status = read(f"/proc/{server.supervisor.pid}/status")
        assert int(status.split("CapEff:")[1].split()[0], 16) == 1 << 1  # CAP_DAC_OVERRIDE
    finally:
        await server.stop()


@needs_root
async def test_root_may_use_a_folder_that_others_cannot_enter_and_a_copied_cluster_is_given_to_its_user(
    tmp_path: Path,
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    server = EmbeddedPostgres(closed / "postgres")
    assert await answer_of(server) == 1
    assert server.cluster.stat().st_uid != 0
    copy = EmbeddedPostgres(closed / "copy")
    shutil.copytree(server.cluster, copy.cluster)
    assert copy.cluster.stat().st_uid == 0
    assert await answer_of(copy) == 1


@needs_system
async def test_a_cluster_of_another_version_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "postgres"
    server = EmbeddedPostgres(folder, binaries=SYSTEM[-1].parent)
    await server.start()
    await server.stop()
    with pytest.raises(files.ClusterVersionError, match="was created by PostgreSQL"):
        await EmbeddedPostgres(folder).start()
    assert await answer_of(server) == 1


async def test_a_folder_without_programs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(files.BinariesMissingError, match="name another folder"):
        await EmbeddedPostgres(tmp_path / "postgres", binaries=tmp_path).start()


async def test_a_wrong_setting_is_reported_with_the_servers_words(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "postgres", settings={"shared_buffers": "much"})
    with pytest.raises(ChildStartError, match="shared_buffers"):
        await server.start()
    assert await answer_of(EmbeddedPostgres(tmp_path / "postgres")) == 1
