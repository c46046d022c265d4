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
    ("method", "path", "accept"),
    [
        ("POST", "/api/query/with-tools/stream", "*/*"),
        ("POST", "/api/query/with-tools/stream", "application/json, text/event-stream"),
        ("POST", "/api/query/with-tools/stream", ""),
        ("POST", "/api/tools/ask/execute", "text/event-stream"),
        ("GET", "/mcp", "text/event-stream"),
    ],
)
async def test_a_request_for_a_stream_needs_a_place(method: str, path: str, accept: str) -> None:
    assert await status(method, path, accept) == 429


@pytest.mark.parametrize(
    ("method", "path", "accept"),
    [
        ("POST", "/api/query/with-tools", "*/*"),
        ("POST", "/api/tools/ask/execute", "application/json, text/event-stream"),
        ("POST", "/mcp", "application/json, text/event-stream"),
    ],
)
async def test_a_request_for_one_answer_needs_none(method: str, path: str, accept: str) -> None:
    assert await status(method, path, accept) == 200
