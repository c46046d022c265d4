"""A client in another language, built from ``proto/`` alone: Node.js with gRPC's own packages."""

import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from crash.service import Service, start
from unit.storage.git.judge import Judge

HERE: Final = Path(__file__).parent / "node_client"
PROTO: Final = Path(__file__).parents[2] / "proto"
NODE: Final = shutil.which("node")
NPM: Final = shutil.which("npm")

pytestmark = pytest.mark.skipif(NODE is None, reason="there is no node program on this machine")


@pytest.fixture(scope="module")
def packages() -> None:
    """The packages of the lock file, in ``node_client/node_modules``; installed when they are not there already."""
    lock, installed = HERE / "package-lock.json", HERE / "node_modules" / ".package-lock.json"
    if installed.exists() and _packages(installed) == _packages(lock):
        return
    assert NPM is not None, "node is here and npm is not; install npm"
    done = subprocess.run(  # noqa: S603 - npm with arguments of our own
        [NPM, "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr


def _packages(lock: Path) -> dict[str, str]:
    listed = json.loads(lock.read_text(encoding="utf-8"))["packages"]
    return {name: facts["version"] for name, facts in listed.items() if name}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Service]:
    service = await start(tmp_path / "data", tmp_path / "server.log")
    try:
        yield service
    finally:
        service.kill()


async def run_client(address: str) -> dict[str, Any]:
    """What the program saw."""
    import asyncio  # noqa: PLC0415

    process = await asyncio.create_subprocess_exec(
        NODE or "", "client.mjs", address, str(PROTO), cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    answer: dict[str, Any] = json.loads(out)
    return answer


@pytest.mark.requirement("SERVE-1")
@pytest.mark.usefixtures("packages")
async def test_a_program_in_javascript_does_the_main_job_with_nothing_but_the_contract(server: Service) -> None:
    saw = await run_client(server.address)
    assert saw["staged"][0] == saw["child"], "its own staged node is found before the commit"
    assert saw["commit"] == saw["again"], "the request id makes the call repeatable"
    assert saw["commit"]["tag_name"] == "v1"
    (hit,) = saw["found"]
    assert hit["id"] == saw["child"]
    assert 0 < hit["score"] <= 1
    assert saw["read"]["attributes"] == {"colour": "yellow"}
    assert saw["read"]["parent_id"] == saw["parent"]
    assert saw["error"]["code"] == 5  # NOT_FOUND
    assert "grpc-status-details-bin" in saw["error"]["trailers"]
    git = Judge(server.data / saw["repository"])
    git.check()
    assert git.run("log", "--format=%an: %s", "-1", "v1").strip() == "a-node-program: Plant an orchard"
    assert os.fspath(HERE) not in git.run("show", "v1")
