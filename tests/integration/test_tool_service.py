"""Tools over gRPC, HTTP, MCP and the command line: one declaration, one result."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest
from integration.mcp_clients import WHOLE, over_http
from integration.scripted_server import MISSING, ScriptedForest, served
from integration.shared_servers import SharedServer, shared_server
from integration.worlds import World
from jsonschema import Draft202012Validator
from memotree_storage.model.node import new_id
from memotree_storage.store import Store
from steps import Steps
from structlog.testing import capture_logs
from typer.testing import CliRunner

from memotree.cli.app import app
from memotree.client import AsyncClient, InvalidArgumentError, NotFoundError, ToolCall, ToolResult
from memotree.gateways.callers import LocalCaller
from memotree.gateways.catalogue import Catalogue
from memotree.gateways.json_messages import MOST_FAULTS
from memotree.gateways.json_schema import OUTPUT
from memotree.gateways.tool_operations import MOST_CALLS, ToolOperations
from memotree.server.app import Server
from memotree.v1 import tool_service_pb2 as pb

pytestmark = pytest.mark.requirement("TOOL-2")

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("list_workspaces", {}),
    ("search_nodes", {"query": "a tree", "max_results": 3}),
    ("recall", {"query": "What is it?"}),
    ("list_archives", {"page_size": 2}),
    ("explore_memory_node", {"node_id": MISSING, "query": "b"}),
    ("explore_memory_node", {"node_id": "fedcba9876543210", "query": "b", "threshold": 1.5}),
    ("get_node", {}),
    ("get_node", {"node_id": "nobody", "depth": 1}),
    ("search_nodes", {"query": 1, "scope": "NOWHERE", "tags": "x"}),
    ("list_archives", {"workspace": "nowhere"}),
    ("calculator", {"expression": "2 ^ 70 / 3"}),
    ("calculator", {"expression": "1 / 0"}),
    ("calculator", {"expression": ["1"], "precision": 2}),
    ("calculator", {}),
    ("date_time", {"action": "add", "time": "2026-01-31", "months": 1}),
    ("date_time", {"action": "sometimes", "zone": 5, "hours": "soon", "days": 1.5, "text": "\u00e9"}),
    ("date_time", {"zone": "../etc/passwd"}),
    ("list_documents", {}),
    ("document_count", {"where": {"media_type": 5}, "workspace": "nowhere"}),
    ("document_info", {"document": "nothing"}),
    ("delete_document", {"document": "nothing", "workspace": "nowhere"}),
    ("list_folder", {}),
    ("get_project", {"project_id": "nobody"}),
    ("create_task", {"title": "", "due_date": "soon", "priority": "top", "colour": "red"}),
    ("read_file", {"path": "nothing.txt"}),
    ("read_file", {"path": "../../../../etc/passwd", "offset": -1}),
    ("read_file", {"path": "/etc/passwd"}),
    ("http_request", {"url": "http://127.0.0.1/"}),
    ("http_request", {"url": "http://0x7f.1/", "headers": {"Host": "x"}}),
    ("check_host", {"host": "169.254.169.254", "port": "80"}),
]
"""Calls that change nothing, that succeed, fail, or have faults in their arguments."""


@pytest.fixture(scope="module")
async def shared(shared_store: Store, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedServer]:
    async with shared_server(
        shared_store,
        tmp_path_factory.mktemp("tools"),
        mcp_tools="all",
        max_message_bytes=100_000,
        max_content_bytes=50_000,
    ) as running:
        yield running


@pytest.fixture(autouse=True)
def scripted(shared: SharedServer) -> ScriptedForest:
    return shared.forest()


@pytest.fixture
def server(shared: SharedServer) -> Server:
    return shared.server


@pytest.fixture
def world(shared: SharedServer) -> World:
    return shared.world


@pytest.fixture
def catalogue() -> Catalogue:
    """The tools, whose operations must not be reached."""
    return Catalogue(LocalCaller({}), "main")


@pytest.fixture(scope="module")
async def client(shared: SharedServer) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(shared.server.address) as found:
        yield found


@pytest.fixture(scope="module")
async def http(shared: SharedServer) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=shared.server.url, timeout=60) as found:
        yield found


AS_JSON = {"content-type": "application/json"}


def as_json(result: ToolResult) -> dict[str, Any]:
    """A result as HTTP and MCP give it."""
    fields: dict[str, Any] = json.loads(json.dumps(asdict(result)))
    del fields["text"]
    return fields


def untimed(result: dict[str, Any]) -> dict[str, Any]:
    """A result without how long it took, which differs."""
    Draft202012Validator(OUTPUT).validate(result)
    return {name: value for name, value in result.items() if name != "elapsed_ms"}


@pytest.mark.requirement("TOOL-1", "TOOL-10")
async def test_tools_are_described_alike_everywhere_and_listed_by_category(
    server: Server, client: AsyncClient, http: httpx2.AsyncClient
) -> None:
    listed = await client.tools()
    told = (await http.get("/api/tools")).json()["tools"]
    assert [tool.name for tool in listed] == [tool["name"] for tool in told]
    async with over_http(server) as agent:
        over_mcp = {tool.name: tool for tool in (await agent.list_tools()).tools}
    for tool, document in zip(listed, told, strict=True):
        assert document == json.loads(json.dumps(asdict(tool)))
        described = over_mcp[tool.name]
        assert (described.description, described.input_schema) == (tool.description, tool.parameters)
        assert document == (await http.get(f"/api/tools/{tool.name}")).json()
        Draft202012Validator.check_schema(dict(tool.parameters))
        for example in tool.examples:
            Draft202012Validator(dict(tool.parameters)).validate(example)
    for category in {tool.category for tool in listed}:
        some = await client.tools(category)
        assert some == tuple(tool for tool in listed if tool.category == category)
        assert len((await http.get("/api/tools", params={"category": category})).json()["tools"]) == len(some)
    with pytest.raises(InvalidArgumentError, match="choose one of memory, forest") as refused:
        await client.tools("nonsense")
    answer = await http.get("/api/tools", params={"category": "nonsense"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, refused.value.reason)


@pytest.mark.requirement("CANVAS-7", "TOOL-10")
async def test_a_call_has_the_same_result_everywhere(
    server: Server, client: AsyncClient, http: httpx2.AsyncClient
) -> None:
    async with over_http(server) as agent:
        for name, arguments in CALLS:
            asked = (name, arguments)
            result = await client.run_tool(name, arguments)
            over_grpc = untimed(as_json(result))
            answer = await http.post(f"/api/tools/{name}/execute", json=arguments)
            assert untimed(answer.json()) == over_grpc, asked
            assert (answer.status_code == 200) is result.success, asked
            called = await agent.call_tool(name, arguments, meta=WHOLE)
            assert called.structured_content is not None, asked
            assert untimed(called.structured_content) == over_grpc, asked
            assert called.content[0].text == result.text, asked
            command = ["tools", "run", name, "--arguments", "-", "--json", "--address", server.address]
            ran = await asyncio.to_thread(CliRunner().invoke, app, command, json.dumps(arguments))
            assert (ran.exit_code == 0) is result.success, asked
            # The server's log is beside the document.
            document, _ = json.JSONDecoder().raw_decode(ran.stdout[ran.stdout.index("{\n") :])
            assert untimed({key: value for key, value in document.items() if key != "text"}) == over_grpc, asked


async def test_a_function_that_means_a_default_workspace_which_is_not_there_creates_it(
    world: World, tmp_path: Path
) -> None:
    fresh = served(world, ScriptedForest(), tmp_path / "http", default_workspace=f"fresh-{new_id()}")
    async with fresh as running, AsyncClient(running.address) as client:
        assert (await client.run_tool("list_documents")).data == {"documents": []}


async def test_a_batch_is_called_in_order_and_stops_at_the_first_that_fails(client: AsyncClient, world: World) -> None:
    opened = await client.run_tool("open_session", {"agent": "bee"})
    assert opened.data is not None
    session = opened.data["session"]["id"]
    calls = [
        ToolCall("create_archive", {"session_id": session, "name": "batch"}),
        ToolCall("create_archive", {"session_id": session, "name": ""}),
        ToolCall("create_archive", {"session_id": session, "name": "later"}),
    ]
    results = await client.run_tools(calls, workspace=world.workspace)
    assert [result.success for result in results] == [True, False]
    names = {archive.name async for archive in client.workspace(world.workspace).at(session).archives()}
    assert "batch" in names
    assert "later" not in names
    results = await client.run_tools(calls[1:], go_on=True)
    assert [result.success for result in results] == [False, True]


async def test_a_batch_that_cannot_be_called_whole_calls_none(client: AsyncClient, world: World) -> None:
    before = [each.id async for each in client.workspace(world.workspace).sessions()]
    opening = ToolCall("open_session")
    with pytest.raises(NotFoundError, match="There is no tool 'nothing'") as refused:
        await client.run_tools([opening, ToolCall("nothing")])
    assert refused.value.reason == "UNKNOWN_TOOL"
    for call in (client.tool(""), client.run_tool(""), client.run_tools([opening, ToolCall("")])):
        with pytest.raises(InvalidArgumentError, match="name"):
            await call
    for count in (0, MOST_CALLS + 1):
        with pytest.raises(InvalidArgumentError, match=f"has {count} calls; give 1 to {MOST_CALLS}"):
            await client.run_tools([opening] * count)
    assert [each.id async for each in client.workspace(world.workspace).sessions()] == before


async def test_a_batch_ends_when_its_answers_are_large(client: AsyncClient) -> None:
    made = await client.run_tool("remember", {"text": "x" * 40_000, "title": "Long"})
    assert made.success
    results = await client.run_tools([ToolCall("get_node", {"node_id": "Long"})] * 20, go_on=True)
    assert [result.success for result in results] == [True, True, False]
    assert results[-1].error is not None
    assert (results[-1].error.code, results[-1].error.status) == ("ANSWERS_TOO_LARGE", "RESOURCE_EXHAUSTED")
    assert "send them in another batch" in results[-1].message


async def test_a_long_note_is_read_in_parts(server: Server, client: AsyncClient, world: World) -> None:
    said = "".join(f"The tide number {number} is here. " for number in range(1_600))
    await world.put(note := world.node("Tide table", content=said))
    call = {"node_id": note.id, "workspace": world.workspace, "level": "DETAIL"}
    parts = [await client.run_tool("get_node", {**call, "part": part}) for part in (1, 2)]
    assert all(part.data for part in parts)
    assert "".join(part.data["node"]["content"] for part in parts) == said
    assert parts[0].text.endswith("Part 1 of 2. The same call with part=2 goes on.")
    assert parts[1].text.endswith("Part 2 of 2.")
    assert parts[0].message.endswith("The same call with part=2 goes on."), "a program that reads no text is told, too"
    refused = await client.run_tool("get_node", {**call, "part": 3})
    assert refused.error is not None
    assert (refused.error.code, "the answer has 2 parts" in refused.message) == ("INVALID_ARGUMENTS", True)
    async with over_http(server) as agent:
        short: Any = (await agent.call_tool("get_node", call)).structured_content
    assert short["data"]["next_part"] == 2
    assert len(json.dumps(short)) < 50_000


async def test_a_repeated_call_has_its_effect_once(client: AsyncClient, world: World) -> None:
    note = {"text": "Ants do not sleep."}
    first, again = [await client.run_tool("remember", note, request_id="once") for _ in range(2)]
    assert first.data is not None
    assert first.data == again.data
    calls = [ToolCall("remember", {"text": f"Wasp {number}."}) for number in range(2)]
    one = await client.run_tools(calls, request_id="both")
    before = [each.id async for each in client.workspace(world.workspace).log()]
    two = await client.run_tools(calls, request_id="both")
    assert [result.data for result in one] == [result.data for result in two]
    assert [each.id async for each in client.workspace(world.workspace).log()] == before


FAULTS: list[tuple[str, dict[str, Any], str]] = [
    ("recall", {"query": "x", "filter": "abc", "tags": ["a"]}, "filter"),
    ("recall", {"query": "x", "tags": ["a"], "filter": [1]}, "filter"),
    ("recall", {"tags": ["a"], "query": "x", "filter": 5}, "filter"),
    ("remember", {"text": "a", "attributes": '{"\\ud800": "x"}'}, "attributes"),
    ("remember", {"text": "a", "attributes": {"\ud800": "x"}}, "attributes['\\\\ud800']"),
    ("add_relation", {"session_id": "s", "node_id": "n", "relation": '{"\\ud800": 1}'}, "relation"),
    ("batch_change_nodes", {"session_id": "s", "changes": ['{"\\ud800": {}}']}, "changes[0]"),
    ("remember", {"text": "a", "attributes": '{"a": NaN}'}, "attributes"),
    ("remember", {"text": False, "workspace": False}, "workspace"),
]


@pytest.mark.requirement("TOOL-3")
async def test_no_arguments_are_a_fault_of_the_server(catalogue: Catalogue) -> None:
    for name, arguments, field in FAULTS:
        result = await catalogue.call(name, arguments)
        assert result.failure is not None, arguments
        assert result.failure.code == "INVALID_ARGUMENTS", arguments
        assert field in [each["field"] for each in result.failure.details["violations"]], arguments
        json.dumps(result.to_json(), ensure_ascii=False).encode()


async def test_many_faults_take_few_steps(catalogue: Catalogue) -> None:
    few, many = [{f"pagesize_{number}": 1 for number in range(count)} for count in (100, 20_000)]
    steps = []
    for arguments in (few, many):
        with Steps() as counted:
            result = await catalogue.call("list_archives", arguments)
        steps.append(counted.count)
        assert result.failure is not None
        assert 10 < len(result.failure.details["violations"]) <= MOST_FAULTS
        assert "the first 50 faults of more" in result.message
    assert steps[1] < 5 * steps[0]


async def test_a_fault_of_ours_fails_one_call_of_a_batch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    operations = ToolOperations(Catalogue(LocalCaller({}), world.workspace), 1 << 20)

    def broken(*_: Any) -> Any:
        raise RuntimeError("a secret of ours")

    monkeypatch.setattr(Catalogue, "request", broken)
    calls = [pb.ToolCall(name="list_workspaces")] * 2
    answer = await operations.execute_tools(pb.ExecuteToolsRequest(calls=calls, go_on=True))
    assert [result.error.code for result in answer.results] == ["INTERNAL"] * 2
    assert "a secret" not in str(answer)


@pytest.mark.requirement("CANVAS-8")
async def test_a_cancelled_call_cancels_its_operation(client: AsyncClient, scripted: ScriptedForest) -> None:
    scripted.hold = asyncio.Event()
    calls = [ToolCall("recall", {"query": "oaks"}), ToolCall("recall", {"query": "elms"})]
    batch = asyncio.create_task(client.run_tools(calls))
    await asyncio.wait_for(scripted.begun.wait(), 60)
    batch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await batch
    await asyncio.wait_for(scripted.cancelled.wait(), 60)
    scripted.hold = None
    assert (await client.run_tool("recall", {"query": "birches"})).success
    assert [request.query for request in scripted.requests] == ["oaks", "birches"], "the next call was not made"


async def test_a_call_may_take_longer_than_other_calls(server: Server, scripted: ScriptedForest) -> None:
    scripted.hold = asyncio.Event()
    async with AsyncClient(server.address, timeout=0.05) as client:
        call = asyncio.create_task(client.run_tool("ask", {"question": "What is the answer?"}))
        await asyncio.wait_for(scripted.begun.wait(), 60)
        await asyncio.sleep(0.2)
        scripted.hold.set()
        assert (await call).success


async def test_the_workspace_and_the_agent_of_a_call_are_those_given_beside_it(
    client: AsyncClient, world: World
) -> None:
    made = await client.run_tool("remember", {"text": "Bees sleep."}, workspace=world.workspace, agent="bee")
    assert made.data is not None
    assert made.metadata == {"tool": "remember", "workspace": world.workspace}
    (newest, *_) = [each async for each in client.workspace(world.workspace).log()]
    assert (newest.id, newest.author.name) == (made.data["commit_id"], "bee")
    elsewhere = await client.run_tool("list_archives", {"workspace": "nowhere"}, workspace=world.workspace)
    assert elsewhere.error is not None, "what the arguments name counts"
    for wrong in ([], {}, False, 0):
        refused = await client.run_tool("list_archives", {"workspace": wrong}, workspace=world.workspace)
        assert refused.error is not None
        assert refused.error.code == "INVALID_ARGUMENTS", "and is not repaired"


NO_OBJECTS = (
    *(b"[1]", b"{", b'"x"', b"\xff", b"[" * 50_000, b'{"a": NaN}', b'{"a": 1' + b"0" * 5_000 + b"}"),
    *(b'{"a": "\\ud800"}', b'{"\\udfff": 1}', b"\xef\xbb\xbf{}", b'{"a": "\xed\xa0\x80"}', b"\xc2\xa0"),
)


@pytest.mark.requirement("TOOL-10")
async def test_arguments_that_are_no_object_are_refused(client: AsyncClient, http: httpx2.AsyncClient) -> None:
    for body in NO_OBJECTS:
        answer = await http.post("/api/tools/list_workspaces/execute", content=body, headers=AS_JSON)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, "INVALID_ARGUMENTS"), body[:20]
        assert error["details"]["violations"][0]["field"] == "arguments", body[:20]
        with suppress(UnicodeDecodeError):  # over gRPC there is no text that is not UTF-8
            request = pb.ExecuteToolRequest(name="list_workspaces", arguments_json=body.decode())
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await client.raw.tools.ExecuteTool(request)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT, body[:20]


@pytest.mark.requirement("SERVE-1")
async def test_a_fault_of_the_caller_is_no_error_in_the_log(http: httpx2.AsyncClient) -> None:
    with capture_logs() as lines:
        answer = await http.post("/api/tools/delete_project/execute", json={"project_id": "a\0"})
    assert answer.json()["error"]["code"] == "INVALID_TEXT"
    assert [line for line in lines if line["log_level"] == "error"] == []


@pytest.mark.requirement("TOOL-10")
async def test_what_http_cannot_answer_is_refused_in_one_form(http: httpx2.AsyncClient) -> None:
    path = "/api/tools/list_workspaces/execute"
    assert (await http.post(path, headers=AS_JSON)).json()["success"], "no body is no argument"
    for headers in ({}, {"content-type": "text/plain"}):
        plain = await http.post(path, content=b"{}", headers=headers)
        assert (plain.status_code, plain.json()["error"]["code"]) == (415, "NOT_SENT_AS_JSON")
    assert (
        await http.post(path, content=b"{}", headers={"content-type": "Application/JSON; charset=utf-8"})
    ).is_success

    async def streamed() -> AsyncIterator[bytes]:
        yield b" " * 100_001

    for body in (b" " * 100_001, streamed()):
        large = await http.post(path, content=body, headers=AS_JSON)
        assert (large.status_code, large.json()["error"]["code"]) == (413, "MESSAGE_TOO_LARGE")
    slashed = await http.get("/api/tools/")
    assert (slashed.status_code, slashed.json()["error"]["code"]) == (404, "NO_SUCH_PATH")
    for answer in (await http.get("/api/tools/nothing"), await http.post("/api/tools/nothing/execute", json={})):
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "UNKNOWN_TOOL")
    wrong = await http.get("/api/tools/list_workspaces/execute")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "NO_SUCH_METHOD")
    foreign = await http.post(
        "/api/tools/list_workspaces/execute", json={}, headers={"origin": "https://elsewhere.example"}
    )
    assert foreign.status_code == 403


@pytest.mark.requirement("TOOL-10", "TOOL-3")
async def test_the_command_line_reads_values_as_the_tool_expects_them(server: Server) -> None:
    async def ran(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        command = ["tools", *arguments, "--address", server.address]
        result = await asyncio.to_thread(CliRunner().invoke, app, command, stdin)
        return result.exit_code, result.stdout, result.stderr

    code, out, _ = await ran("run", "remember", "text=2026", 'tags=["year"]', "--agent", "bee")
    assert (code, "2026" in out) == (0, True), "a text may look like a number"
    code, out, _ = await ran("run", "search_nodes", "query=2026", "max_results=1")
    assert (code, "2026" in out) == (0, True)
    code, _, error = await ran("run", "search_nodes", "query=x", "max_results=many")
    assert (code, "max_results" in error) == (1, True)
    assert (await ran("run", "search_nodes", "--arguments", "-", stdin='{"query": "2026"}'))[0] == 0
    for wrong, told in (
        (["query"], "has no value"),
        (["query=a", "query=b"], "is given twice"),
        (["--arguments", "[1]"], "no JSON object"),
    ):
        code, _, error = await ran("run", "search_nodes", *wrong)
        assert (code, told in error) == (2, True)
    code, out, _ = await ran("list", "--category", "history")
    assert (code, "blame_node" in out, "remember" in out) == (0, True, False)
    code, out, _ = await ran("info", "recall")
    assert (code, "token_budget" in out, "memotree tools run recall" in out) == (0, True, True)
    code, _, error = await ran("info", "nothing")
    assert (code, "There is no tool" in error) == (1, True)
