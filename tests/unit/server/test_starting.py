"""A start does not do one thing after the other: the embedded servers start while the rest is still imported."""

import asyncio
import gc
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

import pytest
from memotree_storage.embedded.lock import DataFolderInUseError, DataFolderLock
from memotree_storage.embedded.postgres import EmbeddedPostgres
from memotree_storage.embedded.qdrant import EmbeddedQdrant, QdrantEndpoint

from memotree.server import starting
from memotree.server.embedded import EmbeddedServers
from memotree.server.starting import allow_many_files
from memotree.settings import Settings, load_settings


class FakeServers:
    """Embedded servers that start only when all that is to happen at the same time has begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, together: int) -> None:
        self.told: list[str] = []
        self._begun = 0
        self._together = together
        self._all = asyncio.Event()
        monkeypatch.setattr(EmbeddedPostgres, "start", lambda _: self._start("postgres", "dbname=memotree"))
        monkeypatch.setattr(EmbeddedQdrant, "start", lambda _: self._start("qdrant", QdrantEndpoint("http://[::1]:1")))
        monkeypatch.setattr(EmbeddedPostgres, "stop", lambda _: self._stop("postgres"))
        monkeypatch.setattr(EmbeddedQdrant, "stop", lambda _: self._stop("qdrant"))

    def begin(self) -> None:
        """Count one of the things that happen together."""
        self._begun += 1
        if self._begun == self._together:
            self._all.set()

    async def _start(self, name: str, answer: object) -> object:
        self.begin()
        await self._all.wait()
        self.told.append(f"{name} started")
        return answer

    async def _stop(self, name: str) -> None:
        self.told.append(f"{name} stopped")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(data_folder=tmp_path / "data", port=0)


async def test_both_servers_start_while_the_composition_root_is_imported(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = FakeServers(monkeypatch, together=3)
    loop = asyncio.get_running_loop()
    root = ModuleType(starting.COMPOSITION_ROOT)

    @asynccontextmanager
    async def compose(
        _settings: Settings, embedded: EmbeddedServers, _reread: object
    ) -> AsyncIterator[dict[str, object]]:
        await embedded.postgres()
        await embedded.qdrant()
        servers.told.append("composed")
        yield {}

    def imported(_name: str) -> ModuleType:
        loop.call_soon_threadsafe(servers.begin)  # the servers start only from now on
        asyncio.run_coroutine_threadsafe(servers._all.wait(), loop).result(60)
        assert not gc.isenabled()
        return root

    monkeypatch.setattr(root, "compose", compose, raising=False)
    monkeypatch.setattr(starting, "import_module", imported)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)
    start = starting.Start(lambda: None)  # type: ignore[arg-type,return-value] # no other server is made
    async with start.compose(settings) as operations:
        assert operations == {}
        assert gc.isenabled()
    assert sorted(servers.told[:2]) == ["postgres started", "qdrant started"]
    assert servers.told[2:] == ["composed", "qdrant stopped", "postgres stopped"]


async def test_a_failed_server_ends_the_other_one_and_gives_the_folder_back(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = FakeServers(monkeypatch, together=3)  # the third never comes: PostgreSQL is still starting

    async def fail(_: EmbeddedQdrant) -> QdrantEndpoint:
        raise OSError("no port is free")

    monkeypatch.setattr(EmbeddedQdrant, "start", fail)
    with pytest.raises(OSError, match="no port"):
        async with EmbeddedServers(settings) as embedded:
            await embedded.qdrant()
    assert servers.told == ["qdrant stopped", "postgres stopped"]
    with DataFolderLock(settings.data_folder):
        pass


async def test_a_folder_in_use_is_told_before_anything_starts(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = FakeServers(monkeypatch, together=0)
    with DataFolderLock(settings.data_folder), pytest.raises(DataFolderInUseError):
        async with EmbeddedServers(settings):
            pass
    assert servers.told == []


@pytest.mark.requirement("STORE-8")
def test_a_server_opens_as_many_files_as_the_system_permits_and_as_are_of_use(monkeypatch: pytest.MonkeyPatch) -> None:
    none, usual, large = resource.RLIM_INFINITY, 65_536, 1_073_741_816
    for soft, hard, most in (
        *((1024, 4096, 4096), (1024, none, usual), (1024, large, usual), (1 << 20, large, 1 << 20)),
        *((4096, 4096, 4096), (none, none, none)),
    ):
        limits = {resource.RLIMIT_NOFILE: (soft, hard)}
        monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
        monkeypatch.setattr(resource, "setrlimit", limits.__setitem__)
        allow_many_files()
        assert limits == {resource.RLIMIT_NOFILE: (most, hard)}
