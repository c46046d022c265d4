"""Server-sent events: what is sent, to whom, and what becomes of clients that are slow or gone."""

import asyncio
from typing import Any, Final

import pytest
from starlette.requests import ClientDisconnect, Request

from memotree.gateways import http_events
from memotree.gateways.callers import LocalCaller
from memotree.gateways.catalogue import Catalogue, OnProgress
from memotree.gateways.http_events import EventStream, wants_events, while_connected
from memotree.gateways.http_tools import ToolPaths
from memotree.gateways.results import Result

pytestmark = pytest.mark.requirement("TOOL-10")

RESULT: Final = Result("Done.", "Done.", {"answer": "é\n"})
SCOPE: Final[dict[str, Any]] = {"type": "http"}


class Client:
    """A client that reads what is sent, when the test lets it, and goes away when it is told to."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self.leaves = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.reads.wait()
        self.sent.append(message)

    @property
    def text(self) -> str:
        return b"".join(message.get("body", b"") for message in self.sent).decode()


def test_who_gets_events() -> None:
    for accept in ("text/event-stream", "Text/Event-Stream; charset=utf-8, */*;q=0.1"):
        assert wants_events(accept)
    both = ("application/json, text/event-stream", "text/event-stream;q=0.5, application/json")
    for accept in (*both, "*/*", "text/*", ""):
        assert not wants_events(accept)


async def test_the_last_progress_comes_before_the_result_and_an_event_is_one_line() -> None:
    async def call(tell: OnProgress) -> Result:
        await tell(1.0, "first\nline")
        await tell(2.0, "second")
        return RESULT

    client = Client()
    await EventStream(call)(SCOPE, client.receive, client.send)
    first, second, *_ = client.text.split("\n\n")
    assert first == 'event: progress\ndata: {"progress": 2.0, "message": "second"}'
    assert second.startswith('event: result\ndata: {"success": true, "message": "Done.", "data": {"answer": "é\\n"}')
    assert client.sent[0]["status"] == 200
    assert not client.sent[-1].get("more_body")


async def test_a_call_does_not_wait_for_a_slow_reader_who_gets_the_newest_progress() -> None:
    client = Client()
    told = asyncio.Event()

    async def call(tell: OnProgress) -> Result:
        client.reads.clear()
        for number in range(10_000):
            await tell(float(number), "x" * 100)
            await asyncio.sleep(0)
        told.set()
        return RESULT

    answering = asyncio.create_task(EventStream(call)(SCOPE, client.receive, client.send))
    await told.wait()
    client.reads.set()
    await answering
    assert client.text.count("event: progress") == 2, "the first one and the newest"
    assert '"progress": 9999.0' in client.text
    assert client.text.count("event: result") == 1


async def test_a_call_without_news_sends_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_events, "KEEP_ALIVE_SECONDS", 0.001)
    client = Client()
    commented = asyncio.Event()

    async def call(_tell: OnProgress) -> Result:
        await commented.wait()
        return RESULT

    async def send(message: Any) -> None:
        await client.send(message)
        if message.get("body", b"").startswith(b":"):
            commented.set()

    await EventStream(call)(SCOPE, client.receive, send)
    assert client.text.startswith(": still at work\n\n")


@pytest.mark.parametrize("reads", [True, False])
async def test_a_client_that_goes_away_ends_the_call_even_if_it_did_not_read(*, reads: bool) -> None:
    ended = asyncio.Event()
    client = Client()

    async def call(tell: OnProgress) -> Result:
        try:
            await tell(1.0, "begun")
            client.leaves.set()
            await asyncio.Event().wait()
        finally:
            ended.set()
        return RESULT

    async def send(message: Any) -> None:
        await client.send(message)
        if not reads and message["type"] == "http.response.start":
            client.reads.clear()

    await EventStream(call)(SCOPE, client.receive, send)
    assert ended.is_set()
    assert "event: result" not in client.text


async def test_a_client_that_goes_away_while_it_sends_its_arguments_is_no_fault_of_the_server() -> None:
    parts = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> dict[str, Any]:
        return next(parts)

    scope = {"type": "http", "path_params": {"name": "get_node"}, "headers": [(b"content-type", b"application/json")]}
    paths = ToolPaths(Catalogue(LocalCaller({}), "main"), 100)
    assert (await paths.execute(Request(scope, receive))).status_code == 499


async def test_work_that_ends_as_its_client_leaves_has_its_result() -> None:
    client = Client()

    async def work() -> int:
        client.leaves.set()
        return 7

    assert await while_connected(client.receive, work()) == 7


async def test_the_clean_up_of_work_ends_before_the_client_counts_as_gone() -> None:
    client = Client()
    cleaned = False

    async def work() -> None:
        nonlocal cleaned
        try:
            client.leaves.set()
            await asyncio.Event().wait()
        finally:
            for _ in range(10):
                await asyncio.sleep(0)
            cleaned = True

    with pytest.raises(ClientDisconnect):
        await while_connected(client.receive, work())
    assert cleaned


async def test_a_handler_that_is_cancelled_ends_its_work() -> None:
    client = Client()
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    handler = asyncio.create_task(while_connected(client.receive, work()))
    await begun.wait()
    handler.cancel()
    with pytest.raises(asyncio.CancelledError):
        await handler
    assert ended.is_set()
