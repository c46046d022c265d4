"""The command line against a fake server, with a home of its own for each test."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from unit.client.fake_memotree import FakeMemoTree, serving

from memotree.cli.app import app


@dataclass(frozen=True)
class Ran:
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The JSON document on stdout."""
        return json.loads(self.out)


@dataclass(frozen=True)
class CommandLine:
    """Runs commands against one server."""

    fake: FakeMemoTree

    def __call__(self, *arguments: str, stdin: str | bytes | None = None) -> Ran:
        result = CliRunner().invoke(app, arguments, input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    def json(self, *arguments: str, code: int = 0, stdin: str | bytes | None = None) -> Any:
        """The document that a command prints with ``--json``."""
        ran = self(*arguments, "--json", stdin=stdin)
        assert ran.code == code, ran.err
        return ran.document

    def refused(self, *arguments: str, code: int = 1) -> str:
        """What a command that ends with this code says on stderr."""
        ran = self(*arguments)
        assert ran.code == code, ran.err
        return ran.err


WITHOUT_SERVER = CommandLine(None)  # type: ignore[arg-type] # for commands that call none


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without settings, choices, servers or editors."""
    for name in ("ADDRESS", "HOST", "PORT", "WORKSPACE", "SESSION", "DATA", "CONFIG"):
        monkeypatch.delenv(f"MEMOTREE_{name}", raising=False)
    for name in ("VISUAL", "EDITOR", "COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def memotree(monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLine]:
    """The command line with a fake server that the environment names."""
    with serving(FakeMemoTree()) as fake:
        monkeypatch.setenv("MEMOTREE_ADDRESS", fake.address)
        yield CommandLine(fake)


@pytest.fixture
def ready(memotree: CommandLine) -> CommandLine:
    """The command line with a workspace, a session and a small tree committed as v1."""
    memotree.json("ws", "create", "demo", "-d", "a place")
    memotree.json("session", "open", "--agent", "planner")
    memotree.json("archive", "create", "notes", "--model", "m1", "--id", "n" * 16)
    memotree.json("node", "create", "--title", "Root", "-c", "All [bold]of[/bold] it", "-a", "notes", "--id", "r" * 16)
    memotree.json("node", "create", "--title", "Child", "-c", "alpha beta", "-p", "rrrr", "--id", "c" * 16, "-t", "x")
    memotree.json("commit", "-m", "First", "--tag", "v1")
    return memotree
