"""`memotree config reload` on a real server."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forked import forked_servers
from typer.testing import CliRunner

from memotree.cli.app import app
from memotree.client import Client, InvalidArgumentError
from memotree.local.server_process import ServerProcess

pytestmark = pytest.mark.requirement("TOOL-11")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server with a file."""
    (tmp_path / "memotree.toml").write_text('[log]\nformat = "json"\nlevel = "warning"\n', encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MEMOTREE_")}
    data = tmp_path / "data"
    command = [sys.executable, "-m", "memotree.cli", "serve", "--data", str(data), "--port", "0", "--no-http"]
    with forked_servers():
        started = ServerProcess.start(
            command, folder=data, log=tmp_path / "log", environment=environment, working_folder=tmp_path
        )
        try:
            yield started
        finally:
            started.stop()


def lines(folder: Path, event: str) -> list[Any]:
    """The lines of the log with an event."""
    read = (json.loads(line) for line in (folder / "log").read_text(encoding="utf-8").splitlines() if line[0] == "{")
    return [line for line in read if line["event"] == event]


def test_a_reload_changes_the_log_and_tells_what_needs_a_restart_and_the_faults_of_a_bad_file(
    server: ServerProcess, tmp_path: Path
) -> None:
    file = tmp_path / "memotree.toml"
    with Client(server.address()) as client:
        client.status()
        assert lines(tmp_path, "call") == []
        file.write_text('[log]\nformat = "json"\nlevel = "info"\n[postgres.pool]\nmax = 9\n', encoding="utf-8")
        changed = {each.name: each for each in client.reload_settings()}
        assert changed.keys() == {"log_level", "postgres_pool_max"}, "not the port, which was an argument"
        assert changed["log_level"].in_effect
        assert not changed["postgres_pool_max"].in_effect
        assert changed["postgres_pool_max"].place == "postgres.pool.max in memotree.toml, line 5"
        for _ in range(2):
            client.status()  # the line of the first call is written before the second one is answered
        assert any(each["method"].endswith("GetStatus") for each in lines(tmp_path, "call"))
        file.write_text('[log]\nlevel = "loud"\nlevle = "info"\n', encoding="utf-8")
        with pytest.raises(InvalidArgumentError, match="loud") as refused:
            client.reload_settings()
        assert [each.field for each in refused.value.violations] == [
            "log.level in memotree.toml, line 2",
            "log.levle in memotree.toml, line 3",
        ]

    command = ["config", "reload", "--address", server.address()]
    ran = CliRunner().invoke(app, command)
    assert ran.exit_code == 1
    assert "log.level in memotree.toml, line 2" in ran.stderr
    file.write_text('[log]\nformat = "json"\nlevel = "info"\n[recall]\nscan_leaves = 5000\n', encoding="utf-8")
    ran = CliRunner().invoke(app, command)
    assert ran.exit_code == 0, ran.stderr
    (leaves,) = [line for line in ran.stdout.splitlines() if "recall_scan_leaves" in line]
    assert leaves.split()[:3] == ["recall_scan_leaves", "200000", "5000"]
    assert "after a restart" in leaves
    file.write_text('[log]\nformat = "json"\nlevel = "info"\n', encoding="utf-8")
    assert json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout) == {"changed": []}
