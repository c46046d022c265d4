"""The files for a deployment agree with the server: settings, ports, paths and users."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from memotree.environment import variable
from memotree.settings import Settings

ROOT = Path(__file__).parents[2]
IMAGE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
UNIT = (ROOT / "deploy" / "memotree.service").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))

pytestmark = pytest.mark.requirement("USE-8")


def test_every_variable_is_a_setting() -> None:
    settings = {variable(name) for name in Settings.model_fields}
    for text in (IMAGE, UNIT, yaml.safe_dump(COMPOSE)):
        named = set(re.findall(r"MEMOTREE_[A-Z_]+", text))
        assert named
        assert named <= settings


def test_the_image_is_made_in_stages_runs_as_a_user_and_asks_readyz() -> None:
    assert next(line.split()[-1] for line in IMAGE.splitlines() if line.startswith("FROM")) == "build"
    assert IMAGE.count("\nFROM ") == 2
    assert "\nUSER 10001:10001\n" in IMAGE
    assert "\nVOLUME /data\n" in IMAGE
    assert "http://127.0.0.1:7320/readyz" in IMAGE
    assert f"EXPOSE {Settings().port} {Settings().port_for_http}" in IMAGE


def test_the_image_has_every_package_of_the_wheel_and_nothing_else() -> None:
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert allowed[0] == "*"
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for package in re.findall(r'"((?:storage/)?memotree[a-z_]*)"', project.partition("packages = ")[2].splitlines()[0]):
        assert f"!{package.split('/')[0]}" in allowed
    assert "!README.md" in allowed  # the build reads it


def test_no_port_of_the_stores_is_open_to_other_machines() -> None:
    services = COMPOSE["services"]
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
    memotree = services["memotree"]
    assert (memotree["network_mode"], memotree["read_only"], memotree["cap_drop"]) == ("host", True, ["ALL"])
    assert set(memotree["depends_on"]) == {"postgres", "qdrant"}


def test_no_password_is_written_into_a_file() -> None:
    given = {name: value for each in COMPOSE["services"].values() for name, value in each["environment"].items()}
    secrets = {name: value for name, value in given.items() if name.endswith(("PASSWORD", "API_KEY"))}
    assert len(secrets) == 3
    assert all(value.startswith("${") for value in secrets.values())
    assert given["MEMOTREE_POSTGRES_URL"].startswith("postgresql://memotree:${POSTGRES_PASSWORD")
    assert "PASSWORD" not in IMAGE + UNIT


def test_the_data_of_the_service_is_in_the_folder_that_systemd_makes() -> None:
    values = dict(line.split("=", 1) for line in UNIT.splitlines() if re.match(r"[A-Z]\w+=", line))
    assert values["StateDirectory"] == "memotree"
    assert "MEMOTREE_DATA=/var/lib/memotree" in UNIT
    grace = Settings().stop_grace.total_seconds()
    assert int(values["TimeoutStopSec"]) > grace
    assert int(COMPOSE["services"]["memotree"]["stop_grace_period"].removesuffix("s")) > grace


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "memotree.service"
    unit.write_text(UNIT.replace("/opt/memotree/bin/memotree", sys.executable), encoding="utf-8")
    ran = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)  # noqa: S603, S607 - a linter on our own file
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")
