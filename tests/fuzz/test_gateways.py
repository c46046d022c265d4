"""MCP and HTTP with any bodies, arguments, paths and headers, on a real server.

Each is answered, never with a fault of the server; what is refused has changed nothing; the server logs no error, and
goes on.
"""

import json
import socket
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import pytest
from campaigns import sample
from fuzz.corpus import damaged, parts, seeds, texts
from fuzz.requests import methods, requests
from fuzz.server import HUNG, LATE, BrokenPromiseError, FuzzedServer, patiently
from fuzz.world import World
from google.protobuf.message import Message
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from memotree.gateways.json_messages import to_json
from memotree.gateways.json_schema import SHORT_OUTPUT
from memotree.gateways.tool_definitions import BY_NAME

pytestmark = pytest.mark.requirement("STORE-8", "FOREST-14")

HEADERS: Final = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
RESULTS: Final = Draft202012Validator(SHORT_OUTPUT)

SHORT: Final = [text for text in texts("strange") if len(text) < 100]
KEYS: Final = st.sampled_from(texts("json_keys"))
SCALARS: Final = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10)
JSON: Final = st.recursive(
    SCALARS | st.sampled_from(SHORT) | st.sampled_from(texts("json_values")),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=10,
)


class McpSession:
    """A connection of a client that is sent raw bodies."""

    def __init__(self, server: FuzzedServer) -> None:
        self._client = httpx2.Client(base_url=server.url, timeout=HUNG)
        self._headers = dict(HEADERS)
        client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "fuzz", "version": "1"}}
        begun = self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client})
        assert begun.status_code == 200, begun.text
        if session := begun.headers.get("mcp-session-id"):
            self._headers["mcp-session-id"] = session
        self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def post(self, body: Any, **headers: str) -> httpx2.Response:
        """Send a body: bytes as they are, anything else as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._client.post("/mcp", content=content, headers=self._headers | headers)

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """The message that answers a call of a tool; empty if the arguments are no text that JSON may hold."""
        params = {"name": tool, "arguments": arguments}
        answer = self.post({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params})
        if answer.status_code == 400 and "Parse error" in answer.text:  # half of a surrogate pair
            return {}
        assert answer.status_code == 200, answer.text
        (message,) = messages(answer)
        return message

    def close(self) -> None:
        """End the connection."""
        self._client.close()


def messages(answer: httpx2.Response) -> list[Any]:
    """The JSON-RPC messages of an answer, as one document or as events."""
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        lines = (line.rstrip("\r") for line in answer.text.split("\n"))  # no other character ends one
        return [json.loads(data) for line in lines if line.startswith("data:") and (data := line[5:].strip())]
    return [answer.json()] if answer.content else []


@pytest.fixture(scope="module")
def mcp(fuzzed: FuzzedServer) -> Iterator[McpSession]:
    session = McpSession(fuzzed)
    yield session
    session.close()


@st.composite
def arguments(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A tool and arguments for it: those of a request, with some replaced by any JSON."""
    name = draw(st.sampled_from(sorted(BY_NAME)))
    tool = BY_NAME[name]
    given: dict[str, Any] = to_json(draw(requests(methods()[tool.method.name]).filter(_has_json)))
    for hidden in tool.hidden:
        given.pop(hidden, None)
    for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
        place: Any = given
        while place:
            key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
            if isinstance(place[key], (dict, list)) and place[key] and draw(st.booleans()):
                place = place[key]
                continue
            place[key] = draw(JSON)
            break
    if draw(st.integers(0, 9)) == 0:
        given[draw(KEYS)] = draw(JSON)
    return name, given


def _has_json(request: Message) -> bool:
    """Whether a request has a form in JSON; a time beyond the years, or with negative parts, has none."""
    try:
        to_json(request)
    except ValueError:
        return False
    return True


def expanded(value: Any, world: World) -> Any:
    """The arguments with what stands in braces filled in."""
    if isinstance(value, dict):
        return {expanded(key, world): expanded(each, world) for key, each in value.items()}
    if isinstance(value, list):
        return [expanded(each, world) for each in value]
    return world.expand(value) if isinstance(value, str) else value


def test_any_arguments_of_every_tool(world: World, mcp: McpSession) -> None:
    for call in sample(arguments(), 40):
        call_tool(world, mcp, *call)


def test_the_tool_calls_of_the_corpus(world: World, mcp: McpSession) -> None:
    for data in seeds("tool_calls"):
        for line in data.decode().splitlines():
            call_tool(world, mcp, *json.loads(line))


def call_tool(world: World, mcp: McpSession, name: str, given: Mapping[str, Any]) -> None:
    with world.unchanged_if_refused(json.dumps([name, given])) as outcome:
        message = patiently(
            lambda: mcp.call(name, expanded(given, world)), is_late=lambda told: LATE in json.dumps(told)
        )
        if not message:
            outcome.refused = True
            return
        if "error" in message:
            raise BrokenPromiseError(f"the protocol refuses the call, not the tool: {message}")
        result = message["result"]
        RESULTS.validate(result["structuredContent"])
        assert result["content"][0]["text"]
        outcome.refused = bool(result.get("isError"))
        error = result["structuredContent"].get("error") or {}
        if {error.get("code"), error.get("status")} & {"INTERNAL", "UNKNOWN", "UNAVAILABLE", "UNIMPLEMENTED"}:
            raise BrokenPromiseError(f"{name} answers {error}\n{world.server.logged()}")


PARAMS: Final = {
    "name": st.sampled_from(("recall", "remember", "nothing", "")),
    "arguments": JSON,
    "cursor": JSON,
    "uri": st.sampled_from(texts("uris")),
    "_meta": JSON,
    "requestId": JSON,
}


@st.composite
def protocol_messages(draw: st.DrawFn) -> Any:
    """A message of JSON-RPC, or anything that looks a little like one."""
    params = st.one_of(JSON, st.dictionaries(KEYS, JSON), st.fixed_dictionaries({}, optional=PARAMS))
    message: Any = {
        "jsonrpc": draw(st.sampled_from(("2.0", "2.0", "2.0", "1.0", 2))),
        "id": draw(st.one_of(st.integers(0, 9), JSON)),
        "method": draw(st.sampled_from(texts("mcp_methods"))),
        "params": draw(params),
    }
    for name in ("id", "params", "jsonrpc"):
        if draw(st.integers(0, 7)) == 0:
            message.pop(name)
    return draw(st.sampled_from([message, message, message, message, [message], [message, message], draw(JSON)]))


def test_any_message_of_the_protocol(mcp: McpSession, fuzzed: FuzzedServer) -> None:
    for message in sample(protocol_messages(), 60):
        if isinstance(message, dict) and message.get("method") == "notifications/cancelled":
            continue  # it may cancel the call of another test
        for each in send(mcp, fuzzed, message):
            assert each.get("error", {}).get("code") != -32603, (message, each)  # an internal error


def test_any_body(mcp: McpSession, fuzzed: FuzzedServer) -> None:
    for body in [*seeds("mcp_bodies"), *sample(damaged(seeds("mcp_bodies"), parts("json")), 60)]:
        send(mcp, fuzzed, body)


def send(mcp: McpSession, fuzzed: FuzzedServer, body: Any) -> list[Any]:
    """The messages that answer a body, which is no fault of the server."""
    answer = mcp.post(body)
    assert answer.status_code < 500, (body, answer.text)
    fuzzed.check_log()
    return messages(answer)


# --- HTTP ------------------------------------------------------------------------------------------------------------

PATH: Final = "/tools/explore_memory_node"
NAMES: Final = ("node_id", "query", "workspace", "revision", "threshold", "x", "", "node_id[]")
VALUES: Final = ("abad000000000000", "apple", "{workspace}", "0.5")
TEXTS: Final = st.sampled_from((VALUES, texts("json_values")[1:], SHORT)).flatmap(st.sampled_from) | st.text(max_size=8)
QUERY: Final = st.lists(st.tuples(st.sampled_from(NAMES), TEXTS), max_size=6)


def test_any_query_of_the_endpoint(world: World, fuzzed: FuzzedServer) -> None:
    with httpx2.Client(base_url=fuzzed.url, timeout=HUNG) as client:
        for query in sample(QUERY, 40):
            world.begin()
            params = [(key, world.expand(text)[:1000]) for key, text in query]
            answer = patiently(partial(client.get, PATH, params=params), is_late=lambda found: LATE in found.text)
            if answer.status_code == 200:
                assert isinstance(answer.json(), list), query
            else:
                assert 400 <= answer.status_code < 500, (query, answer.text)
                assert answer.json()["error"]["message"], query
            fuzzed.check_log()


def test_any_bytes_at_the_port_of_http(fuzzed: FuzzedServer) -> None:
    place = urlsplit(fuzzed.url)
    for data in sample(damaged(seeds("http"), parts("http")), 60):
        with socket.create_connection((str(place.hostname), int(place.port or 0)), timeout=HUNG) as connection:
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                received = b""
                while b"\r\n" not in received and (more := connection.recv(65536)):
                    received += more
            except (ConnectionError, BrokenPipeError):
                received = b""
        status = received.split(b" ", 2)[1:2]
        assert not status or not status[0].startswith(b"5") or status[0] == b"501", (data[:2000], received[:500])
        fuzzed.check_log()
    assert httpx2.get(f"{fuzzed.url}/livez", timeout=HUNG).status_code == 200
