"""Questions with tools over HTTP, gRPC and the client: one answer, events, refusals, and callers that go away."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from endpoints import ModelEndpoint
from integration.query.stage import operations_with_queries
from integration.test_http import begun, events_of
from integration.worlds import World
from jsonschema import Draft202012Validator
from memotree_storage.model.node import new_id
from model_answers import Fault

from memotree.client import AsyncClient, InvalidArgumentError, QueryAnswer, QueryCall, QueryEnd, QueryText
from memotree.gateways.http_server import HttpServer
from memotree.gateways.openapi_queries import answer_schema
from memotree.request.observed_calls import ObservedCall
from memotree.request.rate import Rate
from memotree.server.app import Server
from memotree.settings import Settings
from memotree.tools.policy import ToolAdmission, ToolPolicy

pytestmark = pytest.mark.requirement("TOOL-9", "TOOL-10")

PATH = "/api/query/with-tools"
PATHS = {PATH: "Query", f"{PATH}/stream": "StreamQuery"}
"""The paths of a question, and the RPC of each."""

QUESTION = {"query": "When was the stone bridge rebuilt?"}


class Ended:
    """Observes which calls have ended, and how."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, str, str]] = []

    def began(self, call: ObservedCall) -> None: ...

    def settle(self, call: ObservedCall) -> None: ...

    def ended(self, call: ObservedCall) -> None:
        self.calls.append((call.tool, call.method.rpartition("/")[2], call.interface, call.code))


@pytest.fixture
def observed() -> Ended:
    return Ended()


@pytest.fixture
def admission() -> ToolAdmission:
    return ToolAdmission()


@pytest_asyncio.fixture
async def server(
    world: World, endpoint: ModelEndpoint, tmp_path: Path, observed: Ended, admission: ToolAdmission
) -> AsyncIterator[Server]:
    await world.put(world.node("Stone bridge", type="leaf_chunk", content="It was rebuilt after the flood of 1784."))
    async with operations_with_queries(
        world, endpoint, tmp_path / "settings", observed, admission=admission
    ) as operations:
        given = {"default_workspace": world.workspace, "max_message_bytes": 100_000, "max_content_bytes": 50_000}
        settings = Settings(data_folder=tmp_path / "http", port=0, **given)
        running = Server(settings, operations, partial=True, side_server=HttpServer)
        await running.start()
        yield running
        await running.stop(5)


@pytest_asyncio.fixture
async def http(server: Server) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as found:
        yield found


@pytest_asyncio.fixture
async def client(server: Server) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.address, attempts=1) as found:
        yield found


async def test_an_answer_over_http_has_the_fields_of_the_document(
    http: httpx2.AsyncClient, endpoint: ModelEndpoint
) -> None:
    endpoint.call_next(("calculator", {"expression": "1784 + 20"}))
    answer = await http.post(PATH, json={**QUESTION, "tools_enabled": True, "max_tool_calls": 3, "temperature": 0.7})
    assert answer.status_code == 200
    told = answer.json()
    Draft202012Validator(answer_schema()).validate(told)
    assert (told["answer"], told["end"]) == ("The result: result: 1804\nexact: True", "ANSWERED")
    assert (told["tools_used"], told["warnings"], len(told["sources"])) == (["calculator"], [], 1)
    assert told["tool_calls"][0]["result"]["success"] is True
    assert endpoint.chat_calls[0]["temperature"] == 0.7


NO_QUESTIONS = (
    (b"[]", 400, "INVALID_ARGUMENTS"),
    (b"{", 400, "INVALID_ARGUMENTS"),
    (b'{"query": 5}', 400, "INVALID_ARGUMENTS"),
    (b'{"query": "x", "unknown": 1}', 400, "INVALID_ARGUMENTS"),
    (b"{}", 400, "INVALID_ARGUMENTS"),
    (b'{"query": "x", "max_tool_calls": 21}', 400, "INVALID_ARGUMENT"),
    (b'{"query": "x", "allowed_tools": ["query"]}', 400, "TOOL_NOT_OFFERED"),
    (b'{"query": "x", "workspace": "nowhere"}', 404, "WORKSPACE_NOT_FOUND"),
    (b" " * 100_001, 413, "MESSAGE_TOO_LARGE"),
)


async def test_what_asks_no_question_is_refused_as_a_tool_refuses(http: httpx2.AsyncClient) -> None:
    for path in PATHS:
        for body, status, code in NO_QUESTIONS:
            answer = await http.post(path, content=body, headers={"content-type": "application/json"})
            assert answer.status_code == status, (path, body[:50], answer.text)
            error = answer.json()["error"]
            assert error["code"] == code, (path, body[:50])
            assert error["message"]
        assert (await http.post(path, content=b"{}")).status_code == 415
        assert (await http.get(path)).status_code == 405


async def test_a_stream_over_http_has_text_calls_results_and_the_answer(
    http: httpx2.AsyncClient, endpoint: ModelEndpoint
) -> None:
    endpoint.call_next(("calculator", {"expression": "1 + 1"}))
    endpoint.answer_next("It is two.")
    answer = await http.post(f"{PATH}/stream", json=QUESTION)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")
    events = events_of(answer.text)
    assert [name for name, _ in events] == ["call", "result", "text", "text", "text", "answer"]
    assert events[1][1]["result"]["success"] is True
    assert "".join(data["text"] for name, data in events if name == "text") == "It is two."
    Draft202012Validator(answer_schema()).validate(events[-1][1])


async def test_a_model_that_fails_is_a_refusal_before_the_first_event_and_an_event_after_it(
    http: httpx2.AsyncClient, endpoint: ModelEndpoint
) -> None:
    endpoint.fail_always(Fault.BROKEN, on="chat")
    for path in (PATH, f"{PATH}/stream"):
        answer = await http.post(path, json=QUESTION)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "MODEL_UNAVAILABLE")
    endpoint.recover()
    endpoint.fail_next(Fault.CUT_BODY, on="chat")
    endpoint.answer_next("A long answer of many words that breaks off in its middle.")
    answer = await http.post(f"{PATH}/stream", json=QUESTION)
    *texts, (name, data) = events_of(answer.text)
    assert {each for each, _ in texts} == {"text"}
    assert (name, data["error"]["code"]) == ("error", "MODEL_TURN_BROKEN_OFF")


async def test_a_question_is_one_call_of_the_tool_for_those_who_observe_calls(
    http: httpx2.AsyncClient, endpoint: ModelEndpoint, observed: Ended
) -> None:
    for path, rpc in PATHS.items():
        observed.calls.clear()
        endpoint.answer_next("It is two.")
        assert (await http.post(path, json=QUESTION)).status_code == 200
        assert (await http.post(path, json={**QUESTION, "max_tool_calls": 21})).status_code == 400
        assert [call for call in observed.calls if call[0] == "query"] == [
            ("query", rpc, "http", "OK"),
            ("query", rpc, "http", "INVALID_ARGUMENT"),
        ]
        assert [call for call in observed.calls if call[:2] == ("", rpc)] == [
            ("", rpc, "tool", "OK"),
            ("", rpc, "tool", "INVALID_ARGUMENT"),
        ]


async def test_a_question_counts_as_a_call_of_a_tool_and_is_asked_only_if_the_policy_has_it(
    http: httpx2.AsyncClient, endpoint: ModelEndpoint, admission: ToolAdmission
) -> None:
    for path in PATHS:
        admission.policy = ToolPolicy()
        admission.rate.change(None)
        admission.rate.change(Rate(1, 1))
        endpoint.answer_next("It is two.")
        assert (await http.post(path, json=QUESTION)).status_code == 200
        answer = await http.post(path, json=QUESTION)
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "TOOL_RATE_EXCEEDED"), path
        assert int(answer.headers["retry-after"]) > 0
        asked = len(endpoint.chat_calls)
        admission.policy = ToolPolicy(disabled={"query"})
        answer = await http.post(path, json=QUESTION)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "TOOL_NOT_PERMITTED"), path
        assert len(endpoint.chat_calls) == asked


@pytest.mark.parametrize("path", PATHS)
async def test_the_default_workspace_is_created_by_the_first_question(
    world: World, endpoint: ModelEndpoint, tmp_path: Path, path: str
) -> None:
    fresh = f"fresh-{new_id()}"
    async with operations_with_queries(world, endpoint, tmp_path / "settings") as operations:
        settings = Settings(data_folder=tmp_path / "http", port=0, default_workspace=fresh)
        running = Server(settings, operations, partial=True, side_server=HttpServer)
        await running.start()
        try:
            async with httpx2.AsyncClient(base_url=running.url, timeout=60) as http:
                missing = await http.post(path, json={**QUESTION, "workspace": "nowhere"})
                assert missing.json()["error"]["code"] == "WORKSPACE_NOT_FOUND", "only the default one is created"
                endpoint.answer_next("Nothing is there.")
                answer = await http.post(path, json=QUESTION)
            assert answer.status_code == 200
            assert "Nothing is there." in json.dumps(answer.text)
            async with AsyncClient(running.address) as client:
                assert fresh in [each.name async for each in client.workspaces()]
        finally:
            await running.stop(5)


@pytest.mark.parametrize("path", PATHS)
async def test_the_model_is_left_when_the_client_goes_away(server: Server, endpoint: ModelEndpoint, path: str) -> None:
    endpoint.hold()
    connection = begun(server, path, json.dumps(QUESTION).encode())
    await asyncio.wait_for(endpoint.arrived.wait(), 60)
    connection.close()
    await asyncio.wait_for(endpoint.hung_up.wait(), 60)
    endpoint.release()


async def test_the_client_reads_answers_events_and_plans(
    client: AsyncClient, world: World, endpoint: ModelEndpoint
) -> None:
    workspace = client.workspace(world.workspace)
    answer = await workspace.query("What is 2 * 3?", conversation_id="talk")
    assert (answer.end, answer.tools_used) == (QueryEnd.ANSWERED, ("calculator",))
    (call,) = answer.tool_calls
    assert call.result is not None
    assert call.result.data == {"result": "6", "exact": True}
    events: list[Any] = [event async for event in workspace.stream_query("What is 2 * 3?", conversation_id="talk")]
    assert [type(event) for event in events[:2]] == [QueryCall, QueryCall]
    assert {type(event) for event in events[2:-1]} == {QueryText}
    assert isinstance(events[-1], QueryAnswer)
    assert events[-1].text == answer.text
    assert len(endpoint.chat_calls[-1]["messages"]) == 6
    plan = await workspace.plan_query("What is 2 * 3?")
    assert (plan.strategy, [step.parameters for step in plan.steps]) == ("SINGLE_TOOL", [{"expression": "2 * 3"}])
    with pytest.raises(InvalidArgumentError, match="max_tool_calls is 21; give 0 to 20"):
        await workspace.query("x", max_tool_calls=21)
