"""What the Dockerfile does, step by step in a plain environment, because no container engine is at hand.

The parts of an image that only an engine has (layers, a read-only root, the volume, the health status) are not run.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEADLINE = 120


def sources(folder: Path) -> Path:
    """The build context: what ``.dockerignore`` lets through."""
    folder.mkdir()
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        if line.startswith("!"):
            source = ROOT / line[1:]
            copy = shutil.copytree if source.is_dir() else shutil.copy2
            copy(source, folder / line[1:])
    return folder


def health_check() -> list[str]:
    """The command of ``HEALTHCHECK``, for another port."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    command: list[str] = json.loads(text.partition("CMD ")[2].splitlines()[0])
    return command


@pytest.mark.campaign
@pytest.mark.timeout(900)
@pytest.mark.requirement("USE-8")
def test_the_steps_of_the_image_give_a_server_that_is_ready_and_stops(tmp_path: Path) -> None:
    place = tmp_path / "opt"
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)  # noqa: S603 - a step of the image
    install = [str(place / "bin" / "pip"), "install", "-q", "--no-cache-dir", f"{sources(tmp_path / 'source')}[all]"]
    subprocess.run(install, check=True)  # noqa: S603 - a step of the image
    environment = {
        "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
        "MEMOTREE_DATA": str(tmp_path / "data"),
        "MEMOTREE_LOG_FORMAT": "json",
        "MEMOTREE_PORT": "0",
        "MEMOTREE_HTTP_PORT": "0",
    }
    server = subprocess.Popen(  # noqa: S603 - the image's command
        [str(place / "bin" / "memotree"), "serve", "--json"],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        ready = json.loads("".join(iter(server.stdout.readline, "}\n")) + "}")
        command = [part.replace("http://127.0.0.1:7320", ready["url"]) for part in health_check()]
        checked = subprocess.run(command, env=environment, check=False, timeout=DEADLINE)  # noqa: S603 - the image's own
        assert checked.returncode == 0
        server.send_signal(signal.SIGTERM)
        _, said = server.communicate(timeout=DEADLINE)
    finally:
        server.kill()
    assert server.returncode == 0
    lines = [line for line in said.splitlines() if not line.startswith(("✓", "Agents reach it"))]
    assert all(json.loads(line)["event"] for line in lines)
