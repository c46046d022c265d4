"""A real Prometheus reads a real server: by the configuration of the docs, the rules and the dashboard."""

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from crash.service import DEADLINE, start
from ports import kept_ports

from memotree.client import AsyncClient

PROMETHEUS = shutil.which("prometheus")
ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "memotree.rules.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "memotree.json"
GUIDE = ROOT / "docs" / "how-to" / "watch-with-grafana.md"

UNUSED = ("memotree_model_calls_total", "memotree_model_tokens_total", 'code!="OK"')
"""What an expression asks for that a server without a model, whose calls all succeed, has no series of."""

pytestmark = [
    pytest.mark.requirement("TOOL-12"),
    pytest.mark.skipif(PROMETHEUS is None, reason="this machine has no Prometheus"),
    pytest.mark.timeout(180),
]


def configuration(port: int) -> str:
    """That of the guide, with another port, which it reads each second, as it looks at the rules."""
    found = re.search(r'```yaml title="prometheus.yml"\n(.*?)```', GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    text = found.group(1).replace("127.0.0.1:9464", f"127.0.0.1:{port}").replace("15s", "1s")
    assert str(port) in text
    assert "1s" in text
    return f"global: {{evaluation_interval: 1s}}\n{text}"


@contextmanager
def reading(folder: Path, metrics_port: int, port: int) -> Iterator[None]:
    """Context manager with a Prometheus that answers at a port and reads the server's figures at another one."""
    folder.mkdir()
    (folder / "prometheus.yml").write_text(configuration(metrics_port), encoding="utf-8")
    shutil.copy(RULES, folder)
    arguments = [
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([str(PROMETHEUS), *arguments], stdout=log, stderr=log)  # noqa: S603 - of this machine
        try:
            yield
        finally:
            process.kill()
            process.wait()


@dataclass(frozen=True, slots=True)
class Prometheus:
    """The HTTP interface of a Prometheus."""

    client: httpx2.AsyncClient

    async def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer; what Prometheus says of an expression that it cannot read fails the test."""
        answer = (await self.client.get(f"/api/v1/{path}", params=parameters)).json()
        assert answer["status"] == "success", answer.get("error")
        return answer["data"]

    async def values(self, expression: str) -> list[Mapping[str, Any]]:
        """The series that an expression gives."""
        found: list[Mapping[str, Any]] = (await self.ask("query", query=expression))["result"]
        return found

    async def wait_for(self, expression: str) -> None:
        """Wait until an expression gives something."""
        async with asyncio.timeout(DEADLINE):
            while True:
                try:
                    if await self.values(expression):
                        return
                except httpx2.TransportError:  # it does not listen yet
                    pass
                await asyncio.sleep(0.1)


@pytest.fixture
async def prometheus(tmp_path: Path) -> AsyncIterator[Prometheus]:
    """A Prometheus that has read a server, before and after some calls."""
    metrics_port, port = kept_ports(2)
    environment = {"MEMOTREE_METRICS_PORT": str(metrics_port), "MEMOTREE_HTTP_PORT": "0"}
    service = await start(tmp_path / "data", tmp_path / "server.log", environment=environment)
    try:
        with reading(tmp_path / "prometheus", metrics_port, port):
            async with (
                AsyncClient(service.address) as client,
                httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http,
            ):
                found = Prometheus(http)
                await client.create_workspace("garden")
                garden = client.workspace("garden")
                await garden.remember("Roses need water.", title="Roses")
                await found.wait_for("memotree_calls_total")
                await garden.recall("What do roses need?")
                await client.run_tool("list_workspaces")
                await found.wait_for("memotree_tool_calls_total")
                await found.wait_for("count_over_time(memotree_tool_calls_total[1m]) > 1")
                yield found
    finally:
        service.kill()


async def faults(prometheus: Prometheus) -> list[str]:
    """What is wrong now with the target, the rules, and what the expressions of the dashboard give."""
    (target,) = (await prometheus.ask("targets"))["activeTargets"]
    found = [] if target["health"] == "up" else [f"the target is {target['health']}: {target['lastError']}"]
    rules = [rule for group in (await prometheus.ask("rules"))["groups"] for rule in group["rules"]]
    found += [
        f"{rule['name']} is {rule['health']} and {rule['state']}: {rule.get('lastError')}"
        for rule in rules
        if rule["health"] != "ok" or rule["state"] == "firing"
    ]
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        for query in panel["targets"]:
            expression = query["expr"].replace("$__rate_interval", "1m")
            if not await prometheus.values(expression) and not any(part in expression for part in UNUSED):
                found.append(f"nothing comes of {expression}")
    return found


async def test_the_rules_and_the_dashboard_hold_on_a_running_server(prometheus: Prometheus) -> None:
    left = ["not looked at"]
    deadline = asyncio.get_running_loop().time() + DEADLINE
    while left and asyncio.get_running_loop().time() < deadline:  # on a busy machine a reading may fail, or come late
        left = await faults(prometheus)
        await asyncio.sleep(0.2)
    assert left == []
