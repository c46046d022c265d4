"""How long a start takes: of commands, of a server on an empty folder and on one with data, of MCP over stdio.

Each figure is the fastest of several rounds, in which everything is started once in turn: a start has no spread of its
own, and what else the machine does only adds to it. Python itself, `python -c pass`, is the peer.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, Final

from bench.table import Row
from memotree.local.server_process import ServerProcess

_MEMOTREE: Final = (sys.executable, "-m", "memotree.cli")
_PEER: Final = "python -c pass"
_INITIALIZE: Final = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}


@dataclass(frozen=True, slots=True)
class Start:
    """One kind of start.

    Attributes:
        work: What is started, and when it counts as done.
        run: Starts it once and returns the seconds.
        budget: The most milliseconds; ``None`` for none.
    """

    work: str
    run: Callable[[], float]
    budget: int | None = None


def run(*, rounds: int) -> list[Row]:
    """Return the fastest of ``rounds`` starts of each kind."""
    with TemporaryDirectory(prefix="memotree-starts-") as name, _served(Path(name)) as environment:
        starts = _starts(Path(name), environment)
        fastest = {start.work: float("inf") for start in starts}
        for _ in range(rounds + 1):  # the first one fills the caches of the system
            for start in starts:
                fastest[start.work] = min(fastest[start.work], start.run() * 1000)
    return [
        Row(
            start.work,
            fastest[start.work],
            "ms",
            _PEER,
            fastest[_PEER],
            "" if start.budget is None else f"≤ {start.budget:,} ms",
            None if start.budget is None else fastest[start.work] <= start.budget,
        )
        for start in starts
        if start.work != _PEER
    ]


def _starts(folder: Path, environment: Mapping[str, str]) -> list[Start]:
    def command(*arguments: str) -> Callable[[], float]:
        return lambda: _ended([*_MEMOTREE, *arguments], environment)

    return [
        Start(_PEER, lambda: _ended([sys.executable, "-c", "pass"], environment)),
        Start("memotree --version", command("--version")),
        Start("memotree --help", command("--help"), 150),
        Start("memotree node get --help", command("node", "get", "--help")),
        Start("memotree node get", command("node", "get", "Region"), 300),
        Start("memotree recall", command("recall", "Which region do we use?"), 350),
        Start("server on an empty folder, until it is announced", lambda: _served_once(folder, environment), 2000),
        Start(
            "server on a folder with data, until it is announced",
            lambda: _served_once(folder, environment, folder / "kept"),
        ),
        Start(
            "MCP over stdio to a running server, until the first call is answered",
            lambda: _called(environment, folder / "data"),
            1000,
        ),
        Start(
            "MCP over stdio with a server of its own, until the first call is answered",
            lambda: _called_on_empty_folder(folder, environment),
            2500,
        ),
    ]


@contextmanager
def _served(folder: Path) -> Iterator[dict[str, str]]:
    """A server with a note; yields the environment in which commands find it."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("MEMOTREE_")}
    environment = {**others, "XDG_CONFIG_HOME": str(folder / "config"), "MEMOTREE_DATA": str(folder / "data")}
    server = _server(folder, folder / "data", environment)
    try:
        server.address()
        remembering = [*_MEMOTREE, "remember", "We use region eu-central-1.", "--title", "Region"]
        subprocess.run(remembering, env=environment, check=True, capture_output=True)
        yield environment
    finally:
        server.stop()


def _server(folder: Path, data: Path, environment: Mapping[str, str]) -> ServerProcess:
    return ServerProcess.start(
        [*_MEMOTREE, "serve", "--data", str(data), "--port", "0", "--http-port", "0"],
        folder=data,
        log=folder / "server.log",
        environment=environment,
        working_folder=folder,
    )


def _ended(arguments: list[str], environment: Mapping[str, str]) -> float:
    """The seconds until a program has ended."""
    begun = time.perf_counter()
    subprocess.run(arguments, env=environment, check=True, capture_output=True)
    return time.perf_counter() - begun


def _served_once(folder: Path, environment: Mapping[str, str], data: Path | None = None) -> float:
    """The seconds until a server listens; on an empty folder unless one is given."""
    with TemporaryDirectory(dir=folder) as empty:
        begun = time.perf_counter()
        server = _server(folder, Path(empty) / "data" if data is None else data, environment)
        try:
            server.address()
            return time.perf_counter() - begun
        finally:
            server.stop()


def _called_on_empty_folder(folder: Path, environment: Mapping[str, str]) -> float:
    with TemporaryDirectory(dir=folder) as empty:
        return _called(environment, Path(empty) / "data")


def _called(environment: Mapping[str, str], data: Path) -> float:
    """The seconds until ``memotree mcp`` has answered a first call."""
    begun = time.perf_counter()
    with subprocess.Popen(
        [*_MEMOTREE, "mcp", "--data", str(data)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        _send(process.stdin, {"id": 1, "method": "initialize", "params": _INITIALIZE})
        _answer(process.stdout, 1)
        _send(process.stdin, {"method": "notifications/initialized"})
        arguments = {"name": "recall", "arguments": {"query": "Which region do we use?"}}
        _send(process.stdin, {"id": 2, "method": "tools/call", "params": arguments})
        assert not _answer(process.stdout, 2)["isError"]
        seconds = time.perf_counter() - begun
        process.stdin.close()
        process.wait()
    return seconds


def _send(pipe: IO[bytes], message: Mapping[str, Any]) -> None:
    pipe.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    pipe.flush()


def _answer(pipe: IO[bytes], number: int) -> dict[str, Any]:
    """The result of the request with this number; what else arrives is left out."""
    for line in pipe:
        message = json.loads(line)
        if message.get("id") == number:
            result: dict[str, Any] = message["result"]
            return result
    raise RuntimeError("memotree mcp ended before it had answered.")
