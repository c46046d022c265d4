"""What the transport refuses carries a reason, a way on and, where it helps, the advice to send the call again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import grpc  # type: ignore[import-untyped]  # grpcio ships no types
import pytest
import pytest_asyncio
from google.rpc import error_details_pb2 as rpc  # type: ignore[import-untyped]  # the package ships no types
from grpc import aio
from grpc_health.v1 import health_pb2
from grpc_status import rpc_status
from unit.server.conftest import open_channel

from memotree.client.errors import ResourceExhaustedError, decode_error
from memotree.server.app import METADATA_BYTES, Server
from memotree.server.calls import RunningCalls, ServerStoppingError, TooManyCallsError
from memotree.server.request_reading import GRPC_LIMIT_FACTOR
from memotree.settings import Settings
from memotree.v1 import session_service_pb2 as sessions

Code = grpc.StatusCode
GET_SESSION = "/memotree.v1.SessionService/GetSession"
HEALTH = "/grpc.health.v1.Health"
NO_MESSAGE = b"\xff\xff\xff"
LIMIT = 100_000
"""The limit for messages in the settings of these tests."""


async def refusal(call: Any) -> tuple[Any, str, str]:
    """Status, reason and message of a call that must fail; its details are those of all errors."""
    with pytest.raises(grpc.RpcError) as caught:
        await call
    error: Any = caught.value
    status = rpc_status.from_call(error)
    assert status is not None, f"there are no details: {error.details()}"
    info, request = rpc.ErrorInfo(), rpc.RequestInfo()
    assert status.details[0].Unpack(info)
    assert info.domain == "memotree"
    assert status.details[-1].Unpack(request)
    assert request.request_id
    waits = [detail for detail in status.details if detail.Is(rpc.RetryInfo.DESCRIPTOR)]
    assert len(waits) == (info.reason == "TOO_MANY_CALLS"), "only this cause passes by itself"
    return error.code(), info.reason, error.details()


async def streamed(server: Server, path: str, *messages: bytes, answers: bool = True) -> None:
    """Send messages in one stream; ``answers`` says whether the answers are a stream as well.

    The client without asyncio sends them: the other one puts INTERNAL in the place of the status that the server
    gave when a message is written after it (grpc/grpc#36066).
    """

    def send() -> None:
        with grpc.insecure_channel(server.address) as channel:
            if answers:
                list(channel.stream_stream(path)(iter(messages), timeout=60))
            else:
                channel.stream_unary(path)(iter(messages), timeout=60)

    await asyncio.to_thread(send)


@pytest.mark.requirement("SERVE-2")
@pytest.mark.parametrize(
    ("path", "reason", "meant"),
    [
        ("/memotree.v1.NodeService/GetNodes", "UNKNOWN_METHOD", "Did you mean memotree.v1.NodeService/GetNode?"),
        ("/memotree.v1.NodeService/getnode", "UNKNOWN_METHOD", "Did you mean memotree.v1.NodeService/GetNode?"),
        ("/memotree.v1.NodeService/Remember", "UNKNOWN_METHOD", "Did you mean memotree.v1.MemoryService/Remember?"),
        ("/memotree.v2.NodeService/GetNode", "UNKNOWN_SERVICE", "Did you mean memotree.v1.NodeService/GetNode?"),
        ("/memotree.v1.nodes/Xyz", "UNKNOWN_SERVICE", "Did you mean memotree.v1.NodeService?"),
        ("/another.Service/Do", "UNKNOWN_SERVICE", "no service 'another.Service'. Reflection lists"),
        ("/memotree.v1.NodeService/" + "x" * 5000, "UNKNOWN_METHOD", "xxx…'. Reflection lists"),
        ("/NodeService", "UNKNOWN_SERVICE", "no service ''. Reflection lists"),
    ],
)
async def test_an_unknown_method_is_told_the_nearest_one(
    server: Server, channel: aio.Channel, log_lines: list[Any], path: str, reason: str, meant: str
) -> None:
    calls = [
        channel.unary_unary(path)(b""),
        channel.unary_stream(path)(b"").read(),
        streamed(server, path, answers=False),
        streamed(server, path, b"", b""),
    ]
    for call in calls:
        code, told, message = await refusal(call)
        assert (code, told) == (Code.UNIMPLEMENTED, reason)
        assert meant in message
    lines = [line for line in log_lines if line["event"] == "call"]
    assert [line["reason"] for line in lines] == [reason] * len(calls)
    assert all(len(line["method"]) <= 200 for line in lines)


@pytest.mark.requirement("SERVE-1", "SERVE-2")
@pytest.mark.parametrize("size", [LIMIT + 1, int(LIMIT * GRPC_LIMIT_FACTOR)])
async def test_a_message_over_the_limit_is_refused_with_its_size_and_the_limit(
    channel: aio.Channel, scripted_sessions: Any, size: int
) -> None:
    raw = sessions.GetSessionRequest(session_id="x" * (size - 4)).SerializeToString()
    assert len(raw) == size
    for call in (channel.unary_unary(GET_SESSION)(raw), channel.unary_unary(f"{HEALTH}/Check")(raw)):
        code, reason, message = await refusal(call)
        assert (code, reason) == (Code.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE")
        assert f"{size} bytes" in message
        assert f"at most {LIMIT} " in message
    assert scripted_sessions.requests == []
    await channel.unary_unary(GET_SESSION)(sessions.GetSessionRequest(session_id="x" * (LIMIT - 4)).SerializeToString())
    assert len(scripted_sessions.requests) == 1


@pytest.mark.requirement("SERVE-1")
async def test_beyond_our_own_refusals_grpc_refuses_a_message_and_the_client_says_what_to_do(
    get_session: Callable[..., Any], scripted_sessions: Any
) -> None:
    with pytest.raises(aio.AioRpcError) as caught:
        await get_session(sessions.GetSessionRequest(session_id="x" * 2 * LIMIT))
    assert caught.value.code() is Code.RESOURCE_EXHAUSTED
    told = decode_error(caught.value, "server")
    assert isinstance(told, ResourceExhaustedError)
    assert "send less at once" in told.message
    assert scripted_sessions.requests == []


@pytest.mark.requirement("SERVE-1")
async def test_metadata_is_accepted_up_to_one_size_and_refused_above_it_each_time(
    get_session: Callable[..., Any], scripted_sessions: Any
) -> None:
    for _ in range(10):
        await get_session(sessions.GetSessionRequest(session_id="s"), metadata=(("filler", "x" * 15_000),))
        with pytest.raises(aio.AioRpcError) as caught:
            await get_session(sessions.GetSessionRequest(session_id="s"), metadata=(("filler", "x" * METADATA_BYTES),))
        assert caught.value.code() is Code.RESOURCE_EXHAUSTED
    assert len(scripted_sessions.requests) == 10


@pytest.mark.requirement("SERVE-2")
async def test_a_request_that_is_no_message_is_an_invalid_argument_for_every_service(
    server: Server, channel: aio.Channel, scripted_sessions: Any
) -> None:
    reflection = "ServerReflection/ServerReflectionInfo"
    calls = [
        channel.unary_unary(GET_SESSION)(NO_MESSAGE),
        channel.unary_unary(GET_SESSION)(b"\x0a\x02\xff\xff"),  # a string that is no UTF-8
        channel.unary_stream("/memotree.v1.MaintenanceService/VerifyWorkspace")(NO_MESSAGE).read(),
        channel.unary_unary(f"{HEALTH}/Check")(NO_MESSAGE),
        channel.unary_stream(f"{HEALTH}/Watch")(NO_MESSAGE).read(),
        streamed(server, f"/grpc.reflection.v1.{reflection}", NO_MESSAGE),
        streamed(server, f"/grpc.reflection.v1alpha.{reflection}", NO_MESSAGE),
    ]
    for call in calls:
        code, reason, message = await refusal(call)
        assert (code, reason) == (Code.INVALID_ARGUMENT, "MALFORMED_REQUEST")
        assert "Build it from the contract" in message
    assert scripted_sessions.requests == []


@pytest.mark.requirement("SERVE-2")
async def test_the_health_of_an_unknown_service_is_not_found_with_details(channel: aio.Channel) -> None:
    asked = health_pb2.HealthCheckRequest(service="memotree.v1.NoService").SerializeToString()
    code, reason, message = await refusal(channel.unary_unary(f"{HEALTH}/Check")(asked))
    assert (code, reason) == (Code.NOT_FOUND, "HEALTH_UNKNOWN")
    assert "memotree.v1.NoService" in message


@pytest_asyncio.fixture
async def call(settings: Settings, scripted_sessions: Any) -> AsyncIterator[Callable[[], Awaitable[bytes]]]:
    """Calls a server that may run two calls at once, over a new connection, since one has a share of them only."""
    few = settings.model_copy(update={"max_concurrent_calls": 2})
    operations = {"SessionService": scripted_sessions}
    async with Server(few, operations, partial=True) as server, AsyncExitStack() as stack:

        async def called() -> bytes:
            answer: bytes = await (await open_channel(stack, server.address)).unary_unary(GET_SESSION)(b"")
            return answer

        yield called


@pytest.mark.requirement("SERVE-1", "SERVE-2")
async def test_calls_above_the_limit_are_refused_with_the_advice_to_retry(
    call: Callable[[], Awaitable[bytes]], scripted_sessions: Any
) -> None:
    held = scripted_sessions.holds()
    running = [asyncio.ensure_future(call()) for _ in range(2)]
    for _ in running:
        await asyncio.wait_for(held.begun.acquire(), 60)
    refused = await asyncio.gather(*(refusal(call()) for _ in range(20)))
    assert {answer[:2] for answer in refused} == {(Code.RESOURCE_EXHAUSTED, "TOO_MANY_CALLS")}
    assert "send it again in a moment" in refused[0][2]
    assert "max_concurrent_calls" in refused[0][2]
    held.proceed.set()
    await asyncio.gather(*running)
    assert len(scripted_sessions.requests) == 2
    for error in (KeyError("x"), asyncio.CancelledError()) * 3:
        scripted_sessions.raises(error)
        with pytest.raises(aio.AioRpcError):
            await call()
    scripted_sessions.answer = None
    await call()  # the places are free again


def test_a_refused_call_holds_no_place_and_a_stop_comes_before_the_limit() -> None:
    calls = RunningCalls(1)
    with calls.running(), calls.running():
        with calls.admitted():
            with pytest.raises(TooManyCallsError), calls.admitted():
                pass
            calls.close()
            with pytest.raises(ServerStoppingError), calls.admitted():
                pass
        assert calls.count == 2
    assert calls.count == 0
