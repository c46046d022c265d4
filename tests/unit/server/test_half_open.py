"""Calls that begin and never send their request lock nobody out."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from grpc import aio  # type: ignore[import-untyped]  # grpcio ships no types
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from integration.wires import Refusal
from unit.server.contexts import ScriptedContext

from memotree.server.calls import most_begun, most_waiting
from memotree.server.half_open import RequestNotReceivedError
from memotree.server.health import MOST_WATCHERS, Health
from memotree.server.request_reading import RequestReader
from memotree.server.unread import LeftAnswers, UnreadAnswers
from memotree.server.waiting import WaitingCalls
from memotree.settings import Settings

pytestmark = pytest.mark.requirement("STORE-8")

GET_SESSION = "/memotree.v1.SessionService/GetSession"
REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
WATCH = "/grpc.health.v1.Health/Watch"
CALLS = 32
"""The calls that may run at once in these tests; a quarter of them on one connection."""
SHARE = CALLS // 4


async def nothing() -> AsyncIterator[bytes]:
    """Requests that never come."""
    await asyncio.Event().wait()
    yield b""


Connect = Callable[[], Awaitable[Any]]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"max_concurrent_calls": CALLS})


async def places(connect: Connect) -> list[Any]:
    """Connections for more calls than may begin, each as often as it may have calls."""
    channels = [await connect() for _ in range(most_begun(CALLS) // SHARE + 4)]
    return [channel for channel in channels for _ in range(SHARE)]


async def answered(connect: Connect, path: str = GET_SESSION) -> None:
    other = await connect()
    for _ in range(3):
        await asyncio.wait_for(other.unary_unary(path)(b""), 60)


async def refusals(calls: list[asyncio.Future[Any]], count: int) -> list[Refusal]:
    """The first refusals of calls that nothing else ends."""
    told = []
    for ended in asyncio.as_completed(calls, timeout=60):
        with pytest.raises(aio.AioRpcError) as caught:
            await ended
        told.append(Refusal.of(caught.value))
        if len(told) == count:
            return told
    raise AssertionError(f"only {len(told)} of {len(calls)} calls were refused")


async def cancelled(calls: list[asyncio.Future[Any]]) -> None:
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


@pytest.mark.parametrize("path", [GET_SESSION, "/grpc.health.v1.Health/Check"])
async def test_calls_that_one_client_begins_over_many_connections_lock_nobody_out(connect: Connect, path: str) -> None:
    waits = asyncio.ensure_future((await connect()).stream_unary(path)(nothing()))
    half_open = [asyncio.ensure_future(channel.stream_unary(path)(nothing())) for channel in await places(connect)]
    told = await refusals(half_open, len(half_open) - most_waiting(CALLS))
    assert {(each.code, each.reason) for each in told} == {("RESOURCE_EXHAUSTED", "REQUEST_NOT_RECEIVED")}
    await answered(connect, path)
    assert not waits.done(), "the client that has one such call keeps it"
    await cancelled([*half_open, waits])


async def test_open_streams_of_reflection_lock_nobody_out(connect: Connect) -> None:
    asked = reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString()

    async def one() -> AsyncIterator[bytes]:
        yield asked
        await asyncio.Event().wait()

    reading = [channel.stream_stream(REFLECTION)(one()) for channel in await places(connect)]
    first = [asyncio.ensure_future(call.read()) for call in reading]
    answers = await asyncio.gather(*first, return_exceptions=True)
    assert sum(isinstance(answer, bytes) for answer in answers) > most_waiting(CALLS)
    await answered(connect)
    for call in reading:
        call.cancel()


async def test_watches_of_the_health_lock_nobody_out(connect: Connect) -> None:
    async def watched(channel: Any) -> None:
        async for _ in channel.unary_stream(WATCH)(b""):
            pass

    watching = [asyncio.ensure_future(watched(channel)) for channel in await places(connect)]
    told = await refusals(watching, len(watching) - MOST_WATCHERS)
    assert {(each.code, each.reason) for each in told} == {("RESOURCE_EXHAUSTED", "TOO_MANY_WATCHERS")}
    await answered(connect)
    late = (await connect()).unary_stream(WATCH)(b"")
    assert health_pb2.HealthCheckResponse.FromString(await asyncio.wait_for(late.read(), 60)).status
    late.cancel()
    await cancelled(watching)


class Watching:
    """Calls of Watch that each wait for a change."""

    def __init__(self) -> None:
        self.health = Health(watch_seconds=3600)
        self.health.set_serving(["a.Service"])
        self._streams: list[AsyncGenerator[Any]] = []

    async def begin(self, address: str) -> "asyncio.Task[Any]":
        """Watch from an address; the task is done when the call has ended."""
        context: Any = ScriptedContext(peer=f"ipv4:{address}:{len(self._streams)}")
        stream = self.health.Watch(health_pb2.HealthCheckRequest(), context)
        self._streams.append(stream)
        assert (await anext(stream)).status == health_pb2.HealthCheckResponse.SERVING
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        return waiting

    async def close(self) -> None:
        for each in self._streams:
            await each.aclose()


@pytest.fixture
async def watching() -> AsyncIterator[Watching]:
    made = Watching()
    yield made
    await made.close()


async def test_an_address_with_many_watches_ends_its_own(watching: Watching) -> None:
    balancer = await watching.begin("192.0.2.1")
    stranger = [await watching.begin("192.0.2.2") for _ in range(2 * MOST_WATCHERS)]
    late = await watching.begin("192.0.2.3")
    ended = stranger[: MOST_WATCHERS + 2]
    for each in await asyncio.gather(*ended, return_exceptions=True):
        assert isinstance(each, aio.AbortError)
    left = [balancer, late, *stranger[MOST_WATCHERS + 2 :]]
    assert len(left) == MOST_WATCHERS
    assert not any(each.done() for each in left)
    await cancelled(left)


async def test_a_watcher_that_goes_leaves_its_place(watching: Watching) -> None:
    stays = await watching.begin("192.0.2.1")
    for _ in range(2):
        others = [await watching.begin("192.0.2.2") for _ in range(MOST_WATCHERS - 1)]
        assert not any(each.done() for each in others)
        await cancelled([*others])
    assert not stays.done()
    await cancelled([stays])


async def test_a_request_that_does_not_arrive_in_time_ends_its_call() -> None:
    reader = RequestReader(1000, WaitingCalls(8, seconds=0.01), UnreadAnswers(LeftAnswers(lambda _: None)))
    context: Any = ScriptedContext("read")
    with pytest.raises(RequestNotReceivedError, match="send it again"):
        await asyncio.wait_for(reader.receive_only("x", context), 60)


async def test_a_call_whose_client_sends_no_request_is_told_so(connect: Connect) -> None:
    async def none() -> AsyncIterator[bytes]:
        return
        yield b""

    channel = await connect()
    for path in (GET_SESSION, "/grpc.health.v1.Health/Check"):
        (told,) = await refusals([asyncio.ensure_future(channel.stream_unary(path)(none()))], 1)
        assert (told.code, told.reason) == ("INVALID_ARGUMENT", "REQUEST_MISSING")
        assert "which may be empty" in told.message


async def test_the_oldest_call_of_the_peer_with_most_makes_room() -> None:
    ended: list[str] = []
    calls = WaitingCalls(3)
    for name in ("a1", "b1", "b2", "b3", "a2", "a3"):
        call = calls.begin(name[0], partial(ended.append, name))
        if name == "a2":
            call.end()
            call.end()
    assert ended == ["b1", "b2"], "a2 ended by itself, so a3 needed no room"
    calls.begin("c", partial(ended.append, "c"))
    assert ended[2] == "a1"
