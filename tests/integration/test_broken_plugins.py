"""GetStatus and ``memotree status`` tell which plugins are broken, and why, but not what the plugin wrote."""

import os
from pathlib import Path

import pytest
from integration.http_servers import running
from typer.testing import CliRunner

from memotree.cli.app import app
from memotree.client import Client

pytestmark = pytest.mark.requirement("TOOL-1")

PACKAGES = {
    "broken": "raise RuntimeError('a secret')\ntools = []\n",
    "twice": "from memotree.tools.function_tool import tool\n"
    "@tool(category='a')\ndef calculator(a: str) -> str: 'Do.'\n"
    "@tool(category='a')\ndef remember(a: str) -> str: 'Do.'\ntools = [calculator, remember]\n",
}


def test_broken_plugins_are_told(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    for name, text in PACKAGES.items():
        (packages / f"{name}_package.py").write_text(text)
        told = packages / f"{name}-1.0.dist-info"
        told.mkdir()
        (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (told / "entry_points.txt").write_text(f"[memotree.tools]\n{name} = {name}_package:tools\n")
    path = f"{packages}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    with running(tmp_path / "data", PYTHONPATH=path) as (announced, _), Client(announced.address) as client:
        client.tools()  # waits until all plugins were asked
        faults = client.status().plugin_faults
        assert set(faults) == set(PACKAGES)
        assert faults["broken"] == "it ended with RuntimeError"
        assert faults["twice"].count("has the name of another tool") == 2
        ran = CliRunner().invoke(app, ["status", "--address", announced.address])
    assert ran.exit_code == 0, ran.output
    assert "plugin is broken" in ran.stdout
    assert "RuntimeError" in ran.stdout
    assert "a secret" not in ran.output
