"""A client in another language, built from ``proto/`` alone: Node.js with gRPC's own packages."""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from crash.service import Service, start
from integration.node_packages import FOLDER, NODE, needs_node, node_modules
from unit.storage.git.judge import Judge

PROTO: Final = Path(__file__).parents[2] / "proto"

pytestmark = [pytest.mark.campaign, needs_node]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Service]:
    service = await start(tmp_path / "data", tmp_path / "server.log")
    try:
        yield service
    finally:
        service.kill()


async def run_client(address: str) -> dict[str, Any]:
    """The output of the program."""
    process = await asyncio.create_subprocess_exec(
        NODE or "", "client.mjs", address, str(PROTO), cwd=FOLDER, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    answer: dict[str, Any] = json.loads(out)
    return answer


@pytest.mark.requirement("SERVE-1")
async def test_a_javascript_program_does_the_main_job_with_only_the_contract(server: Service) -> None:
    node_modules()
    saw = await run_client(server.address)
    assert saw["staged"][0] == saw["child"], "its own staged node is found before the commit"
    assert saw["commit"] == saw["again"], "the request id makes the call repeatable"
    assert saw["commit"]["tag_name"] == "v1"
    (hit,) = saw["found"]
    assert hit["id"] == saw["child"]
    assert 0 < hit["score"] <= 1
    assert saw["read"]["attributes"]["colour"] == "yellow"
    assert saw["read"]["parent_id"] == saw["parent"]
    assert saw["error"]["code"] == 5  # NOT_FOUND
    assert "grpc-status-details-bin" in saw["error"]["trailers"]
    git = Judge(server.data / saw["repository"])
    git.check()
    assert git.run("log", "--format=%an: %s", "-1", "v1").strip() == "a-node-program: Plant an orchard"
    assert os.fspath(FOLDER) not in git.run("show", "v1")
