"""Tools on plans pass the check of access: over each interface, in sessions and on branches, like all operations."""

from typing import Any

import httpx2
import pytest
from integration.guarded import Place, place

from memotree.client import ToolResult

__all__ = ["place"]

pytestmark = pytest.mark.requirement("TOOL-7", "SERVE-3")

NOTES = {"workspace": "notes"}


def run(place: Place, name: str, tool: str, /, **given: Any) -> ToolResult:
    with place.client(name) as client:
        return client.run_tool(tool, {**NOTES, **given})


def code(result: ToolResult) -> str:
    return "" if result.error is None else result.error.code


def made(place: Place, name: str, tool: str, /, **given: Any) -> Any:
    result = run(place, name, tool, **given)
    assert result.data is not None, result.message
    return result.data


CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("create_project", {"name": "x"}),
    ("update_project", {"project_id": "Ours", "updates": {"status": "paused"}}),
    ("delete_project", {"project_id": "Ours"}),
    ("create_goal", {"title": "x", "stage": "life"}),
    ("link_goal_to_project", {"goal_id": "x", "project_id": "Ours"}),
    ("create_task", {"title": "x"}),
    ("complete_task", {"task_id": "x"}),
    ("write_review", {"content": "x", "type": "daily"}),
]
READS: list[tuple[str, dict[str, Any]]] = [
    ("get_project", {"project_id": "Ours"}),
    ("analyze_patterns", {"time_range": "week"}),
]


@pytest.fixture(scope="module")
def project(place: Place) -> str:
    return str(made(place, "writer", "create_project", name="Ours")["project"]["id"])


@pytest.mark.parametrize(("tool", "given"), CHANGES)
def test_a_reader_changes_no_plan(place: Place, project: str, tool: str, given: dict[str, Any]) -> None:
    over_http = httpx2.post(
        f"{place.announced.url}/api/tools/{tool}/execute", json={**NOTES, **given}, headers=place.headers("reader")
    )
    codes = {code(run(place, "reader", tool, **given)), over_http.json()["error"]["code"]}
    assert codes == {"ROLE_MISSING"}
    assert over_http.status_code == 403
    assert made(place, "reader", "get_project", project_id=project)["project"]["status"] == "active"


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(("tool", "given"), [*CHANGES, *READS])
def test_to_a_stranger_there_is_no_plan(place: Place, tool: str, given: dict[str, Any]) -> None:
    there, missing = (
        run(place, "stranger", tool, **given),
        run(place, "stranger", tool, **given | {"workspace": "nites"}),
    )
    assert code(there) == code(missing) == "WORKSPACE_NOT_FOUND"
    assert there.message == missing.message.replace("nites", "notes")


def test_a_role_on_some_branches_changes_plans_there_alone(place: Place, project: str) -> None:
    place.notes("limited").branch("agents/plans")
    data = made(place, "limited", "create_task", title="On my branch", branch="agents/plans", project_id=project)
    assert place.notes("limited").show(data["commit_id"]).commit.author.name == "limited"
    for branch in ("", "main"):
        assert code(run(place, "limited", "create_task", title="x", branch=branch)) == "ROLE_MISSING"
    with place.notes("limited").session() as session:  # of main: it may be staged, and proposed
        assert made(place, "limited", "create_task", title="Staged", session_id=session.id)["session_id"] == session.id
        session.discard()


def test_a_session_of_somebody_else_stages_and_shows_no_plan(place: Place, project: str) -> None:
    with place.notes("writer").session() as theirs:
        secret = made(place, "writer", "create_project", name="Secret", session_id=theirs.id)["project"]["id"]
        for tool, given in CHANGES:
            assert code(run(place, "reviewer", tool, session_id=theirs.id, **given)) == "SESSION_NOT_FOUND"
        for tool, given in READS:
            assert code(run(place, "reviewer", tool, revision=theirs.id, **given)) == "REVISION_NOT_FOUND"
        assert code(run(place, "reviewer", "get_project", project_id=secret)) == "NODE_NOT_FOUND"
        assert made(place, "writer", "get_project", project_id=secret, revision=theirs.id)["project"]["id"] == secret
        theirs.discard()
    assert made(place, "reviewer", "get_project", project_id=project)
