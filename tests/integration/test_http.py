"""The HTTP server: the forest's own endpoint, health, the origins that may call, events, and clients that go away."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from integration.mcp_clients import over_http
from integration.scripted_server import INNER, LEAF, MISSING, ScriptedForest, served
from integration.shared_servers import SharedServer, shared_server
from integration.worlds import World
from jsonschema import Draft202012Validator
from memotree_storage.store import Store

from memotree.gateways.json_schema import OUTPUT
from memotree.server.announcement import read_announcement
from memotree.server.app import Server
from memotree.server.listen import PortTakenError
from memotree.settings import InvalidSettingsError, Settings, load_settings

PATH = "/tools/explore_memory_node"
EVENTS = {"accept": "text/event-stream"}


@pytest.fixture(scope="module")
async def shared(shared_store: Store, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedServer]:
    limits = {"max_message_bytes": 100_000, "max_content_bytes": 50_000}
    async with shared_server(shared_store, tmp_path_factory.mktemp("http"), **limits) as running:
        yield running


@pytest.fixture(autouse=True)
def scripted(shared: SharedServer) -> ScriptedForest:
    return shared.forest()


@pytest.fixture
def server(shared: SharedServer) -> Server:
    return shared.server


@pytest.fixture(scope="module")
async def client(shared: SharedServer) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=shared.server.url, timeout=60) as found:
        yield found


@pytest.fixture
async def own(world: World, tmp_path: Path) -> AsyncIterator[tuple[Server, ScriptedForest, httpx2.AsyncClient]]:
    """A server that the test may stop."""
    scripted = ScriptedForest()
    async with (
        served(world, scripted, tmp_path / "http") as running,
        httpx2.AsyncClient(base_url=running.url, timeout=60) as client,
    ):
        yield running, scripted, client


@pytest.mark.requirement("FOREST-14")
async def test_exploring_a_node_answers_as_designed(
    shared: SharedServer, client: httpx2.AsyncClient, scripted: ScriptedForest
) -> None:
    answer = await client.get(PATH, params={"node_id": INNER.id, "query": "what is it?"})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == [
        {
            "id": LEAF.id,
            "summary": "Short.",
            "content": "All of it.",
            "node_type": "LEAF_CHUNK",
            "relevance_score": 0.95,
        },
        {
            "id": INNER.id,
            "summary": "About two leaves.",
            "content": "",
            "node_type": "SUMMARY_NODE",
            "relevance_score": 0.87,
        },
    ]
    (request,) = scripted.requests
    assert (request.workspace, request.node_id, request.query) == (shared.world.workspace, INNER.id, "what is it?")
    assert not request.HasField("threshold")
    given = {"node_id": "1234567890123456", "query": "7", "workspace": "42", "revision": "v1", "threshold": "0.25"}
    assert (await client.get(PATH, params=given)).status_code == 200
    *_, request = scripted.requests
    assert (request.workspace, request.revision, request.threshold) == ("42", "v1", 0.25)
    assert (request.node_id, request.query) == ("1234567890123456", "7"), "texts stay texts"


REFUSALS: list[tuple[dict[str, Any], int, str, list[str]]] = [
    ({}, 400, "INVALID_ARGUMENTS", ["node_id", "query"]),
    ({"node_id": INNER.id, "query": "b", "treshold": "1"}, 400, "INVALID_ARGUMENTS", ["treshold"]),
    ({"node_id": INNER.id, "query": "b", "threshold": "half"}, 400, "INVALID_ARGUMENTS", ["threshold"]),
    ({"node_id": INNER.id, "query": "b", "threshold": "9" * 400}, 400, "INVALID_ARGUMENTS", ["threshold"]),
    ({"node_id": INNER.id, "query": "b", "threshold": "[" * 20_000}, 400, "INVALID_ARGUMENTS", ["threshold"]),
    ({"node_id": ["a", "b"], "query": "b"}, 400, "INVALID_ARGUMENTS", ["node_id"]),
    ({"node_id": INNER.id, "query": "b", "threshold": "2"}, 400, "INVALID_ARGUMENT", ["threshold"]),
    ({"node_id": MISSING, "query": "b"}, 404, "NODE_NOT_FOUND", []),
]


@pytest.mark.requirement("FOREST-14", "CANVAS-7")
async def test_a_refused_call_returns_the_error_code_and_every_violation(client: httpx2.AsyncClient) -> None:
    for query, status, code, fields in REFUSALS:
        answer = await client.get(PATH, params=query)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (status, code), query
        assert [fault["field"] for fault in error.get("details", {}).get("violations", [])] == fields, query
        assert error["message"], query


async def test_an_internal_error_shows_no_details(client: httpx2.AsyncClient, scripted: ScriptedForest) -> None:
    async def broken(_request: object) -> None:
        raise RuntimeError("the secret path")

    scripted.drill_down = broken  # type: ignore[method-assign, assignment] # a fault
    answer = await client.get(PATH, params={"node_id": INNER.id, "query": "b"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "INTERNAL")
    assert "secret" not in answer.text


async def test_a_not_found_error_has_the_same_form(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/nothing")).json()["error"]["code"] == "NO_SUCH_PATH"
    answer = await client.post(PATH)
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "NO_SUCH_METHOD")


async def test_a_web_page_of_this_machine_may_call_and_one_of_another_origin_not(client: httpx2.AsyncClient) -> None:
    for path in (f"{PATH}?node_id={INNER.id}&query=b", "/livez", "/readyz", "/healthz", "/mcp"):
        rebound = await client.get(path, headers={"host": "evil.example:7320"})
        foreign = await client.get(path, headers={"origin": "https://evil.example"})
        opaque = await client.get(path, headers={"origin": "null"})
        image = await client.get(path, headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"})
        assert [each.status_code for each in (rebound, foreign, opaque, image)] == [421, 403, 403, 403], path
    answer = await client.get("/readyz", headers={"host": "localhost:1", "origin": "http://localhost:3000"})
    assert (answer.status_code, answer.json()) == (200, {"status": "ready"})


async def test_an_announcement_of_an_earlier_version_is_still_read(tmp_path: Path) -> None:
    (tmp_path / "server.json").write_text(json.dumps({"address": "127.0.0.1:1", "pid": 1, "version": "0.1.0"}))
    announced = read_announcement(tmp_path)
    assert announced is not None
    assert announced.url == ""


def test_http_listens_beside_grpc_unless_it_is_disabled() -> None:
    for given, port in (
        ({"port": 7319}, 7320),
        ({"port": 0}, 0),
        ({"port": 65_535}, 0),
        ({"port": 7319, "http_port": 0}, 0),
        ({"port": 0, "http_port": 9}, 9),
    ):
        assert Settings(**given).port_for_http == port, given
    with pytest.raises(InvalidSettingsError, match="http_port"):
        load_settings(port=7000, http_port=7000)


async def test_a_port_in_use_is_reported_and_the_server_is_stopped_cleanly(world: World, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        with pytest.raises(PortTakenError, match="MEMOTREE_HTTP_PORT"):
            async with served(world, ScriptedForest(), tmp_path / "http", http_port=taken):
                pass
    assert read_announcement(tmp_path / "http") is None


@pytest.mark.requirement("SERVE-1")
async def test_a_graceful_stop_waits_for_a_running_http_call_and_refuses_new_ones(
    own: tuple[Server, ScriptedForest, httpx2.AsyncClient],
) -> None:
    server, scripted, client = own
    hold = asyncio.Event()
    begun = asyncio.Event()
    drill_down = scripted.drill_down

    async def slow(request: Any) -> Any:
        begun.set()
        await hold.wait()
        return await drill_down(request)

    scripted.drill_down = slow  # type: ignore[method-assign] # waits
    call = asyncio.create_task(client.get(PATH, params={"node_id": INNER.id, "query": "b"}))
    await asyncio.wait_for(begun.wait(), 60)
    stopping = asyncio.create_task(server.stop(30))
    while (await client.get("/readyz")).status_code == 200:
        await asyncio.wait({stopping}, timeout=0.01)
    refused = await client.get(PATH, params={"node_id": INNER.id, "query": "b"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "SERVER_STOPPING")
    assert (await client.get("/livez")).json() == {"status": "alive"}
    assert (await client.get("/readyz")).json()["reasons"] == {"server": "It is stopping."}
    assert not stopping.done()
    hold.set()
    assert (await call).status_code == 200
    await asyncio.wait_for(stopping, 60)


@pytest.mark.requirement("SERVE-1", "SERVE-2")
async def test_a_call_above_the_limit_of_calls_is_refused_as_json_and_to_mcp(world: World, tmp_path: Path) -> None:
    scripted = ScriptedForest()
    scripted.hold = asyncio.Event()
    asked = {"node_id": INNER.id, "query": "b"}
    async with (
        served(world, scripted, tmp_path / "http", max_concurrent_calls=1) as server,
        httpx2.AsyncClient(base_url=server.url, timeout=60) as client,
        over_http(server) as agent,
    ):
        running = asyncio.create_task(agent.call_tool("recall", {"query": "waits"}))
        await asyncio.wait_for(scripted.begun.wait(), 60)
        refused = [await client.get(PATH, params=asked) for _ in range(3)]
        told = await agent.call_tool("explore_memory_node", asked)
        scripted.hold.set()
        await running
        assert (await client.get(PATH, params=asked)).status_code == 200
    for answer in refused:
        assert answer.status_code == 429
        error = answer.json()["error"]
        assert (error["code"], error["details"]) == ("TOO_MANY_CALLS", {"retry_after": 1.0})
        assert "send it again in a moment" in error["message"]
    assert told.structured_content is not None
    assert told.structured_content["error"]["code"] == "TOO_MANY_CALLS"


@pytest.mark.requirement("SERVE-1", "SERVE-2")
async def test_a_body_over_the_limit_is_refused_as_json_with_the_limit(client: httpx2.AsyncClient) -> None:
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(11):
            yield b" " * 10_000

    declared = await client.post("/mcp", content=b" " * 100_001, headers=headers)
    streamed = await client.post("/mcp", content=pieces(), headers=headers)
    for answer in (declared, streamed):
        assert answer.status_code == 413
        error = answer.json()["error"]
        assert (error["code"], error["status"]) == ("MESSAGE_TOO_LARGE", "RESOURCE_EXHAUSTED")
        assert "at most 100000 " in error["message"]
    assert "100001 bytes" in declared.json()["error"]["message"]


async def test_a_stop_ends_an_http_call_after_its_grace(
    own: tuple[Server, ScriptedForest, httpx2.AsyncClient],
) -> None:
    server, scripted, client = own
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def endless(_request: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    scripted.drill_down = endless  # type: ignore[method-assign, assignment] # never answers
    call = asyncio.create_task(client.get(PATH, params={"node_id": INNER.id, "query": "b"}))
    await asyncio.wait_for(begun.wait(), 60)
    await asyncio.wait_for(server.stop(0), 60)
    assert cancelled.is_set()
    with pytest.raises((httpx2.HTTPError, AssertionError)):
        assert (await call).status_code == 200


# --- Calls of tools with server-sent events, and calls whose client goes away -----------------------------------------


def events_of(text: str) -> list[tuple[str, Any]]:
    """The events of a stream, with their data."""
    found = []
    for block in text.split("\n\n")[:-1]:
        head, _, data = block.partition("\n")
        assert head.startswith("event: ")
        assert data.startswith("data: ")
        found.append((head.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    assert text.endswith("\n\n")
    return found


def untimed(result: dict[str, Any]) -> dict[str, Any]:
    Draft202012Validator(OUTPUT).validate(result)
    return {name: value for name, value in result.items() if name != "elapsed_ms"}


def begun(server: Server, path: str, body: bytes | None = None, accept: str = "*/*") -> socket.socket:
    """Send a request over a connection of its own."""
    place = urlsplit(server.url)
    connection = socket.create_connection((str(place.hostname), int(place.port or 0)))
    head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: {place.netloc}\r\nAccept: {accept}\r\n"
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    connection.sendall(f"{head}\r\n".encode() + (body or b""))
    return connection


@pytest.mark.requirement("TOOL-10")
async def test_a_call_streams_its_progress_and_then_the_result_of_the_plain_call(client: httpx2.AsyncClient) -> None:
    path, arguments = "/api/tools/ask/execute", {"question": "What is it?"}
    plain = await client.post(path, json=arguments)
    answer = await client.post(path, json=arguments, headers=EVENTS)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    both = {"accept": "application/json, text/event-stream"}
    assert (await client.post(path, json=arguments, headers=both)).json()["success"], "who takes JSON gets that"
    *progress, (name, result) = events_of(answer.text)
    assert progress[-1] == ("progress", {"progress": 2.0, "message": "explore: It looks near."})
    assert name == "result"
    assert untimed(result) == untimed(plain.json())


@pytest.mark.requirement("TOOL-10")
async def test_progress_is_sent_while_the_tool_works(client: httpx2.AsyncClient, scripted: ScriptedForest) -> None:
    scripted.hold = asyncio.Event()
    seen = ""
    async with client.stream("POST", "/api/tools/ask/execute", json={"question": "x"}, headers=EVENTS) as answer:
        async for text in answer.aiter_text():
            seen += text
            if "explore" in seen:
                scripted.hold.set()
    assert [name for name, _ in events_of(seen)][-1] == "result"


@pytest.mark.requirement("TOOL-10")
async def test_a_tool_without_progress_and_a_failure_are_a_result_alone(client: httpx2.AsyncClient) -> None:
    for tool, arguments, success in (
        ("list_workspaces", {}, True),
        ("get_node", {"node_id": MISSING}, False),
        ("get_node", {}, False),
    ):
        answer = await client.post(f"/api/tools/{tool}/execute", json=arguments, headers=EVENTS)
        ((name, result),) = events_of(answer.text)
        assert (answer.status_code, name, result["success"]) == (200, "result", success)


@pytest.mark.requirement("TOOL-10")
async def test_what_reaches_no_tool_is_refused_as_without_events(client: httpx2.AsyncClient) -> None:
    for path, body, status in (
        ("/api/tools/nothing/execute", b"{}", 404),
        ("/api/tools/list_workspaces/execute", b"[]", 400),
        ("/api/tools/list_workspaces/execute", b" " * 100_001, 413),
    ):
        answer = await client.post(path, content=body, headers={"content-type": "application/json"} | EVENTS)
        assert answer.status_code == status
        assert answer.json()["error"]["message"]


@pytest.mark.requirement("TOOL-10")
@pytest.mark.parametrize("accept", ["*/*", "text/event-stream"])
async def test_requests_that_are_sent_before_the_first_answer_are_all_answered(server: Server, accept: str) -> None:
    place = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    for end in ("", "Connection: close\r\n"):
        head = f"POST /api/tools/list_workspaces/execute HTTP/1.1\r\nHost: {place.netloc}\r\nAccept: {accept}\r\n"
        writer.write(f"{head}Content-Type: application/json\r\nContent-Length: 2\r\n{end}\r\n{{}}".encode())
    answers = await asyncio.wait_for(reader.read(), 60)
    assert answers.count(b"HTTP/1.1 200 OK") == 2
    assert answers.count(b'"success"') == 2
    writer.close()
    await writer.wait_closed()


@pytest.mark.requirement("CANVAS-8", "TOOL-10")
@pytest.mark.parametrize(
    ("path", "body", "accept"),
    [
        ("/api/tools/ask/execute", b'{"question": "x"}', "*/*"),
        ("/api/tools/ask/execute", b'{"question": "x"}', "text/event-stream"),
        (f"/tools/explore_memory_node?node_id={INNER.id}&query=b", None, "*/*"),
    ],
)
async def test_a_client_that_goes_away_ends_its_call(
    server: Server, scripted: ScriptedForest, path: str, body: bytes | None, accept: str
) -> None:
    async def endless(_request: Any) -> None:
        await scripted._wait()

    scripted.drill_down = endless  # type: ignore[method-assign, assignment] # never answers
    scripted.hold = asyncio.Event()
    connection = begun(server, path, body, accept)
    await asyncio.wait_for(scripted.begun.wait(), 60)
    connection.close()
    await asyncio.wait_for(scripted.cancelled.wait(), 60)


@pytest.mark.requirement("CANVAS-8", "TOOL-10")
@pytest.mark.parametrize("accept", ["*/*", "text/event-stream"])
async def test_a_note_whose_client_went_away_is_remembered_whole_or_not_at_all(
    server: Server, client: httpx2.AsyncClient, accept: str
) -> None:
    titles = [f"Goner{number}{accept[:1]}" for number in range(12)]
    texts = [f"{title} and its text." for title in titles]
    connections = []
    for number, text in enumerate(texts):
        body = json.dumps({"text": text, "title": titles[number]}).encode()
        connections.append(begun(server, "/api/tools/remember/execute", body, accept))
        for _ in range(number * 4):
            await asyncio.sleep(0)  # the calls are at different points when they are cancelled
        if number % 3:
            connections.pop().close()
    for connection in connections:
        connection.close()

    async def called(tool: str, **arguments: Any) -> Any:
        answer = (await client.post(f"/api/tools/{tool}/execute", json=arguments)).json()
        assert answer["success"], answer
        return answer["data"]

    await called("remember", text="The last.", title="The last")
    assert (await called("list_sessions"))["sessions"] == []
    for number, text in enumerate(texts):
        hits = (await called("search_nodes", query=titles[number], max_results=5))["hits"]
        found = [hit["node"] for hit in hits if hit["node"]["title"] == titles[number]]
        for node in found:
            read = (await called("get_node", node_id=node["id"], level="DETAIL"))["node"]
            assert read["content"].strip() == text
        assert len(found) <= 1
