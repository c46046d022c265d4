"""The demo announces what takes time, keeps its data in a folder that it says, and deletes nothing else."""

import json
import os
import shlex
import socket
import sys
from pathlib import Path

import pytest

from memotree.cli.context import CliContext
from memotree.cli.demo import ending, private_server, run_demo
from memotree.cli.demo.steps import DemoSteps, command_line
from memotree.cli.terminal.output import Output


def test_the_data_stays_in_the_folder_of_the_user(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    assert private_server.default_folder() == home / "data" / "memotree-demo"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert private_server.default_folder() == Path.home() / ".local" / "share" / "memotree-demo"


def test_without_a_terminal_what_takes_time_is_told_before_it_begins_and_a_command_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    stage = DemoSteps(Output())
    stage.step("First", "memotree status")
    with stage.waiting("Starting"):
        seen = capsys.readouterr()
    assert (seen.out, seen.err) == ("\n1. First\n   $ memotree status\n", "   Starting …\n")
    line = command_line("recall", "a question of many words")
    stage.commands([line])
    assert capsys.readouterr() == (f"   $ {line}\n", "")


def test_the_last_commands_take_any_free_port_where_the_default_one_is_taken(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = home / "with space"
    for is_free, ports in ((True, []), (False, ["--port", "0", "--http-port", "0"])):
        monkeypatch.setattr(ending, "_default_ports_are_free", lambda found=is_free: found)
        assert shlex.split(ending.next_commands(folder)[0]) == ["memotree", "serve", "--data", str(folder), *ports]
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert not ending.is_free("127.0.0.1", port)
    assert ending.is_free("127.0.0.1", port)


def test_only_the_folder_of_an_earlier_demo_is_deleted_unless_its_server_runs(home: Path) -> None:
    (home / "precious").mkdir()
    (home / "precious" / "file").touch()
    with pytest.raises(private_server.NotADemoFolderError, match="name an empty folder"):
        run_demo(CliContext(), home / "precious")
    assert (home / "precious" / "file").exists()
    folder = private_server.fresh_folder(home / "demo")
    (folder / "old").touch()
    assert not (private_server.fresh_folder(home / "demo") / "old").exists()
    announced = {"address": "127.0.0.1:1", "pid": os.getpid(), "version": "1"}
    (folder / "server.json").write_text(json.dumps(announced), encoding="utf-8")
    with pytest.raises(private_server.NotADemoFolderError, match="still uses"):
        private_server.fresh_folder(home / "demo")


def test_the_first_step_is_told_before_the_data_of_the_last_demo_is_deleted(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []

    def delete(folder: Path) -> Path:
        told.append(capsys.readouterr().out)
        raise private_server.NotADemoFolderError(str(folder))

    monkeypatch.setattr("memotree.cli.demo.fresh_folder", delete)
    with pytest.raises(private_server.NotADemoFolderError):
        run_demo(CliContext(), home / "demo")
    assert "1. Start a private server" in told[0]


def test_a_server_that_ends_early_is_reported_with_the_end_of_its_output(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = private_server.fresh_folder(home / "demo")
    script = home / "python"
    script.write_text("#!/bin/sh\necho 'no luck'\nexit 3\n", encoding="utf-8")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    with (
        pytest.raises(private_server.StartError, match=r"(?s)ended with exit code 3.*no luck"),
        private_server.server_on(folder),
    ):
        pass
