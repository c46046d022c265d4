"""Every interface counts its calls once, and the figures of the stores are told."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from integration.mcp_clients import over_http
from integration.scripted_server import ScriptedForest, served
from integration.worlds import World
from memotree_storage.errors import UnavailableError
from memotree_storage.postgres.figures import Figures, read_figures
from prometheus_client import CollectorRegistry

from memotree.client import AsyncClient, NotFoundError
from memotree.metrics.call_metrics import CallMetrics
from memotree.metrics.server_metrics import ServerMetrics
from memotree.metrics.store_figures import Sources, StoreFigures
from memotree.server.app import Server
from memotree.server.binding import contract

pytestmark = pytest.mark.requirement("TOOL-12")

METHODS = [f"{service.full_name}/{each.name}" for service in contract().values() for each in service.methods]


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest_asyncio.fixture
async def server(world: World, registry: CollectorRegistry, tmp_path: Path) -> AsyncIterator[Server]:
    observers = [CallMetrics(registry, METHODS)]
    given = {"mcp_tools": "all", "default_workspace": world.workspace}
    async with served(world, ScriptedForest(), tmp_path / "http", observers, **given) as running:
        yield running


def counted(registry: CollectorRegistry, name: str) -> dict[tuple[str, ...], float]:
    """The counters of a metric that are not 0, by the values of their labels, in the order of the labels' names."""
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == name and sample.value
    }


async def test_a_tool_counts_once_for_each_interface_and_its_rpcs_are_told_apart(
    server: Server, registry: CollectorRegistry
) -> None:
    async with AsyncClient(server.address) as client:
        await client.run_tool("list_archives", {})
        with pytest.raises(NotFoundError):
            [archive async for archive in client.workspace("nowhere").archives()]
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as http:
        await http.post("/api/tools/list_archives/execute", content="{}", headers={"content-type": "application/json"})
        refused = await http.post(
            "/api/tools/get_node/execute",
            content=json.dumps({"node_id": 1}),
            headers={"content-type": "application/json"},
        )
    async with over_http(server) as agent:
        await agent.call_tool("list_archives", {})
    assert counted(registry, "memotree_tool_calls_total") == {
        ("OK", "grpc", "list_archives"): 1,
        ("OK", "http", "list_archives"): 1,
        ("OK", "mcp", "list_archives"): 1,
        (refused.json()["error"]["code"], "http", "get_node"): 1,
    }
    calls = counted(registry, "memotree_calls_total")
    assert calls.pop(("OK", "grpc", "memotree.v1.ToolService/ExecuteTool")) == 1
    assert calls.pop(("OK", "tool", "memotree.v1.WorkspaceService/ListArchives")) == 3
    assert calls.pop(("NOT_FOUND", "grpc", "memotree.v1.WorkspaceService/ListArchives")) == 1
    assert calls.pop(("OK", "local", "memotree.v1.ToolService/ListTools"), 1) == 1  # MCP asks which functions there are
    assert not calls


def sources_of(world: World, **given: Any) -> Sources:
    async def count_rows() -> Figures:
        async with world.store.database.connection() as conn:
            return await read_figures(conn)

    async def silent() -> dict[str, str]:
        return {}

    standard = {
        "count_rows": count_rows,
        "silent_stores": silent,
        "pool_use": lambda: world.store.database.pool_use,
        "recall_bytes": lambda: 7,
        "recall_limit": 100,
        "models": list,
        "audit": lambda: (3, 0),
        "job_kinds": ("ingest", "erase"),
    }
    return Sources(**(standard | given))


@pytest.mark.own_store
async def test_the_rows_and_the_pool_are_told(world: World) -> None:
    await world.open()
    metrics = ServerMetrics(METHODS, sources_of(world))
    value = metrics.registry.get_sample_value
    assert await asyncio.to_thread(value, "memotree_open_sessions") == 1
    assert await asyncio.to_thread(value, "memotree_store_up", {"store": "postgres"}) == 1
    assert await asyncio.to_thread(value, "memotree_recall_cache_bytes") == 7
    for kind in ("ingest", "erase"):
        assert await asyncio.to_thread(value, "memotree_jobs", {"kind": kind, "state": "failed"}) == 0
    most = await asyncio.to_thread(value, "memotree_postgres_connections", {"state": "most"})
    assert most == world.store.database.pool_use.most


async def test_a_job_that_failed_is_told_in_the_place_of_none(world: World) -> None:
    async def count_rows() -> Figures:
        return Figures(jobs={("ingest", "failed"): 2, ("ingest", "running"): 1, ("gone", "failed"): 1})

    figures = StoreFigures(sources_of(world, count_rows=count_rows), asyncio.get_running_loop())
    (jobs,) = [each for each in await asyncio.to_thread(list, figures.collect()) if each.name == "memotree_jobs"]
    assert {(each.labels["kind"], each.labels["state"]): each.value for each in jobs.samples} == {
        ("erase", "failed"): 0, ("gone", "failed"): 1, ("ingest", "failed"): 2, ("ingest", "running"): 1,
    }  # fmt: skip


async def test_a_scrape_is_answered_while_postgresql_is_silent(world: World) -> None:
    async def silent() -> dict[str, str]:
        return {"postgres": "It does not answer."}

    async def fails() -> Figures:
        raise UnavailableError("It does not answer.")

    for sources in (sources_of(world, silent_stores=silent), sources_of(world, count_rows=fails)):
        figures = StoreFigures(sources, asyncio.get_running_loop())
        names = {metric.name for metric in await asyncio.to_thread(list, figures.collect())}
        assert "memotree_store_up" in names
        assert "memotree_open_sessions" not in names
