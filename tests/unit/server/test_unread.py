"""Answers that their clients do not read lock nobody out."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import grpc  # type: ignore[import-untyped]  # grpcio ships no types
import pytest
from grpc import aio
from grpc_reflection.v1alpha import reflection_pb2
from integration.wires import Refusal
from unit.server.conftest import open_channel
from unit.server.contexts import ScriptedContext
from unit.server.full_connection import FullConnection

from memotree.server import app
from memotree.server.app import Server
from memotree.server.calls import most_begun
from memotree.server.request_reading import RequestReader
from memotree.server.unread import CALL_BYTES, AnswerNotReadError, LeftAnswers, UnreadAnswers
from memotree.server.waiting import WaitingCalls
from memotree.settings import Settings
from memotree.v1 import maintenance_service_pb2 as maintenance
from memotree.v1 import session_service_pb2 as sessions

pytestmark = pytest.mark.requirement("STORE-8")

GET_SESSION = "/memotree.v1.SessionService/GetSession"
BACK_UP = "/memotree.v1.MaintenanceService/BackUp"
REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
CALLS = 16
"""The calls that may run at once in these tests; a quarter of them on one connection."""
SHARE = CALLS // 4
LARGE = 1 << 18
"""The bytes of an answer that is larger than what these clients take before they read."""


class Endless:
    """Backups without an end, sessions that are large, and sessions that are held until the test releases them."""

    def __init__(self) -> None:
        self.begun = asyncio.Semaphore(0)
        self.release = asyncio.Event()
        self.ended = asyncio.Semaphore(0)

    async def back_up(self, _request: object) -> AsyncIterator[maintenance.BackUpResponse]:
        try:
            self.begun.release()
            while True:
                yield maintenance.BackUpResponse(chunk=bytes(LARGE))
        finally:
            self.ended.release()

    async def get_session(self, request: sessions.GetSessionRequest) -> sessions.GetSessionResponse:
        self.begun.release()
        if request.session_id == "held":
            await self.release.wait()
        return sessions.GetSessionResponse(
            session=sessions.Session(id="x" * LARGE if request.session_id == "large" else "")
        )


LARGE_SESSION = sessions.GetSessionRequest(session_id="large").SerializeToString()
HELD_SESSION = sessions.GetSessionRequest(session_id="held").SerializeToString()


class NotedLeft(LeftAnswers):
    """Answers that are noted when they are left to gRPC, and when the connection of a client was closed."""

    def __init__(
        self, left: asyncio.Semaphore, closed: asyncio.Semaphore, close: Callable[[str], None], **limits: Any
    ) -> None:
        loop = asyncio.get_running_loop()

        def note(peer: str) -> None:
            close(peer)
            loop.call_soon_threadsafe(closed.release)

        super().__init__(note, **limits)
        self._noted = left

    def leave(self, context: Any, size: int) -> None:
        super().leave(context, size)
        self._noted.release()


class NotedUnread(UnreadAnswers):
    """Answers that are noted when they begin to wait for their clients."""

    def __init__(self, written: asyncio.Semaphore, left: LeftAnswers, **limits: float) -> None:
        super().__init__(left, **limits)
        self._noted = written

    async def write(self, context: Any, answer: bytes) -> None:
        self._noted.release()
        await super().write(context, answer)


class Clients:
    """A server whose limits for unread answers a test sets, and clients with a connection each."""

    def __init__(self, settings: Settings, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        self.operations = Endless()
        self.written = asyncio.Semaphore(0)
        self.left = asyncio.Semaphore(0)
        self.closed = asyncio.Semaphore(0)
        self._settings = settings.model_copy(update={"max_concurrent_calls": CALLS})
        self._stack = stack
        self._patch = monkeypatch
        self._address = ""

    async def serve(self, *, left: dict[str, int] | None = None, **limits: float) -> Server:
        self._patch.setattr(app, "UnreadAnswers", partial(NotedUnread, self.written, **limits))
        self._patch.setattr(app, "LeftAnswers", partial(NotedLeft, self.left, self.closed, **left or {}))
        operations = {"SessionService": self.operations, "MaintenanceService": self.operations}
        server = await self._stack.enter_async_context(Server(self._settings, operations, partial=True))
        self._address = server.address
        return server

    async def channel(self, *options: tuple[str, int]) -> Any:
        return await open_channel(self._stack, self._address, ("grpc.http2.bdp_probe", 0), *options)

    async def full(self) -> FullConnection:
        return self._stack.enter_context(await FullConnection.to(self._address))

    async def unread(self, count: int, path: str, request: bytes = b"") -> list[Any]:
        """Calls whose answers nobody reads, as many on each connection as it may have; they have begun."""
        channels = [await self.channel() for _ in range(-(-count // SHARE))]
        calls = []
        for number in range(count):
            calls.append(channels[number // SHARE].unary_stream(path)(request))
            await asyncio.wait_for(self.operations.begun.acquire(), 60)
        return calls


@pytest.fixture
async def clients(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Clients]:
    async with AsyncExitStack() as stack:
        yield Clients(settings, stack, monkeypatch)


async def refused(call: Any) -> Refusal:
    """How a stream ends."""
    try:
        while await call.read() is not aio.EOF:
            pass
    except aio.AioRpcError as error:
        return Refusal.of(error)
    raise AssertionError("the stream was not refused")


async def test_the_oldest_stream_of_the_connection_with_most_unread_ones_gives_its_place_to_another_call(
    clients: Clients,
) -> None:
    await clients.serve(patience=0)
    streams = await clients.unread(CALLS, BACK_UP)
    for stream in (streams[0], streams[SHARE]):
        await clients.unread(1, BACK_UP)
        await asyncio.wait_for(clients.operations.ended.acquire(), 60)
        told = await asyncio.wait_for(refused(stream), 60)
        assert (told.code, told.reason) == ("RESOURCE_EXHAUSTED", "ANSWER_NOT_READ")
        assert "read its answers as they come" in told.message
    assert clients.operations.ended.locked(), "the others run"


async def test_a_stream_whose_client_has_just_made_room_keeps_its_place(clients: Clients) -> None:
    await clients.serve(patience=60)
    await clients.unread(CALLS, BACK_UP)
    other = await clients.channel()
    with pytest.raises(aio.AioRpcError) as caught:
        await asyncio.wait_for(other.unary_unary(GET_SESSION)(b""), 60)
    assert Refusal.of(caught.value).reason == "TOO_MANY_CALLS"
    assert clients.operations.ended.locked()


async def test_streams_end_if_their_client_does_not_read_in_time_and_a_stop_does_not_wait_for_it(
    clients: Clients,
) -> None:
    server = await clients.serve(seconds=0.05)
    streams = await clients.unread(SHARE, BACK_UP)
    for _ in streams:
        await asyncio.wait_for(clients.operations.ended.acquire(), 60)
    assert (await asyncio.wait_for(refused(streams[0]), 60)).reason == "ANSWER_NOT_READ"
    await asyncio.wait_for(server.stop(3600), 60)


async def test_a_stream_that_cannot_begin_on_a_full_connection_ends_and_the_client_that_reads_again_has_its_status(
    clients: Clients, log_lines: list[Any]
) -> None:
    await clients.serve(seconds=0.05)
    connection = await clients.full()
    for stream in (1, 3):
        await connection.begin(stream, BACK_UP)
        await asyncio.wait_for(clients.left.acquire(), 60)
    await asyncio.wait_for(clients.operations.begun.acquire(), 60)
    assert clients.operations.begun.locked(), "the operation of the second one did not begin"
    await asyncio.wait_for(connection.read_until_ended(3), 60)
    assert [line["reason"] for line in log_lines if line["event"] == "call"] == ["ANSWER_NOT_READ"] * 2


async def questions() -> AsyncIterator[bytes]:
    """Requests of reflection with long answers."""
    for _ in range(100):
        yield reflection_pb2.ServerReflectionRequest(
            file_containing_symbol="memotree.v1.NodeService"
        ).SerializeToString()
    await asyncio.Event().wait()


async def test_a_stream_of_reflection_ends_if_its_client_does_not_read_in_time(clients: Clients) -> None:
    await clients.serve(seconds=1)
    stream = (await clients.channel()).stream_stream(REFLECTION)(questions())
    await asyncio.wait_for(clients.left.acquire(), 60)
    assert (await asyncio.wait_for(refused(stream), 60)).reason == "ANSWER_NOT_READ"


async def test_a_stream_of_reflection_has_no_place_that_another_call_could_take(clients: Clients) -> None:
    await clients.serve(patience=0)
    little = await clients.channel(("grpc.http2.lookahead_bytes", 1024))
    stream = little.stream_stream(REFLECTION)(questions())
    await asyncio.wait_for(clients.written.acquire(), 60)
    await clients.unread(CALLS, GET_SESSION, HELD_SESSION)
    other = await clients.channel()
    with pytest.raises(aio.AioRpcError) as caught:
        await asyncio.wait_for(other.unary_unary(GET_SESSION)(HELD_SESSION), 60)
    assert Refusal.of(caught.value).reason == "TOO_MANY_CALLS"
    clients.operations.release.set()
    stream.cancel()


async def test_more_unread_answers_than_calls_may_begin_lock_nobody_out(clients: Clients) -> None:
    await clients.serve()
    await clients.unread(most_begun(CALLS) + SHARE, GET_SESSION, LARGE_SESSION)
    other = await clients.channel()
    await asyncio.wait_for(other.unary_unary(GET_SESSION)(b""), 60)


async def test_if_too_many_bytes_are_unread_the_connection_with_most_of_them_is_closed(clients: Clients) -> None:
    await clients.serve(left={"most": SHARE * LARGE, "patience": 0})
    (kept,) = await clients.unread(1, GET_SESSION, LARGE_SESSION)
    most = await clients.unread(SHARE, GET_SESSION, LARGE_SESSION)
    (last,) = await clients.unread(1, GET_SESSION, LARGE_SESSION)
    await asyncio.wait_for(clients.closed.acquire(), 60)
    for call in most:
        assert (await asyncio.wait_for(refused(call), 60)).code == "UNAVAILABLE"
    for call in (kept, last):
        assert len(await asyncio.wait_for(call.read(), 60)) > LARGE


async def test_an_answer_that_was_read_counts_no_longer(clients: Clients) -> None:
    await clients.serve(left={"most": 2 * CALL_BYTES, "patience": 0})
    channel = await clients.channel()
    for _ in range(8):
        assert len(await asyncio.wait_for(channel.unary_unary(GET_SESSION)(LARGE_SESSION), 60)) > LARGE


async def test_a_stream_whose_client_takes_no_metadata_makes_room_and_its_status_follows_the_metadata() -> None:
    unread = UnreadAnswers(LeftAnswers(lambda _: None), patience=0)
    context = ScriptedContext("metadata")
    begins = asyncio.ensure_future(unread.begin(context))
    await asyncio.sleep(0)
    assert unread.make_room()
    with pytest.raises(AnswerNotReadError) as caught:
        await asyncio.wait_for(begins, 60)
    status = asyncio.ensure_future(caught.value.wait_for_status())
    await asyncio.sleep(0)
    assert not status.done()
    context.room.set()
    await asyncio.wait_for(status, 60)
    assert not unread.make_room()


async def test_a_stream_of_reflection_is_closed_at_once_when_its_client_goes() -> None:
    closed: list[str] = []

    async def mirrors(requests: AsyncIterator[bytes], _context: object) -> AsyncIterator[bytes]:
        try:
            async for request in requests:
                yield request
        finally:
            closed.append("answers")

    handler = grpc.stream_stream_rpc_method_handler(mirrors, request_deserializer=bytes, response_serializer=bytes)
    reader = RequestReader(1000, WaitingCalls(1), UnreadAnswers(LeftAnswers(lambda _: None)))
    context = ScriptedContext("write")
    call = asyncio.ensure_future(reader.reading("x", handler).stream_stream(iter(()), context))
    await asyncio.wait_for(context.waits.wait(), 60)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert closed == ["answers"]


def full(peer: str) -> Any:
    """The context of a call whose client has no room."""
    return ScriptedContext("metadata", "write", peer=peer)


class _Closing:
    """Notes which connections are to be closed, in which thread; the test lets each search end.

    Args:
        error: The error of the first search.
    """

    def __init__(self, error: OSError | None = None) -> None:
        self._error = error
        self.peers: list[str] = []
        self.threads: set[int] = set()
        self.begun = asyncio.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self._loop = asyncio.get_running_loop()

    def __call__(self, peer: str) -> None:
        self.peers.append(peer)
        self.threads.add(threading.get_ident())
        self._loop.call_soon_threadsafe(self.begun.release)
        assert self.may_end.acquire(timeout=60)
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    async def next(self) -> None:
        await asyncio.wait_for(self.begun.acquire(), 60)


async def threads_have_begun() -> None:
    """Wait until everything that was to run in a thread so far has begun; the threads take it in order."""
    await asyncio.to_thread(int)


async def test_an_ended_stream_counts_until_its_client_has_its_status() -> None:
    closing = _Closing()
    closing.may_end.release()
    unread = UnreadAnswers(LeftAnswers(closing, most=CALL_BYTES, patience=0), seconds=0.01)
    first, second = full("a"), full("b")
    for context in (first, second):
        with pytest.raises(AnswerNotReadError):
            await asyncio.wait_for(unread.write(context, b"x"), 60)
    await closing.next()
    assert closing.peers == ["a"]
    second.end()
    with pytest.raises(AnswerNotReadError):
        await asyncio.wait_for(unread.write(full("c"), b"x"), 60)
    await threads_have_begun()
    assert closing.peers == ["a"]


async def test_a_connection_is_closed_once_and_never_on_the_thread_of_the_event_loop() -> None:
    closing = _Closing()
    left = LeftAnswers(closing, most=4 * CALL_BYTES, patience=0)
    calls = [full(peer) for peer in "aaaabbb"]
    for call in calls[:6]:
        left.leave(call, 0)
    await closing.next()
    assert closing.peers == ["a"], "gRPC has not noticed yet that it is closed"
    left.leave(calls[6], 0)
    left.leave(full("c"), 0)
    await threads_have_begun()
    assert closing.peers == ["a"], "one search at a time"
    closing.may_end.release(2)
    await closing.next()
    assert closing.peers == ["a", "b"]
    assert threading.get_ident() not in closing.threads


async def test_an_answer_that_is_read_meanwhile_does_not_make_its_connection_be_closed_again() -> None:
    closing = _Closing()
    closing.may_end.release(3)
    left = LeftAnswers(closing, most=2 * CALL_BYTES, patience=0)
    calls = [full("a") for _ in range(5)]
    for call in calls[:3]:
        left.leave(call, 0)
    await closing.next()
    calls[1].end()
    for call in calls[3:]:
        left.leave(call, 0)
    for call in calls:
        call.end()
    for _ in range(3):
        left.leave(full("b"), 0)
    await closing.next()
    assert closing.peers == ["a", "b"]


async def test_another_connection_from_the_address_of_a_closed_one_can_be_closed() -> None:
    closing = _Closing()
    closing.may_end.release(2)
    left = LeftAnswers(closing, most=CALL_BYTES, patience=0)
    for _ in range(2):
        calls = [full("a"), full("a")]
        for call in calls:
            left.leave(call, 0)
        await closing.next()
        for call in calls:
            call.end()
    assert closing.peers == ["a", "a"]


async def test_a_connection_that_could_not_be_closed_is_closed_for_the_next_answer(log_lines: list[Any]) -> None:
    closing = _Closing(OSError(errno.EMFILE, "Too many open files"))
    closing.may_end.release(3)
    left = LeftAnswers(closing, most=CALL_BYTES, patience=0)
    for peer in "aabb":
        left.leave(full(peer), 0)
    for _ in "ab":
        await closing.next()
    assert "Too many open files" in log_lines[0]["cause"]
    for _ in range(2):
        left.leave(full("a"), 0)
    await closing.next()
    assert closing.peers == ["a", "b", "a"]


async def test_the_peer_with_most_bytes_makes_room_and_not_the_one_with_most_calls() -> None:
    ended: list[str] = []
    calls = WaitingCalls(10)
    for name, size in (("a1", 2), ("a2", 2), ("b1", 6), ("c1", 1)):
        calls.begin(name[0], partial(ended.append, name), size)
    assert ended == ["b1"]
