"""Servers with gRPC, HTTP and git, each in a process of its own, with its settings as variables."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from forked import ForkedProgram
from memotree_storage.model.node import new_id

from memotree.client.blocking import Client, Workspace
from memotree.server.announcement import Announcement, read_announcement

SERVE: Final = """
import sys
from pathlib import Path
from memotree.gateways import git_http
from memotree.gateways.http_server import HttpServer
from memotree.server import starting
git_http._SILENT_SECONDS = float(sys.argv[2])
from memotree.settings import load_settings
settings = load_settings(data_folder=Path(sys.argv[1]), host="127.0.0.1", port=0, http_port=0)
starting.serve(settings, lambda _: print("up", flush=True), lambda: HttpServer)
"""
_SHARED: Final = pytest.StashKey["Served"]()
_DEADLINE: Final = 180.0


@contextmanager
def running(
    folder: Path, *, silence: float = 600.0, **environment: str
) -> Iterator[tuple[Announcement, ForkedProgram]]:
    """A server on a folder, ended at the exit if it still runs.

    Args:
        folder: The data folder.
        silence: How many seconds git may write nothing.
        **environment: Additions to the environment.
    """
    program = [sys.executable, "-c", SERVE, str(folder), str(silence)]
    process = ForkedProgram(program, stdout=subprocess.PIPE, text=True, env=os.environ | environment)
    with process.stdout:
        try:
            while (line := process.stdout.readline()) != "up\n":
                assert line, "the server ended"
            announced = read_announcement(folder)
            assert announced is not None
            yield announced, process
        finally:
            process.terminate()
            process.wait(60)


@dataclass(frozen=True)
class Served:
    """A server without keys that tests share; each makes a workspace of its own.

    Attributes:
        announced: Where it listens.
        folder: Its data folder, whose path a shell has to quote.
        scratch: The folder of its temporary files.
        client: A client of it.
    """

    announced: Announcement
    folder: Path
    scratch: Path
    client: Client


@pytest.fixture(scope="session")
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """The server that the modules which import this share."""
    stash = request.config.stash
    if _SHARED not in stash:
        folder, scratch = tmp_path_factory.mktemp("it's here") / "data", tmp_path_factory.mktemp("scratch")
        server = ExitStack()
        request.config.add_cleanup(server.close)
        announced, _ = server.enter_context(running(folder, TMPDIR=str(scratch)))
        stash[_SHARED] = Served(announced, folder, scratch, server.enter_context(Client(announced.address)))
    return stash[_SHARED]


@pytest.fixture
def notes(served: Served, request: pytest.FixtureRequest) -> Workspace:
    """A workspace with an archive that has a node."""
    made = served.client.create_workspace(f"{request.function.__name__[:40]}-{new_id()}")
    workspace = served.client.workspace(made.name)
    with workspace.session() as session:
        session.create("Root", "What it says.", archive=session.create_archive("notes"))
        session.commit("Begin")
    return workspace


def begin(
    server: Announcement, workspace: str, program: str, *, length: int = 100, body: bytes = b"0", proof: str = ""
) -> socket.socket:
    """Begin a request to a program of git, with so much of its body; it waits for the rest."""
    host, port = server.url.removeprefix("http://").rsplit(":", 1)
    connection = socket.create_connection((host, int(port)))
    head = (
        f"POST /git/{workspace}/{program} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {length}\r\n"
        f"content-type: application/x-{program}-request\r\n"
    )
    named = f"authorization: {proof}\r\n" if proof else ""
    connection.sendall(f"{head}{named}\r\n".encode() + body)
    return connection


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + _DEADLINE
    while not holds():
        assert time.monotonic() < deadline, f"waited {_DEADLINE:g} seconds in vain: {what}"
        time.sleep(0.01)
