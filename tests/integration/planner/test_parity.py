"""Tools on plans over gRPC, HTTP, MCP and the command line: equal results, equal refusals, one principal."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from integration.mcp_clients import over_http
from integration.scripted_server import ScriptedForest, served
from integration.worlds import World
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from memotree.cli.app import app
from memotree.client import AsyncClient
from memotree.gateways.json_schema import OUTPUT
from memotree.server.app import Server

pytestmark = pytest.mark.requirement("TOOL-7", "TOOL-1", "CANVAS-7")

INTERFACES = ("grpc", "http", "mcp", "cli")
TIME = re.compile(r"\d{4}-\d{2}-\d{2}T[\d:]+Z")
OF_ONE_CALL = ("id", "since", "until")
ENDS_OF_ONE_CALL = ("_id", "_ids", "_ms", "_at", "_hours_to_completion")

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("create_goal", {"title": "Goal of {}", "stage": "quarter", "deadline": "2030-01-31"}),
    ("create_project", {"name": "Project of {}", "goal_ids": ["Goal of {}"], "status": "paused"}),
    ("update_project", {"project_id": "Project of {}", "updates": {"status": "active", "description": "Text."}}),
    ("link_goal_to_project", {"project_id": "Project of {}", "goal_id": "Goal of {}"}),
    (
        "create_task",
        {"title": "Task of {}", "project_id": "Project of {}", "due_date": "2030-01-01", "priority": "low"},
    ),
    ("complete_task", {"task_id": "Task of {}", "completion_note": "Yes."}),
    ("complete_task", {"task_id": "Task of {}"}),
    ("write_review", {"content": "Well.", "type": "monthly", "linked_project_ids": ["Project of {}"], "mood": 7}),
    ("get_project", {"project_id": "Project of {}"}),
    ("analyze_patterns", {"time_range": "week", "archive": "of {}"}),
    ("create_task", {"title": "", "due_date": "soon", "priority": "top", "colour": "red"}),
    ("update_project", {"project_id": "Project of {}", "updates": {"status": "done", "goals": []}}),
    ("create_task", {"title": "x", "project_id": "Goal of {}"}),
    ("delete_project", {"project_id": "Nothing of {}"}),
    ("delete_project", {"project_id": "Project of {}", "cascade": True}),
    ("get_project", {"project_id": "Project of {}", "workspace": "nowhere"}),
]

REFUSED = {3, 6, 10, 11, 12, 13, 15}
"""The numbers of those that are refused."""


@pytest.fixture
def scripted() -> ScriptedForest:
    return ScriptedForest()


@pytest_asyncio.fixture
async def server(world: World, scripted: ScriptedForest, tmp_path: Path) -> AsyncIterator[Server]:
    given = {"mcp_tools": "all", "default_workspace": world.workspace}
    async with served(world, scripted, tmp_path / "http", **given) as running:
        yield running


async def called(server: Server, interface: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The result of a call over one interface, as JSON."""
    if interface == "grpc":
        async with AsyncClient(server.address) as client:
            result = await client.run_tool(name, arguments)
        error = result.error
        return {
            "success": result.success,
            "message": result.message,
            "data": result.data,
            "warnings": list(result.warnings),
            "error": error
            and {"code": error.code, "status": error.status, "message": error.message, "details": error.details},
            "metadata": result.metadata,
            "elapsed_ms": result.elapsed_ms,
        }
    if interface == "http":
        async with httpx2.AsyncClient(base_url=server.url, timeout=60) as plain:
            found: dict[str, Any] = (await plain.post(f"/api/tools/{name}/execute", json=arguments)).json()
            return found
    if interface == "mcp":
        async with over_http(server) as agent:
            answer = (await agent.call_tool(name, arguments)).structured_content
            assert answer is not None
            return answer
    command = ["tools", "run", name, "--arguments", "-", "--json", "--address", server.address]
    ran = await asyncio.to_thread(CliRunner().invoke, app, command, json.dumps(arguments))
    document, _ = json.JSONDecoder().raw_decode(ran.stdout[ran.stdout.index("{\n") :])  # beside the server's log
    return {key: value for key, value in document.items() if key != "text"}


def filled(value: Any, word: str) -> Any:
    """Arguments with a word in each text."""
    if isinstance(value, dict):
        return {key: filled(each, word) for key, each in value.items()}
    if isinstance(value, list):
        return [filled(each, word) for each in value]
    return value.format(word) if isinstance(value, str) else value


def comparable(value: Any, word: str) -> Any:
    """A result without what differs from call to call: times, ids, and the word."""
    if isinstance(value, dict):
        return {
            key: "…" if key in OF_ONE_CALL or (key.endswith(ENDS_OF_ONE_CALL) and each) else comparable(each, word)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [comparable(each, word) for each in value]
    if not isinstance(value, str):
        return value
    plain = TIME.sub("…", value.replace(word, "…"))
    return " ".join(
        "…" if len(part.strip("(:),.")) == 16 and part.strip("(:),.").isalnum() else part for part in plain.split()
    )


async def test_each_tool_has_equal_results_over_every_interface(server: Server) -> None:
    for number, (name, arguments) in enumerate(CALLS):
        results = []
        for interface in INTERFACES:
            given = filled(arguments, interface)
            if name.startswith(("create_", "write_")):
                given["archive"] = f"of {interface}"
            result = await called(server, interface, name, given)
            Draft202012Validator(OUTPUT).validate(result)
            results.append(comparable(result, interface))
        assert results == [results[0]] * len(INTERFACES), (number, name)
        assert results[0]["success"] is (number not in REFUSED), (number, name)


async def test_a_plan_in_a_default_workspace_that_is_not_there_creates_it(
    world: World, scripted: ScriptedForest, tmp_path: Path
) -> None:
    async with served(world, scripted, tmp_path / "http", default_workspace="fresh") as running:
        made = await called(running, "grpc", "create_task", {"title": "First"})
        assert made["success"]
        assert made["metadata"]["workspace"] == "fresh"
        found = await called(running, "http", "analyze_patterns", {"time_range": "week"})
        assert found["success"]
