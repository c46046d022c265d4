"""A server on a PostgreSQL of the machine's own, reached by its URL over TCP, in the place of the embedded one."""

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import psycopg
import pytest
from crash.service import DEADLINE, Service, start
from databases import system_binaries
from integration.calls import Calls
from ports import kept_ports
from psycopg.conninfo import make_conninfo

from memotree.v1 import maintenance_service_pb2 as maintenance

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.requirement("STORE-6"),
    pytest.mark.skipif(system_binaries() is None, reason="this machine has no PostgreSQL server"),
]

ROLE: Final = "ada"
PASSWORD: Final = "a secret: /?#[]@"  # noqa: S105 - of a server that lives as long as this test
DATABASE: Final = "knowledge"
UNPRIVILEGED: Final = "nobody"


@dataclass(frozen=True, slots=True)
class OwnServer:
    """A running PostgreSQL server with an empty database, listening on loopback only.

    Attributes:
        folder: The folder with its cluster and its log.
        port: Its port.
    """

    folder: Path
    port: int

    @property
    def url(self) -> str:
        """The URL of its database."""
        return f"postgresql://{ROLE}:{quote(PASSWORD, safe='')}@127.0.0.1:{self.port}/{DATABASE}"

    def conninfo(self, database: str) -> str:
        """The conninfo of one of its databases."""
        return make_conninfo(host="127.0.0.1", port=self.port, dbname=database, user=ROLE, password=PASSWORD)

    async def ask(self, statement: str, database: str = DATABASE) -> Any:
        """The first value that a statement returns; ``None`` if it returns no rows."""
        conninfo = self.conninfo(database)
        async with await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as connection:
            cursor = await connection.execute(statement.encode())
            row = await cursor.fetchone() if cursor.description else None
            return row[0] if row else None


def account() -> dict[str, Any]:
    """The arguments of `subprocess` that run a program as an unprivileged user if this process is root's."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam(UNPRIVILEGED)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def make_cluster(binaries: Path, folder: Path) -> None:
    """Make a cluster whose superuser is ``ROLE``, who needs ``PASSWORD``."""
    secret = folder / "password"
    secret.write_text(PASSWORD, encoding="utf-8")
    if os.geteuid() == 0:
        user = pwd.getpwnam(UNPRIVILEGED)
        for path in (folder, secret):
            os.chown(path, user.pw_uid, user.pw_gid)
    command = [
        *(str(binaries / "initdb"), f"--pgdata={folder / 'cluster'}", f"--username={ROLE}", f"--pwfile={secret}"),
        *("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8", "--no-instructions", "--no-sync"),
    ]
    subprocess.run(command, check=True, capture_output=True, cwd=folder, **account())  # noqa: S603 - found by us


def begin(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """Run a server whose output goes to the file ``log``."""
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, **account())  # noqa: S603 - found by us


async def answers(server: OwnServer, process: subprocess.Popen[bytes]) -> None:
    """Wait until a server answers, and make its database."""
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                await server.ask(f"create database {DATABASE}", "postgres")
            except psycopg.OperationalError:
                assert process.poll() is None, (server.folder / "log").read_text()
                await asyncio.sleep(0.05)
            else:
                return


@pytest.fixture
async def own() -> AsyncIterator[OwnServer]:
    """A PostgreSQL server of the machine, in a temporary folder that an unprivileged user may enter."""
    binaries = system_binaries()
    assert binaries is not None
    folder = Path(tempfile.mkdtemp(prefix="own-postgres-"))
    try:
        await asyncio.to_thread(make_cluster, binaries, folder)
        server = OwnServer(folder, kept_ports(1)[0])
        options = {"listen_addresses": "127.0.0.1", "port": server.port, "unix_socket_directories": "", "fsync": "off"}
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        command = [str(binaries / "postgres"), "-D", str(folder / "cluster"), *settings]
        process = await asyncio.to_thread(begin, command, folder)
        try:
            await answers(server, process)
            yield server
        finally:
            process.send_signal(signal.SIGINT)
            await asyncio.to_thread(process.wait, DEADLINE)
    finally:
        shutil.rmtree(folder)


def check_that_no_postgres_is_embedded(service: Service) -> None:
    children = service.children()
    assert [text for text in children.values() if "postgres" in text] == []
    assert any("qdrant" in text for text in children.values()), "the engine has no URL, so it is embedded"
    assert not (service.data / "postgres").exists()


async def differences(calls: Calls) -> list[maintenance.Difference]:
    """What a verification finds wrong."""
    request = maintenance.VerifyWorkspaceRequest(workspace=calls.workspace)
    events = [event async for event in calls.maintenance.VerifyWorkspace(request)]
    assert events, "it tells its progress"
    return [event.difference for event in events if event.HasField("difference")]


async def test_a_server_with_a_url_works_on_that_postgres_and_starts_none(own: OwnServer, tmp_path: Path) -> None:
    data, log = tmp_path / "data", tmp_path / "server.log"
    environment = {"MEMOTREE_POSTGRES_URL": own.url}
    service = await start(data, log, environment=environment)
    try:
        async with service.channel() as channel:
            calls = await Calls(channel, "garden").begin()
            node_id = await calls.create("The plums are ripe in September.")
            commit_id = await calls.commit("Note the harvest")
            assert await calls.search("plums") == [node_id]
            staged = await calls.create("Prune the plum tree after the harvest.")
            status = await calls.maintenance.GetStatus(maintenance.GetStatusRequest())
            assert {one.name: one.embedded for one in status.stores} == {
                "git": True,
                "postgres": False,
                "qdrant": True,
            }
        check_that_no_postgres_is_embedded(service)
        assert await own.ask("select count(*) from mirror.commit") == 3, "the workspace's first one, and two of ours"
        assert await service.stop() == 0
        assert await own.ask("select count(*) from work.staged") == 1, "its server stops, and this one does not"

        service = await start(data, log, environment=environment)
        async with service.channel() as channel:
            again = Calls(channel, "garden")
            again.session = calls.session
            assert await again.search("plums") == [node_id]
            assert await again.read(staged, again.session) == "Prune the plum tree after the harvest."
            assert await again.commit("Note the pruning") != commit_id
            assert sorted(await again.search("plum")) == sorted([node_id, staged])
            assert await differences(again) == []
        check_that_no_postgres_is_embedded(service)
        assert await service.stop() == 0
    finally:
        service.kill()
