"""Requests whose answers are streams are counted, so that those of one principal leave room for others."""

from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from memotree.gateways.http_authentication import Authenticated
from memotree.request.principal import Principal
from memotree.server.calls import RunningCalls

pytestmark = pytest.mark.requirement("SERVE-3")


class Ada:
    """Everybody is ada."""

    is_required = True

    async def principal(self, *_proofs: object, **_options: object) -> Principal:
        return Principal("ada")


async def answered(scope: Scope, receive: Receive, send: Send) -> None:
    del scope, receive
    await send({"type": "http.response.start", "status": 200, "headers": []})


async def status(method: str, path: str, accept: str) -> int:
    """The status of a request of somebody who has as many streams as are left for others."""
    calls, sent = RunningCalls(8), []

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    ada: Any = Ada()
    scope = {"type": "http", "method": method, "path": path, "headers": [(b"accept", accept.encode())]}
    with calls.streaming("ada"), calls.streaming("ada"):
        await Authenticated(answered, ada, calls)(scope, receive, send)
    return int(sent[0]["status"])


@pytest.mark.parametrize(
    ("method", "path", "accept", "answer"),
    [
        ("POST", "/api/query/with-tools/stream", "*/*", 429),
        ("POST", "/api/query/with-tools/stream", "application/json, text/event-stream", 429),
        ("POST", "/api/query/with-tools/stream", "", 429),
        ("POST", "/api/tools/ask/execute", "text/event-stream", 429),
        ("GET", "/mcp", "text/event-stream", 429),
        ("POST", "/api/query/with-tools", "*/*", 200),
        ("POST", "/api/tools/ask/execute", "application/json, text/event-stream", 200),
        ("POST", "/mcp", "application/json, text/event-stream", 200),
    ],
)
async def test_a_request_for_a_stream_needs_a_place_and_one_for_an_answer_none(
    method: str, path: str, accept: str, answer: int
) -> None:
    assert await status(method, path, accept) == answer
