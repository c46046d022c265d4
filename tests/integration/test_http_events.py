"""Calls of tools over HTTP with server-sent events, and calls whose client goes away."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from integration.scripted_server import INNER, MISSING, ScriptedForest
from integration.shared_servers import SharedServer, shared_server
from jsonschema import Draft202012Validator
from memotree_storage.store import Store

from memotree.gateways.json_schema import OUTPUT
from memotree.server.app import Server

pytestmark = pytest.mark.requirement("TOOL-10")

EVENTS = {"accept": "text/event-stream"}


@pytest.fixture(scope="module")
async def shared(shared_store: Store, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedServer]:
    async with shared_server(
        shared_store, tmp_path_factory.mktemp("events"), max_message_bytes=100_000, max_content_bytes=50_000
    ) as running:
        yield running


@pytest.fixture(autouse=True)
def scripted(shared: SharedServer) -> ScriptedForest:
    return shared.forest()


@pytest.fixture
def server(shared: SharedServer) -> Server:
    return shared.server


@pytest.fixture(scope="module")
async def http(shared: SharedServer) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=shared.server.url, timeout=60) as found:
        yield found


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


async def test_a_call_streams_its_progress_and_then_the_result_of_the_plain_call(http: httpx2.AsyncClient) -> None:
    path, arguments = "/api/tools/ask/execute", {"question": "What is it?"}
    plain = await http.post(path, json=arguments)
    answer = await http.post(path, json=arguments, headers=EVENTS)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    both = {"accept": "application/json, text/event-stream"}
    assert (await http.post(path, json=arguments, headers=both)).json()["success"], "who takes JSON gets that"
    *progress, (name, result) = events_of(answer.text)
    assert progress[-1] == ("progress", {"progress": 2.0, "message": "explore: It looks near."})
    assert name == "result"
    assert untimed(result) == untimed(plain.json())


async def test_progress_is_sent_while_the_tool_works(http: httpx2.AsyncClient, scripted: ScriptedForest) -> None:
    scripted.hold = asyncio.Event()
    seen = ""
    async with http.stream("POST", "/api/tools/ask/execute", json={"question": "x"}, headers=EVENTS) as answer:
        async for text in answer.aiter_text():
            seen += text
            if "explore" in seen:
                scripted.hold.set()
    assert [name for name, _ in events_of(seen)][-1] == "result"


async def test_a_tool_without_progress_and_a_failure_are_a_result_alone(http: httpx2.AsyncClient) -> None:
    for tool, arguments, success in (
        ("list_workspaces", {}, True),
        ("get_node", {"node_id": MISSING}, False),
        ("get_node", {}, False),
    ):
        answer = await http.post(f"/api/tools/{tool}/execute", json=arguments, headers=EVENTS)
        ((name, result),) = events_of(answer.text)
        assert (answer.status_code, name, result["success"]) == (200, "result", success)


async def test_what_reaches_no_tool_is_refused_as_without_events(http: httpx2.AsyncClient) -> None:
    for path, body, status in (
        ("/api/tools/nothing/execute", b"{}", 404),
        ("/api/tools/list_workspaces/execute", b"[]", 400),
        ("/api/tools/list_workspaces/execute", b" " * 100_001, 413),
    ):
        answer = await http.post(path, content=body, headers={"content-type": "application/json"} | EVENTS)
        assert answer.status_code == status
        assert answer.json()["error"]["message"]


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


@pytest.mark.requirement("CANVAS-8")
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


@pytest.mark.requirement("CANVAS-8")
@pytest.mark.parametrize("accept", ["*/*", "text/event-stream"])
async def test_a_note_whose_client_went_away_is_remembered_whole_or_not_at_all(
    server: Server, http: httpx2.AsyncClient, accept: str
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
        answer = (await http.post(f"/api/tools/{tool}/execute", json=arguments)).json()
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
