"""``memotree serve`` loads the settings, starts the server and says where it listens."""

import gc
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from memotree_storage.errors import FailedPreconditionError
from unit.cli.conftest import WITHOUT_SERVER, CommandLine

from memotree.gateways.http_server import HttpServer
from memotree.server import preflight, starting
from memotree.settings import Settings

Serve = Callable[[Settings, Callable[[Any], None], Any, Any], None]


@pytest.fixture
def serve_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[Serve], CommandLine]:
    """The command line with another way to serve."""

    def replace(serve: Serve) -> CommandLine:
        monkeypatch.setattr(starting, "serve", serve)
        monkeypatch.setattr(preflight, "check_before_start", lambda _settings: None)
        return WITHOUT_SERVER

    return replace


def test_serve_starts_with_the_settings_of_its_flags_and_says_where_it_listens(
    serve_with: Callable[[Serve], CommandLine], home: Path
) -> None:
    seen: list[Settings] = []

    def serve(
        settings: Settings, on_ready: Callable[[Any], None], side_server: Callable[[], object], _reread: object
    ) -> None:
        assert side_server() is HttpServer
        seen.append(settings)
        on_ready(SimpleNamespace(address="127.0.0.1:4321", url="http://127.0.0.1:4322"))

    memotree = serve_with(serve)
    ran = memotree("serve", "--data", str(home / "d"), "--port", "0", "--log-level", "warning", "--json")
    assert ran.code == 0
    told = {"address": "127.0.0.1:4321", "url": "http://127.0.0.1:4322", "data_folder": str(home / "d")}
    assert ran.document == {**told, "pid": os.getpid()}
    assert "MemoTree serves at 127.0.0.1:4321" in ran.err
    assert "http://127.0.0.1:4322/mcp" in ran.err
    assert (seen[0].port, seen[0].log_level, seen[0].data_folder) == (0, "warning", home / "d")


def test_http_can_be_left_out(serve_with: Callable[[Serve], CommandLine]) -> None:
    def serve(_settings: Settings, on_ready: Callable[[Any], None], side_server: object, _reread: object) -> None:
        assert side_server is None
        on_ready(SimpleNamespace(address="127.0.0.1:4321", url=""))

    ran = serve_with(serve)("serve", "--no-http", "--json")
    assert (ran.code, ran.document["url"]) == (0, None)
    assert "/mcp" not in ran.err


def test_a_server_that_cannot_start_says_why(serve_with: Callable[[Serve], CommandLine]) -> None:
    def serve(_settings: Settings, _ready: Callable[[Any], None], _side_server: object, _reread: object) -> None:
        raise FailedPreconditionError("Another server works on the data folder; stop it first.")

    memotree = serve_with(serve)
    assert memotree.refused("serve") == "error: Another server works on the data folder; stop it first.\n"
    assert gc.isenabled()
    assert "port: " in memotree.refused("serve", "--port", "99999")


LOADED = """
import sys
from memotree.cli.app import app
sys.argv = ["memotree", *sys.argv[1:]]
try:
    app()
finally:
    print([name for name in ("numpy", "qdrant_client", "mcp", "openai", "psycopg") if name in sys.modules])
"""


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of a PostgreSQL that does not answer."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"postgresql://ada:secret@127.0.0.1:{unused.getsockname()[1]}/memotree"


@pytest.mark.requirement("USE-8")
def test_what_is_wrong_is_told_before_anything_slow_is_loaded(home: Path, silent: str) -> None:
    for command, given, told, loaded in (
        ("serve", ("MEMOTREE_PROT", "7319"), "MEMOTREE_PROT: there is no .*; did you mean MEMOTREE_PORT", []),
        ("mcp", ("MEMOTREE_SESSION_TTL", "a week"), "MEMOTREE_SESSION_TTL: .*give a number with a unit", []),
        ("serve --port 0", ("MEMOTREE_POSTGRES_URL", silent), "Connection refused", ["psycopg"]),
    ):
        environment = dict((given, ("PATH", os.environ["PATH"]), ("HOME", str(home))))
        ran = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-c", LOADED, *command.split()],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            cwd=home,
        )
        assert (ran.returncode, ran.stdout) == (1, f"{loaded}\n"), ran.stderr
        assert re.search(told, ran.stderr)
        assert "secret" not in ran.stderr


@pytest.mark.requirement("USE-8")
def test_restoring_refuses_a_file_that_is_no_backup_and_makes_no_data_folder(home: Path) -> None:
    file = home / "notes.txt"
    restore = ("restore", str(file), "--data", str(home / "data"))
    assert WITHOUT_SERVER.refused(*restore) == f"error: There is no file {file}.\n"
    file.write_text("not a backup")
    assert "This is not a whole backup" in WITHOUT_SERVER.refused(*restore)
    assert not (home / "data").exists()


@pytest.mark.requirement("USE-8")
def test_a_backup_goes_to_a_new_file(home: Path) -> None:
    file = home / "monday.backup"
    file.write_text("of last week")
    assert "exists. Name another file" in WITHOUT_SERVER.refused("backup", str(file))
    assert file.read_text() == "of last week"
    assert "it needs a file" in WITHOUT_SERVER.refused("backup", "-")
    assert not (home / "-").exists()
