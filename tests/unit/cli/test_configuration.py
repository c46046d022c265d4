"""``memotree config`` checks and shows the settings as ``memotree serve`` reads them."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from unit.cli.conftest import CommandLine

from memotree.server.announcement import Announcement, announce

pytestmark = pytest.mark.requirement("TOOL-11")


@pytest.fixture
def memotree(monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The command line without a server, with a file that asks for free ports."""
    for name in [name for name in os.environ if name.startswith("MEMOTREE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MEMOTREE_PORT", "0")
    return CommandLine(None)  # type: ignore[arg-type] # no server is called


def places(memotree: CommandLine, *arguments: str) -> dict[str, str]:
    found = memotree.json("config", "check", *arguments, code=1)
    assert not found["ok"]
    return {each["place"]: each["description"] for each in found["faults"]}


def test_good_settings_are_ok_and_the_file_is_named(memotree: CommandLine, home: Path) -> None:
    told = "OK: a server can start with these settings (no file, 1 variable of the environment).\n"
    assert memotree("config", "check").out == told
    (home / "memotree.toml").write_text('log_level = "debug"\n')
    assert "(memotree.toml, 1 variable" in memotree("config", "check").out
    assert memotree.json("config", "check") == {"ok": True, "file": "memotree.toml", "faults": [], "warnings": []}


def test_all_faults_of_file_and_environment_are_listed_and_the_exit_code_is_1(
    memotree: CommandLine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "memotree.toml").write_text('[log]\nlevel = "loud"\n')
    monkeypatch.setenv("MEMOTREE_SESSION_TTL", "soon")
    monkeypatch.setenv("MEMOTREE_PROT", "1")
    assert places(memotree).keys() == {"log.level in memotree.toml, line 2", "MEMOTREE_SESSION_TTL", "MEMOTREE_PROT"}
    ran = memotree("config", "check")
    assert ran.code == 1
    assert "did you mean MEMOTREE_PORT?" in ran.out
    assert "cannot start with these settings (memotree.toml, 3 variables" in ran.out


def test_another_file_can_be_checked_but_must_exist(memotree: CommandLine, home: Path) -> None:
    (home / "memotree.toml").write_text("port = -1\n")
    other = home / "other.toml"
    assert "there is no such file" in places(memotree, "--file", str(other))[str(other)]
    other.write_text("[recall]\nscan_leaves = 5000\n")
    assert memotree.json("config", "check", "--file", str(other))["file"] == str(other)


def test_what_the_settings_name_is_checked_too(
    memotree: CommandLine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "a-file").touch()
    (home / "memotree.toml").write_text(
        'data_folder = "a-file/below"\nhost = "0.0.0.0"\nmcp_tools = "everyday,get_nod"\nsigning_key = "no-key"\n'
    )
    found = places(memotree)
    assert [each.partition(" ")[0] for each in found] == ["host", "data_folder", "signing_key", "mcp_tools"]
    assert "is not a folder" in found["data_folder in memotree.toml, line 1"]
    (home / "closed").mkdir(mode=0o500)
    monkeypatch.setattr(os, "access", lambda path, _mode: "closed" not in str(path))
    (home / "memotree.toml").unlink()
    for folder, told in (("closed/below", "may not make"), ("closed", "may not write to")):
        monkeypatch.setenv("MEMOTREE_DATA", folder)
        assert told in places(memotree)["MEMOTREE_DATA"]


def test_a_port_of_another_program_is_a_fault_and_that_of_the_own_server_is_not(
    memotree: CommandLine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as grpc, socket.create_server(("127.0.0.1", 0)) as http:
        ports = [each.getsockname()[1] for each in (grpc, http)]
        monkeypatch.setenv("MEMOTREE_PORT", str(ports[0]))
        monkeypatch.setenv("MEMOTREE_HTTP_PORT", str(ports[1]))
        monkeypatch.setenv("MEMOTREE_DATA", str(home / "data"))
        assert places(memotree).keys() == {"MEMOTREE_PORT", "MEMOTREE_HTTP_PORT"}
        addresses = [f"127.0.0.1:{port}" for port in ports]
        announce(home / "data", Announcement(addresses[0], os.getpid(), "1", f"http://{addresses[1]}"))
        assert memotree.json("config", "check")["ok"]
        announce(home / "data", Announcement(addresses[0], os.getpid(), "1", ""))
        assert places(memotree).keys() == {"MEMOTREE_HTTP_PORT"}


def test_stores_are_asked_when_that_is_wanted(home: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        (home / "memotree.toml").write_text(
            f'port = 0\n[postgres]\nurl = "postgresql://me:${{THE_PASSWORD}}@127.0.0.1:{port}/d"\n'
        )
        environment = {"PATH": os.environ["PATH"], "HOME": str(home), "THE_PASSWORD": "s3cret"}
        command = [sys.executable, "-m", "memotree.cli", "config", "check", "--json", "--stores"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=home)  # noqa: S603 - our own program
    (fault,) = json.loads(ran.stdout)["faults"]
    assert fault["place"] == "postgres.url in memotree.toml, line 3"
    assert "Connection refused" in fault["description"]
    assert "s3cret" not in ran.stdout + ran.stderr


def test_secrets_that_others_may_read_are_warned_of_and_a_certificate_that_cannot_be_used_is_a_fault(
    memotree: CommandLine, home: Path
) -> None:
    file = home / "memotree.toml"
    file.write_text('[qdrant]\nurl = "http://h:1"\napi_key = "s3cret"\n')
    file.chmod(0o644)
    told = "memotree.toml has qdrant_api_key, and other users of this machine may read it: chmod 600 memotree.toml"
    ran = memotree("config", "check")
    assert (ran.code, ran.err) == (0, f"warning: {told}\n")
    file.chmod(0o600)
    assert memotree.json("config", "check")["warnings"] == []
    (home / "cert.pem").write_text("no certificate")
    (home / "key.pem").write_text("no key")
    (home / "key.pem").chmod(0o640)
    file.write_text('[tls]\ncertificate = "cert.pem"\nkey = "key.pem"\n')
    found = memotree.json("config", "check", code=1)
    assert [each["place"] for each in found["faults"]] == ["tls.certificate in memotree.toml, line 2"]
    assert [each["place"] for each in found["warnings"]] == [str(home / "key.pem")]


def test_the_settings_are_shown_with_their_sources_and_without_secrets(memotree: CommandLine, home: Path) -> None:
    (home / "memotree.toml").write_text('[qdrant]\nurl = "http://h:1"\napi_key = "s3cret"\n')
    changed = memotree.json("config", "show", "--changed")
    assert changed["file"] == "memotree.toml"
    assert [(each["name"], each["value"], each["source"]) for each in changed["settings"]] == [
        ("port", 0, "environment"),
        ("qdrant_url", "http://h:1", "file"),
        ("qdrant_api_key", "***", "file"),
    ]
    ran = memotree("config", "show")
    assert "qdrant.api_key in memotree.toml, line 3" in ran.out
    assert "s3cret" not in ran.out + json.dumps(changed)
    (home / "memotree.toml").write_text("port = -1\nprot = 1\n")
    told = "prot in memotree.toml, line 2: there is no such setting; did you mean port?"
    assert told in memotree.refused("config", "show"), "wrong settings cannot be shown"
