"""MCP with the client of its SDK over streamable HTTP, in both eras of the protocol."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from integration.mcp_clients import ERAS, WHOLE, done, over_http, refused
from integration.scripted_server import COMMIT, ScriptedForest, served
from integration.worlds import World
from jsonschema import Draft202012Validator
from mcp import MCPError
from memotree_storage.postgres import tree
from memotree_storage.postgres.tree import Snapshot, State

from memotree.gateways.everyday_tools import EVERYDAY
from memotree.gateways.json_schema import OUTPUT, SHORT_OUTPUT
from memotree.server.app import Server
from memotree.v1 import job_service_pb2 as jobs


@pytest.fixture
def scripted() -> ScriptedForest:
    return ScriptedForest()


@pytest_asyncio.fixture
async def server(world: World, scripted: ScriptedForest, tmp_path: Path) -> AsyncIterator[Server]:
    async with served(world, scripted, tmp_path / "http", mcp_tools="all") as running:
        yield running


@pytest_asyncio.fixture
async def everyday(world: World, scripted: ScriptedForest, tmp_path: Path) -> AsyncIterator[Server]:
    """A server that offers the tools of an agent's day in the workspace of the world."""
    given = {"default_workspace": world.workspace}
    async with served(world, scripted, tmp_path / "http", **given) as running:
        yield running


@pytest.mark.requirement("FOREST-14")
@pytest.mark.parametrize("era", ERAS)
async def test_the_tools_are_listed_in_one_order_with_schema_and_annotations(everyday: Server, era: str) -> None:
    async with over_http(everyday, era) as client:
        listed = (await client.list_tools()).tools
        again = (await client.list_tools()).tools
    assert [tool.name for tool in listed] == [tool.name for tool in EVERYDAY] == [tool.name for tool in again]
    (explore,) = [tool for tool in listed if tool.name == "explore_memory_node"]
    assert set(explore.input_schema["properties"]) == {"revision", "node_id", "query", "threshold", "part"}
    assert explore.input_schema["required"] == ["node_id", "query"]
    assert explore.annotations is not None
    assert (explore.annotations.read_only_hint, explore.annotations.open_world_hint) == (True, False)
    for tool in listed:
        Draft202012Validator.check_schema(tool.input_schema)
        assert tool.description
        assert tool.annotations is not None


@pytest.mark.requirement("FOREST-14")
async def test_every_tool_reaches_its_operation(server: Server, world: World) -> None:
    """Called with only the required arguments, each tool returns a result or a refusal of its operation."""
    values = {"string": "zzzz", "integer": 1, "array": ["zzzz"], "object": {"type": "EXTENDS", "target_id": "zzzz"}}
    values_of = {"reviewer": {"name": "ada"}, "verdict": "APPROVE", "target": {"text": "zzzz"}, "revision": "main"}
    values_of |= {"type": "EXTENDS", "parts": [{"title": "a"}], "changes": [{}], "updates": {"name": "a"}}

    def value_of(name: str, shape: dict[str, Any]) -> Any:
        value = values_of.get(name) or values[shape["type"]]
        return value if value in shape.get("enum", [value]) else shape["enum"][0]

    async with over_http(server) as client:
        for tool in (await client.list_tools()).tools:
            needed = tool.input_schema.get("required", [])
            given = {
                name: value_of(name, shape) for name, shape in tool.input_schema["properties"].items() if name in needed
            }
            if "workspace" in tool.input_schema["properties"]:
                given["workspace"] = world.workspace
            result = (await client.call_tool(tool.name, given, meta=WHOLE)).structured_content
            error = result["error"] or {}
            assert error.get("status") not in {"INTERNAL", "UNKNOWN"}, (tool.name, result)
            assert error.get("code") != "INVALID_ARGUMENTS", (tool.name, result)
            assert result["metadata"]["tool"] == tool.name
            assert "elapsed_ms" in result


@pytest.mark.requirement("CANVAS-7")
async def test_every_fault_of_the_arguments_is_listed_and_a_refusal_names_a_tool_that_helps(
    server: Server, world: World
) -> None:
    async with over_http(server) as client:
        given = {"parts": [{"title": "a"}, {"titel": "b"}, "c"], "as_children": "yes", "request_id": "r"}
        error, text = await refused(client, "split_node", session_id="s", **given)
        changes = [{"create": {"title": 1}, "delete": {"node_id": "a"}}]
        nested, _ = await refused(client, "batch_change_nodes", session_id="s", changes=changes)
        missing, advice = await refused(client, "get_node", workspace="nowhere", node_id="abcd")
        fault, _ = await refused(client, "open_session", workspace=world.workspace, agent="a\x07b")
    assert (error["code"], error["status"]) == ("INVALID_ARGUMENTS", "INVALID_ARGUMENT")
    faults = [fault["field"] for fault in error["details"]["violations"]]
    assert faults == ["parts[1].titel", "parts[2]", "as_children", "request_id", "node_id"]
    assert "did you mean title?" in text
    faults = [fault["field"] for fault in nested["details"]["violations"]]
    assert faults == ["changes[0].create.title", "changes[0].delete"]
    assert (missing["code"], missing["status"]) == ("WORKSPACE_NOT_FOUND", "NOT_FOUND")
    assert "list_workspaces" in advice
    assert [each["field"] for each in fault["details"]["violations"]] == ["agent"]


@pytest.mark.requirement("USE-10")
async def test_a_note_is_named_by_its_title_or_path_in_every_tool_of_the_day(everyday: Server, world: World) -> None:
    async with over_http(everyday) as client:
        made = (await done(client, "remember", text="The budget is 40k.", title="Budget"))["node"]["id"]
        about = await done(client, "remember", text="It was agreed.", title="Agreed", about=["Budget"])
        assert await targets(world, about["node"]["id"]) == [made]
        revised = await done(client, "revise", node_id="notes/Budget", text="The budget is 45k.")
        assert revised["node"]["id"] == made
        await done(client, "explore_memory_node", node_id="Budget", query="money")
        assert len((await done(client, "history", node_id="Budget"))["commits"]) == 2
        assert (await done(client, "forget", node_id="Budget"))["node"]["id"] == made
        assert (await done(client, "restore", node_id="Budget"))["node"]["id"] == made
        revised = await client.call_tool("revise", {"node": "  BUDGET", "text": "It is 50k."})
        assert revised.structured_content["data"]["node"]["id"] == made
        assert "Before, it was: Budget: The budget is 45k." in revised.content[0].text
        wrong = await client.call_tool("forget", {"node": "Budgte"})
        assert wrong.is_error
        assert f"Did you mean one of {made} (Budget)" in wrong.content[0].text


async def targets(world: World, node_id: str) -> list[str]:
    """The nodes to which a node has relations."""
    async with world.store.database.connection() as conn:
        found = await tree.versions(Snapshot(conn, State(world.workspace, await world.head())), [node_id])
    return [target for _, target, _ in found[node_id].relations]


@pytest.mark.requirement("USE-10")
async def test_a_name_of_no_node_or_of_several_says_so_and_a_page_how_to_go_on(server: Server, world: World) -> None:
    await world.put(*(twins := [world.node("Twin", tags=(f"t{number}",)) for number in range(2)]))
    place = {"workspace": world.workspace}
    ids = sorted(node.id for node in twins)
    async with over_http(server) as client:
        none, text = await refused(client, "forget", node_id="Nobody", **place)
        assert (none["code"], none["status"]) == ("NO_NODE_NAMED", "NOT_FOUND")
        assert "recall" in text
        several, text = await refused(client, "forget", node_id="Twin", **place)
        assert (several["code"], several["status"]) == ("AMBIGUOUS_NODE_NAME", "INVALID_ARGUMENT")
        assert sorted(node["id"] for node in several["details"]["nodes"]) == ids
        assert all(f"{node_id} (notes/Twin)" in text for node_id in ids)
        found = await client.call_tool("resolve_node", {"name": "notes/Twin", **place}, meta=WHOLE)
        assert [each["node"]["id"] for each in found.structured_content["data"]["candidates"]] == ids
        assert "could be each of these nodes" in found.content[0].text
        page = await client.call_tool("get_tree", {"archive": "notes", "page_size": 1, **place}, meta=WHOLE)
        token = page.structured_content["data"]["next_page_token"]
        assert f"More: page_token {token}" in page.content[0].text
        rest = await done(client, "get_tree", archive="notes", page_size=1, page_token=token, **place)
        assert [each["node"]["title"] for each in rest["nodes"]] == ["Twin"]
        one, _ = await refused(client, "forget", node_id=ids[0][:3], **place)
        assert one["code"] == "NO_NODE_NAMED", "an id needs four characters"
        await done(client, "forget", node_id=ids[0], **place)
        assert (await done(client, "forget", node_id="Twin", **place))["node"]["id"] == ids[1]


@pytest.mark.requirement("USE-10")
async def test_a_tool_that_an_error_names_and_that_is_not_offered_is_told(everyday: Server, server: Server) -> None:
    for running, is_told in ((everyday, True), (server, False)):
        async with over_http(running) as client:
            _, text = await refused(client, "history", revision="nowhere")
            assert "list_branches" in text
            assert ("Not offered here: list_sessions, list_branches" in text) is is_told


@pytest.mark.requirement("USE-5")
async def test_one_fact_takes_one_call_and_its_author_is_the_program_that_calls(everyday: Server, world: World) -> None:
    async with over_http(everyday) as client:
        made = await done(client, "remember", text="The budget is 40k.", title="Budget")
        again = await client.call_tool("remember", {"text": "The budget is 40k."})
        assert "probably says the same" in again.content[0].text
        await done(client, "forget", node_id=again.structured_content["data"]["node"]["id"])
        revised = await done(client, "revise", query="budget", text="The budget is 45k.")
        assert revised["node"]["id"] == made["node"]["id"]
        await done(client, "restore", node=made["node"]["id"], revision=made["commit_id"])
        log = (await done(client, "history", node_id=made["node"]["id"]))["commits"]
    told = [commit["message"].partition("\n")[0] for commit in log]
    assert told == ["Restore: Budget", "Revise: Budget", "Remember: Budget"]
    assert {commit["author"]["name"] for commit in log} == {"mcp"}
    assert world.repository.commit_info(made["commit_id"]).author.name == "mcp"


@pytest.mark.requirement("USE-5")
async def test_nodes_are_resources_and_prompts_tell_how_to_use_the_memory(everyday: Server, world: World) -> None:
    async with over_http(everyday) as client:
        made = await done(client, "remember", text="The budget is 40k.", title="Budget")
        node_id, commit = made["node"]["id"], made["commit_id"]
        await done(client, "revise", node_id=node_id, text="The budget is 45k.")
        for since, count in (("2001-02-03", 2), ("8 May 2999", 0), ("2001-02-03T04:05:06.789Z", 2)):
            assert len((await done(client, "history", node_id=node_id, since=since))["commits"]) == count
        listed = {str(each.uri) for each in (await client.list_resources()).resources}
        assert listed == {"memory://guide", "memory://results"}
        (template,) = (await client.list_resource_templates()).resource_templates
        uri = template.uri_template.replace("{workspace}", world.workspace).replace("{node_id}", node_id)
        assert (await client.read_resource(uri)).contents[0].text == "# Budget\n\nThe budget is 45k.\n"
        assert (await client.read_resource(f"{uri}@{commit}")).contents[0].text == "# Budget\n\nThe budget is 40k.\n"
        name = world.workspace
        quoted = f"{uri}%40{commit}".replace(name, f"%{ord(name[0]):x}{name[1:]}")
        assert (await client.read_resource(quoted)).contents[0].text == "# Budget\n\nThe budget is 40k.\n"
        schema = json.loads((await client.read_resource("memory://results")).contents[0].text)
        assert schema == {"anyOf": [SHORT_OUTPUT, OUTPUT]}
        guide = (await client.read_resource("memory://guide")).contents[0].text
        prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
        assert prompts == {"use_memory", "what_is_known_about"}
        assert (await client.get_prompt("use_memory")).messages[0].content.text == guide
        known = await client.get_prompt("what_is_known_about", {"subject": "oaks"})
        assert "About oaks." in known.messages[0].content.text
        for wrong in ("memory://nowhere/zzzz", "memory://x", "file:///etc/passwd"):
            with pytest.raises(MCPError):
                await client.read_resource(wrong)
        with pytest.raises(MCPError, match="no prompt"):
            await client.get_prompt("other")


async def test_an_unknown_tool_is_a_protocol_error_and_one_that_is_not_offered_says_how_to_have_it(
    everyday: Server,
) -> None:
    async with over_http(everyday) as client:
        with pytest.raises(MCPError, match="--tools all"):
            await client.call_tool("open_session", {})
        with pytest.raises(MCPError, match="There is no tool 'nothing'"):
            await client.call_tool("nothing", {})
        nowhere = await client.call_tool("remember", {"text": "oaks", "workspace": "nowhere"})
        assert nowhere.content[0].text.startswith(
            "WORKSPACE_NOT_FOUND: There is no such workspace. Leave it out to use"
        )
        assert (await client.call_tool("exploreMemoryNode", {"node_id": "nothing"})).is_error  # and no protocol error
        for nearly, meant in {"ingest": "ingest_document", "explore": "explore_memory_node", "recal": "recall"}.items():
            with pytest.raises(MCPError, match=f"Did you mean {meant}\\?"):
                await client.call_tool(nearly, {})


@pytest.mark.requirement("FOREST-14")
async def test_what_a_model_reads_is_the_text_itself(server: Server) -> None:
    async with over_http(server) as client:
        recalled = await client.call_tool("recall", {"query": "oaks"}, meta=WHOLE)
        answered = await client.call_tool("ask", {"query": "oaks"})
        explored = await client.call_tool("explore_memory_node", {"query": "oaks", "node_id": "abcd"})
    confidence = f"Confidence: STRONG (0.97). Read at commit {COMMIT[:10]}"
    assert recalled.content[0].text == f"# Notes\n\nAbout oaks.\n\n{confidence}\nWarning: It is old."
    assert recalled.structured_content["warnings"] == ["It is old."]
    cited = "[1] Leaf [0123456789abcdef], guide.md, page 2, characters 3-9"
    confidence = f"Confidence: WEAK. Read at commit {COMMIT[:10]}"  # an answer has no likelihood of its own
    assert answered.content[0].text == f"Forty-two.\n{cited}\n\n{confidence}"
    assert "Leaf [0123456789abcdef] (leaf_chunk, score 0.95)\n> All of it." in explored.content[0].text
    assert "3 more below the threshold." in explored.content[0].text


@pytest.mark.parametrize("era", ERAS)
async def test_progress_is_reported_during_an_ingestion_and_only_grows(server: Server, era: str) -> None:
    told: list[tuple[float, str | None]] = []

    async def on_progress(done: float, _total: float | None, message: str | None) -> None:
        told.append((done, message))

    document = {"name": "A", "model_id": "m", "text": "Some text."}
    async with over_http(server, era) as client:
        result = await client.call_tool("ingest_document", document, progress_callback=on_progress, meta=WHOLE)
        asked = await client.call_tool("ask", {"query": "oaks"}, progress_callback=on_progress)
    assert not result.is_error
    assert not asked.is_error
    assert result.structured_content["warnings"] == ["A page had no text."]
    of_ingestion, of_ask = told[:-2], told[-2:]
    assert [message for _, message in of_ingestion][:2] == ["summaries 0 of 2", "summaries 1 of 2"]
    assert [value for value, _ in of_ingestion] == sorted({value for value, _ in of_ingestion})
    assert of_ask == [(1.0, "recall: It looks near."), (2.0, "explore: It looks near.")]


async def test_a_job_that_stops_is_a_failure_that_names_the_job(server: Server, scripted: ScriptedForest) -> None:
    scripted.job_state = jobs.JOB_STATE_STOPPED
    async with over_http(server) as client:
        error, text = await refused(client, "ingest_document", name="A", model_id="m", text="Some text.")
    assert error["code"] == "BUDGET_EXHAUSTED"
    assert error["details"]["metadata"] == {"job_id": "j0b0000000000000"}
    assert "resume_job" in text


@pytest.mark.requirement("CANVAS-8")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("tool", ["recall", "ask"])
async def test_a_cancelled_call_cancels_its_operation(
    server: Server, scripted: ScriptedForest, era: str, tool: str
) -> None:
    scripted.hold = asyncio.Event()
    async with over_http(server, era) as client:
        call = asyncio.create_task(client.call_tool(tool, {"query": "oaks"}))
        await asyncio.wait_for(scripted.begun.wait(), 60)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(scripted.cancelled.wait(), 60)
        scripted.hold = None
        assert not (await client.call_tool(tool, {"query": "oaks"})).is_error


@pytest.mark.parametrize("era", ERAS)
async def test_a_stop_of_the_server_does_not_wait_for_idle_clients(server: Server, era: str) -> None:
    async with over_http(server, era) as client:
        await client.list_tools()
        await asyncio.wait_for(server.stop(3600), 60)
