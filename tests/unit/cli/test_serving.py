"""``memotree serve`` loads the settings, starts the server and says where it listens."""

import gc
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from memotree_storage.errors import FailedPreconditionError
from unit.cli.conftest import CommandLine

from memotree.gateways.http_server import HttpServer
from memotree.server import preflight, starting
from memotree.settings import Settings

Serve = Callable[[Settings, Callable[[Any], None], Any, Any], None]


@pytest.fixture
def serve_with(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Serve], CommandLine]:
    """The command line with another way to serve."""
    assert home.exists()

    def replace(serve: Serve) -> CommandLine:
        monkeypatch.setattr(starting, "serve", serve)
        monkeypatch.setattr(preflight, "check_before_start", lambda _settings: None)
        return CommandLine(None)  # type: ignore[arg-type] # no fake is called

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
    assert ran.document == {
        "address": "127.0.0.1:4321",
        "pid": os.getpid(),
        "data_folder": str(home / "d"),
        "url": "http://127.0.0.1:4322",
    }
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


def test_wrong_settings_are_reported_line_by_line(serve_with: Callable[[Serve], CommandLine]) -> None:
    ran = serve_with(lambda _settings, _ready, _face, _reread: None)("serve", "--port", "99999")
    assert ran.code == 1
    assert "port: " in ran.err


def test_a_server_that_cannot_start_says_why(serve_with: Callable[[Serve], CommandLine]) -> None:
    def serve(_settings: Settings, _ready: Callable[[Any], None], _side_server: object, _reread: object) -> None:
        raise FailedPreconditionError("Another server works on the data folder; stop it first.")

    ran = serve_with(serve)("serve")
    assert gc.isenabled()
    assert (ran.code, ran.err) == (1, "error: Another server works on the data folder; stop it first.\n")


LOADED = """
import sys
from memotree.cli.app import app
sys.argv = ["memotree", *sys.argv[1:]]
try:
    app()
finally:
    print([name for name in ("numpy", "qdrant_client", "mcp", "openai", "psycopg") if name in sys.modules])
"""


@pytest.mark.requirement("USE-8")
@pytest.mark.parametrize(
    ("command", "name", "value", "told"),
    [
        ("serve", "MEMOTREE_PROT", "7319", "there is no such setting; did you mean MEMOTREE_PORT?"),
        ("mcp", "MEMOTREE_SESSION_TTL", "a week", "give a number with a unit"),
    ],
)
def test_a_wrong_setting_is_told_before_anything_slow_is_loaded(
    home: Path, command: str, name: str, value: str, told: str
) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), name: value}
    ran = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", LOADED, command], capture_output=True, text=True, check=False, env=environment, cwd=home
    )
    assert ran.returncode == 1
    assert f"{name}: " in ran.stderr
    assert told in ran.stderr
    assert ran.stdout == "[]\n"


@pytest.mark.requirement("USE-8")
def test_a_server_that_does_not_answer_is_told_before_the_parts_of_the_server_are_loaded(home: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"postgresql://ada:secret@127.0.0.1:{unused.getsockname()[1]}/memotree"
        environment = {"PATH": os.environ["PATH"], "HOME": str(home), "MEMOTREE_POSTGRES_URL": url}
        ran = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-c", LOADED, "serve", "--port", "0"],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            cwd=home,
        )
    assert ran.returncode == 1
    assert "Connection refused" in ran.stderr.splitlines()[-1]
    assert "secret" not in ran.stderr
    assert ran.stdout == "['psycopg']\n"


@pytest.mark.requirement("USE-8")
def test_restoring_refuses_a_file_that_is_no_backup_and_makes_no_data_folder(home: Path) -> None:
    memotree = CommandLine(None)  # type: ignore[arg-type] # no server is called
    file = home / "notes.txt"
    missing = memotree("restore", str(file), "--data", str(home / "data"))
    assert (missing.code, missing.err) == (1, f"error: There is no file {file}.\n")
    file.write_text("not a backup")
    refused = memotree("restore", str(file), "--data", str(home / "data"))
    assert refused.code == 1
    assert "This is not a whole backup" in refused.err
    assert not (home / "data").exists()


@pytest.mark.requirement("USE-8")
def test_a_backup_does_not_overwrite_a_file(home: Path) -> None:
    file = home / "monday.backup"
    file.write_text("of last week")
    ran = CommandLine(None)("backup", str(file))  # type: ignore[arg-type] # no server is called
    assert ran.code == 1
    assert "exists. Name another file" in ran.err
    assert file.read_text() == "of last week"


@pytest.mark.requirement("USE-8")
def test_a_backup_to_standard_output_is_refused(home: Path) -> None:
    ran = CommandLine(None)("backup", "-")  # type: ignore[arg-type] # no server is called
    assert (ran.code, "it needs a file" in ran.err) == (1, True)
    assert not (home / "-").exists()
