"""Runs the real server as a separate process, which can be killed and started again on the same data folder."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import grpc
from memotree_storage.faults import ENVIRONMENT_VARIABLE

from memotree.server.announcement import read_announcement

DEADLINE: Final = 60.0
"""Seconds after which a wait has failed."""

POLL: Final = 0.005

PROGRAM: Final = """
import sys
from memotree.server.starting import serve
from memotree.settings import load_settings
sys.stdin.readline()
serve(load_settings(data_folder=sys.argv[1], port=0, log_level="info", log_format="json"))
"""
"""A server that imports its modules and then waits for a line on its input, so that it starts at once after a kill."""


class ServerEndedError(RuntimeError):
    """The server ended before it answered."""


class Service:
    """One process of the server on a data folder.

    Args:
        data: The data folder.
        log: The file for the server's log.
        fault: The named point where it kills itself, see ``memotree_storage.faults``.
        environment: Additions to the environment.
    """

    def __init__(self, data: Path, log: Path, *, fault: str = "", environment: Mapping[str, str] | None = None) -> None:
        self.data = data
        self.log = log
        self.fault = fault
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self.process = subprocess.Popen(  # noqa: S603 - this interpreter and the program above
                [sys.executable, "-c", PROGRAM, str(data)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env={**os.environ, "GRPC_VERBOSITY": "NONE", ENVIRONMENT_VARIABLE: fault, **(environment or {})},
            )
        self.address = ""

    @property
    def pid(self) -> int:
        """The process of the server."""
        return self.process.pid

    def begin(self) -> None:
        """Let the server start on the data folder."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(b"\n")
            self.process.stdin.close()
        except BrokenPipeError:
            raise ServerEndedError(f"The server ended while it was loaded: {self.tail()}") from None

    async def ready(self) -> str:
        """Wait until the server answers and return its address; ``ServerEndedError`` if it ended before."""
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            found = read_announcement(self.data)
            if found is not None and found.pid == self.pid:
                self.address = found.address
                return found.address
            if self.process.poll() is not None:
                raise ServerEndedError(f"The server ended with {self.process.returncode}: {self.tail()}")
            await asyncio.sleep(POLL)
        raise ServerEndedError(f"The server did not answer within {DEADLINE:g} seconds: {self.tail()}")

    def children(self) -> dict[int, str]:
        """The server's child processes (the embedded stores) with their commands."""
        return {pid: command(pid) for pid in pids() if parent(pid) == self.pid}

    def child(self, name: str) -> int:
        """The one child whose command contains ``name``."""
        (pid,) = (pid for pid, text in self.children().items() if name in text)
        return pid

    def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        self.process.kill()
        self.process.wait()
        self._close()

    async def exit_status(self) -> int:
        """Wait until the process has ended by itself and return its exit status."""
        status = await asyncio.wait_for(asyncio.to_thread(self.process.wait), DEADLINE)
        self._close()
        return status

    async def ends(self, within: float) -> bool:
        """Whether the process ends by itself within this many seconds."""
        deadline = time.monotonic() + within
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(POLL)
        self._close()
        return True

    async def stop(self) -> int:
        """Send SIGTERM and wait for a graceful end; return the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return await self.exit_status()

    def tail(self, size: int = 4000) -> str:
        """The end of the log."""
        return self.log.read_bytes()[-size:].decode(errors="replace")

    def channel(self) -> grpc.aio.Channel:
        """A connection to it."""
        return grpc.aio.insecure_channel(
            self.address, options=[("grpc.enable_retries", 0), ("grpc.max_receive_message_length", -1)]
        )

    def _close(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()


async def start(data: Path, log: Path, *, fault: str = "", environment: Mapping[str, str] | None = None) -> Service:
    """A server that answers."""
    service = Service(data, log, fault=fault, environment=environment)
    try:
        service.begin()
        await service.ready()
    except BaseException:
        service.kill()
        raise
    return service


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
