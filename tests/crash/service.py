"""Runs the real server as a separate process, which can be killed and started again on the same data folder."""

import asyncio
import importlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

import grpc
from memotree_storage import faults
from memotree_storage.faults import ENVIRONMENT_VARIABLE

from memotree.server.announcement import read_announcement
from memotree.server.app import MakeSideServer
from memotree.server.starting import serve
from memotree.settings import load_settings
from memotree.v1 import maintenance_service_pb2, maintenance_service_pb2_grpc

DEADLINE: Final = 180.0
"""Seconds after which a wait has failed."""

POLL: Final = 0.005

_SERVERS: Final = multiprocessing.get_context("forkserver")
"""Loads the server's modules once; each server is a fork of that process, so that it starts at once after a kill.

Loading the modules takes longer than all else that a server does at its start. The command `memotree serve` itself is
tried by the tests of the terminal and of the documentation.
"""
_SERVERS.set_forkserver_preload(
    [
        *("memotree.server.starting", "memotree.composition.root", "memotree.composition.observers"),
        *("memotree.cli.app", "memotree.cli.commands.serving"),
        *("memotree.gateways.stdio", "memotree.gateways.http_server", "builtin_weights"),
    ]
)


def _serve(data: Path, log: Path, environment: dict[str, str], settings: Mapping[str, Any], *, http: bool) -> None:
    """Serve in this process until it is told to stop."""
    with log.open("ab", buffering=0) as output:
        os.dup2(output.fileno(), sys.stdout.fileno())
        os.dup2(output.fileno(), sys.stderr.fileno())
    os.environ.clear()
    os.environ.update(environment)
    importlib.reload(faults)  # it reads its variable when it is loaded
    loaded = load_settings(**{"data_folder": data, "port": 0, "log_level": "info", "log_format": "json"} | settings)
    serve(loaded, side_server=_http_server if http else None)


def _http_server() -> MakeSideServer:
    from memotree.gateways.http_server import HttpServer  # noqa: PLC0415 - few servers of the tests have it

    return HttpServer


def forked(work: Callable[..., object], *arguments: object, fault: str = "", **options: object) -> BaseProcess:
    """A process, not yet begun, that has the server's modules, calls a function, and kills itself at a fault point."""
    return _SERVERS.Process(target=_with_fault, args=(fault, work, arguments, options))


def _with_fault(
    fault: str, work: Callable[..., object], arguments: Sequence[object], options: Mapping[str, object]
) -> None:
    os.environ[ENVIRONMENT_VARIABLE] = fault
    importlib.reload(faults)  # it reads its variable when it is loaded
    work(*arguments, **options)


class ServerEndedError(RuntimeError):
    """The server ended before it answered."""


class Service:
    """One process of the server on a data folder.

    Args:
        data: The data folder.
        log: The file for the server's log.
        fault: The named point where it kills itself, see ``memotree_storage.faults``.
        environment: Additions to the environment.
        http: Whether it serves HTTP too.
        settings: Settings by name.
    """

    def __init__(
        self,
        data: Path,
        log: Path,
        *,
        fault: str = "",
        environment: Mapping[str, str] | None = None,
        http: bool = False,
        **settings: Any,
    ) -> None:
        self.data = data
        self.log = log
        self.fault = fault
        log.parent.mkdir(parents=True, exist_ok=True)
        given = {**os.environ, "GRPC_VERBOSITY": "NONE", ENVIRONMENT_VARIABLE: fault, **(environment or {})}
        self._process = _SERVERS.Process(target=_serve, args=(data, log, given, settings), kwargs={"http": http})
        self.address = ""

    @property
    def pid(self) -> int:
        """The process of the server, which has begun."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status, or ``None`` while it runs; that of a signal is negative."""
        return self._process.exitcode

    def begin(self) -> None:
        """Let the server start on the data folder."""
        self._process.start()

    async def ready(self) -> str:
        """Wait until the server answers and return its address; ``ServerEndedError`` if it ended before."""
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            found = read_announcement(self.data)
            if found is not None and found.pid == self.pid:
                self.address = found.address
                return found.address
            if self.status is not None:
                raise ServerEndedError(f"The server ended with {self.status}: {self.tail()}")
            await asyncio.sleep(POLL)
        raise ServerEndedError(f"The server did not answer within {DEADLINE:g} seconds: {self.tail()}")

    def children(self) -> dict[int, str]:
        """The server's child processes (the embedded stores) with their commands."""
        return {pid: command(pid) for pid in pids() if parent(pid) == self.pid}

    def child(self, name: str) -> int:
        """The one child whose command contains ``name``."""
        (pid,) = (pid for pid, text in self.children().items() if name in text)
        return pid

    async def has_indexed(self) -> None:
        """Wait until its index has flushed all, so that the next server on this folder begins without work."""
        async with self.channel() as channel, asyncio.timeout(DEADLINE):
            # The stub annotates the blocking form; over an aio channel each call can be awaited.
            stub: Any = maintenance_service_pb2_grpc.MaintenanceServiceStub(channel)
            asked = maintenance_service_pb2.GetStatusRequest()
            while (await stub.GetStatus(asked)).index_backlog:  # noqa: ASYNC110 - the server has no event for it
                await asyncio.sleep(POLL)

    def kill(self) -> None:
        """Send SIGKILL and wait for the end; nothing if it has not begun."""
        if self._process.pid is not None:
            self._process.kill()
            self._process.join()

    async def exit_status(self) -> int:
        """Wait until the process has ended by itself and return its exit status."""
        assert await self.ends(DEADLINE), f"the server did not end within {DEADLINE:g} seconds: {self.tail()}"
        assert self.status is not None
        return self.status

    async def has_killed_itself(self) -> None:
        """Wait until it has reached its fault point."""
        assert await self.exit_status() == -signal.SIGKILL, f"{self.fault} was never passed; {self.tail()}"

    async def ends(self, within: float) -> bool:
        """Whether the process ends by itself within this many seconds."""
        deadline = time.monotonic() + within
        while self.status is None:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(POLL)
        return True

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.terminate()

    async def stop(self) -> int:
        """Send SIGTERM and wait for a graceful end; return the exit status."""
        self.terminate()
        return await self.exit_status()

    def tail(self, size: int = 4000) -> str:
        """The end of the log."""
        return self.log.read_bytes()[-size:].decode(errors="replace")

    def channel(self) -> grpc.aio.Channel:
        """A connection to it."""
        return grpc.aio.insecure_channel(
            self.address, options=[("grpc.enable_retries", 0), ("grpc.max_receive_message_length", -1)]
        )


async def start(data: Path, log: Path, **options: Any) -> Service:
    """A server that answers; the options are those of `Service`."""
    service = Service(data, log, **options)
    try:
        service.begin()
        await service.ready()
    except BaseException:
        service.kill()
        raise
    return service


@asynccontextmanager
async def running(data: Path, log: Path, **options: Any) -> AsyncIterator[Service]:
    """A server that answers; it is killed at the end, if it still runs."""
    service = await start(data, log, **options)
    try:
        yield service
    finally:
        service.kill()


@contextmanager
def serving(data: Path, log: Path, **options: Any) -> Iterator[Service]:
    """A server that answers, for callers without an event loop; it is stopped at the end."""
    service = asyncio.run(start(data, log, **options))
    try:
        yield service
        asyncio.run(service.stop())
    finally:
        service.kill()


def pids() -> list[int]:
    """All processes of the machine."""
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]


def parent(pid: int) -> int:
    """The parent of a process; 0 if there is no such process."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    fields = _stat(pid)
    return bool(fields) and fields[0] != "Z"


def command(pid: int) -> str:
    """The command line of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
