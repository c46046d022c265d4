"""``memotree serve`` loads the settings, starts the server and says where it listens."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from memotree_storage.errors import FailedPreconditionError
from unit.cli.conftest import CommandLine

import memotree.server
from memotree.gateways.http_server import HttpServer
from memotree.settings import Settings

Serve = Callable[[Settings, Callable[[Any], None], Any], None]


@pytest.fixture
def serve_with(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Serve], CommandLine]:
    """The command line with another composition root."""
    assert home.exists()

    def replace(serve: Serve) -> CommandLine:
        module = ModuleType("memotree.server.compose")
        module.serve = serve  # type: ignore[attr-defined] # that is what a module is for
        monkeypatch.setitem(sys.modules, "memotree.server.compose", module)
        monkeypatch.setattr(memotree.server, "compose", module, raising=False)
        return CommandLine(None)  # type: ignore[arg-type] # no fake is called

    return replace


def test_serve_starts_with_the_settings_of_its_flags_and_says_where_it_listens(
    serve_with: Callable[[Serve], CommandLine], home: Path
) -> None:
    seen: list[Settings] = []

    def serve(settings: Settings, on_ready: Callable[[Any], None], side_server: object) -> None:
        assert side_server is HttpServer
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
    def serve(_settings: Settings, on_ready: Callable[[Any], None], side_server: object) -> None:
        assert side_server is None
        on_ready(SimpleNamespace(address="127.0.0.1:4321", url=""))

    ran = serve_with(serve)("serve", "--no-http", "--json")
    assert (ran.code, ran.document["url"]) == (0, None)
    assert "/mcp" not in ran.err


def test_wrong_settings_are_reported_line_by_line(serve_with: Callable[[Serve], CommandLine]) -> None:
    ran = serve_with(lambda _settings, _ready, _face: None)("serve", "--port", "99999")
    assert ran.code == 1
    assert "port: " in ran.err


def test_a_server_that_cannot_start_says_why(serve_with: Callable[[Serve], CommandLine]) -> None:
    def serve(_settings: Settings, _ready: Callable[[Any], None], _side_server: object) -> None:
        raise FailedPreconditionError("Another server works on the data folder; stop it first.")

    ran = serve_with(serve)("serve")
    assert (ran.code, ran.err) == (1, "error: Another server works on the data folder; stop it first.\n")
