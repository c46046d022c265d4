"""The handling of a call around its operation: decoding, deadlines, limits, cancellation, streams and the log."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import grpc  # type: ignore[import-untyped]  # grpcio ships no types
import pytest
from google.rpc import error_details_pb2 as rpc  # type: ignore[import-untyped]  # the package ships no types
from grpc import aio
from grpc_status import rpc_status
from memotree_storage.errors import NotFoundError
from unit.server.contexts import ScriptedContext

from memotree.server.authentication import Authentication
from memotree.server.calls import RunningCalls
from memotree.server.interceptors import CallInterceptor
from memotree.server.request_reading import RequestReader
from memotree.server.unread import LeftAnswers, UnreadAnswers
from memotree.server.waiting import WaitingCalls
from memotree.settings import load_settings
from memotree.v1 import maintenance_service_pb2 as maintenance
from memotree.v1 import session_service_pb2 as sessions

Code = grpc.StatusCode


async def failure(call: Any) -> aio.AioRpcError:
    with pytest.raises(aio.AioRpcError) as caught:
        await call
    return caught.value


def reason(error: Any) -> str:
    info = rpc.ErrorInfo()
    assert rpc_status.from_call(error).details[0].Unpack(info)
    text: str = info.reason
    return text


def call_lines(log_lines: list[Any]) -> list[Any]:
    return [line for line in log_lines if line["event"] == "call"]


async def test_a_call_reaches_its_operation_and_is_logged_in_one_line(
    get_session: Callable[..., Any], log_lines: list[Any]
) -> None:
    response = await get_session(sessions.GetSessionRequest(session_id="s1"))
    assert response == sessions.GetSessionResponse(session=sessions.Session(id="s1"))
    (line,) = call_lines(log_lines)
    assert (
        line.items() >= {"method": "memotree.v1.SessionService/GetSession", "code": "OK", "log_level": "info"}.items()
    )
    assert line["ms"] >= 0


async def test_the_log_has_the_beginning_of_a_request_id_of_any_length(
    channel: aio.Channel, log_lines: list[Any]
) -> None:
    open_session = channel.unary_unary(
        "/memotree.v1.SessionService/OpenSession",
        request_serializer=sessions.OpenSessionRequest.SerializeToString,
    )
    for text in ("short", "\x80" * 40_000):
        await failure(open_session(sessions.OpenSessionRequest(request_id=text)))
    assert [line["request"] for line in call_lines(log_lines)] == ["short", "\x80" * 200]


async def test_bytes_that_are_no_message_are_an_invalid_argument(channel: aio.Channel, scripted_sessions: Any) -> None:
    for raw in (b"\xff\xff\xff", b"\x0a\x02\xff\xff"):  # no protobuf; a string that is no UTF-8
        error = await failure(channel.unary_unary("/memotree.v1.SessionService/GetSession")(raw))
        assert (error.code(), reason(error)) == (Code.INVALID_ARGUMENT, "MALFORMED_REQUEST")
    assert scripted_sessions.requests == []


async def test_an_answer_of_the_wrong_type_is_an_internal_error(
    get_session: Callable[..., Any], scripted_sessions: Any
) -> None:
    async def wrong(_request: object) -> sessions.Session:
        return sessions.Session()

    scripted_sessions.answer = wrong
    error = await failure(get_session(sessions.GetSessionRequest()))
    assert (error.code(), reason(error)) == (Code.INTERNAL, "INTERNAL")


@pytest.mark.parametrize(
    "method", ["SessionService/ListChanges", "NodeService/GetNode", "MaintenanceService/RebuildWorkspace"]
)
async def test_a_missing_operation_answers_unimplemented_with_a_reason(channel: aio.Channel, method: str) -> None:
    if method.endswith("RebuildWorkspace"):
        error = await failure(channel.unary_stream(f"/memotree.v1.{method}")(b"").read())
    else:
        error = await failure(channel.unary_unary(f"/memotree.v1.{method}")(b""))
    assert (error.code(), reason(error)) == (Code.UNIMPLEMENTED, "OPERATION_MISSING")


@pytest.mark.requirement("SERVE-1", "CANVAS-8")
async def test_a_deadline_ends_the_operation(
    get_session: Callable[..., Any], scripted_sessions: Any, log_lines: list[Any]
) -> None:
    ended = asyncio.Event()
    timeouts = [0.05]

    async def slow(_request: object) -> None:
        timeouts.clear()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    scripted_sessions.answer = slow
    while timeouts:  # on a busy machine a call may arrive after its deadline
        timeouts.append(2 * timeouts[-1])
        error = await failure(get_session(sessions.GetSessionRequest(), timeout=timeouts[-1]))
        assert error.code() is Code.DEADLINE_EXCEEDED
    await asyncio.wait_for(ended.wait(), 60)
    line = call_lines(log_lines)[-1]
    # The status depends on whether the server or the client notices the deadline first.
    assert line["code"] in {"DEADLINE_EXCEEDED", "CANCELLED"}


OPEN = Authentication(load_settings(), {})
"""Asks nobody who they are."""


async def handled(calls: RunningCalls, operation: Any) -> Any:
    """The handler of a call with one answer."""

    async def continuation(_details: object) -> Any:
        return grpc.unary_unary_rpc_method_handler(operation)

    left = LeftAnswers(lambda _: None)
    unread = UnreadAnswers(left)
    interceptor = CallInterceptor(calls, RequestReader(1000, WaitingCalls(1), unread), unread, left, OPEN)
    details = SimpleNamespace(method="/memotree.v1.SessionService/GetSession")
    return await interceptor.intercept_service(continuation, details)


@pytest.mark.requirement("SERVE-1")
async def test_a_call_that_arrives_after_its_deadline_never_reaches_the_operation() -> None:
    reached = []
    handler = await handled(RunningCalls(), lambda *given: reached.append(given))
    context = ScriptedContext(remaining=0)
    with pytest.raises(aio.AbortError):
        await handler.stream_unary(iter(()), context)
    assert context.aborted[0] is Code.DEADLINE_EXCEEDED
    assert reached == []


@pytest.mark.requirement("STORE-8")
@pytest.mark.parametrize("error", [NotFoundError("Gone.", "session", "s"), asyncio.CancelledError(), RuntimeError()])
async def test_a_stop_does_not_wait_until_a_client_takes_the_status_of_a_refused_call(error: BaseException) -> None:
    async def refuse(*_given: object) -> None:
        raise error

    calls = RunningCalls()
    context = ScriptedContext("abort")
    handler = await handled(calls, refuse)
    answering = asyncio.ensure_future(handler.stream_unary(iter(()), context))
    await asyncio.wait_for(context.waits.wait(), 60)
    await asyncio.wait_for(calls.wait_idle(), 60)
    assert not answering.done()
    answering.cancel()
    await asyncio.wait({answering})


@pytest.mark.requirement("CANVAS-8")
async def test_a_cancelled_call_cancels_its_operation_and_is_no_error(
    get_session: Callable[..., Any], scripted_sessions: Any, log_lines: list[Any]
) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def slow(_request: object) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    scripted_sessions.answer = slow
    call = get_session(sessions.GetSessionRequest())
    await asyncio.wait_for(begun.wait(), 60)
    call.cancel()
    await asyncio.wait_for(ended.wait(), 60)
    assert [(line["code"], line["log_level"]) for line in call_lines(log_lines)] == [("CANCELLED", "info")]


async def test_a_stream_arrives_in_order(verify_workspace: Callable[..., Any]) -> None:
    stream = verify_workspace(maintenance.VerifyWorkspaceRequest(workspace="w"))
    assert [response.progress.done async for response in stream] == [1, 2]


@pytest.mark.requirement("SERVE-2")
async def test_an_error_in_a_stream_comes_after_what_was_sent(
    verify_workspace: Callable[..., Any], scripted_maintenance: Any
) -> None:
    async def fail() -> None:
        raise NotFoundError("The workspace is gone; list the workspaces.", "workspace", "w")

    scripted_maintenance.then = fail
    stream = verify_workspace(maintenance.VerifyWorkspaceRequest(workspace="w"))
    assert [(await stream.read()).progress.done for _ in range(2)] == [1, 2]
    error = await failure(stream.read())
    assert (error.code(), reason(error)) == (Code.NOT_FOUND, "NOT_FOUND")


async def test_an_unforeseen_error_in_a_stream_is_hidden(
    verify_workspace: Callable[..., Any], scripted_maintenance: Any
) -> None:
    async def fail() -> None:
        raise RuntimeError("secret")

    scripted_maintenance.then = fail
    stream = verify_workspace(maintenance.VerifyWorkspaceRequest(workspace="w"))
    assert [(await stream.read()).progress.done for _ in range(2)] == [1, 2]
    error = await failure(stream.read())
    assert (error.code(), reason(error)) == (Code.INTERNAL, "INTERNAL")
    assert "secret" not in error.debug_error_string()


@pytest.mark.requirement("CANVAS-8")
async def test_a_stream_is_closed_at_once_when_its_client_cancels(
    verify_workspace: Callable[..., Any], scripted_maintenance: Any
) -> None:
    scripted_maintenance.then = asyncio.Event().wait
    stream = verify_workspace(maintenance.VerifyWorkspaceRequest(workspace="w"))
    assert [(await stream.read()).progress.done for _ in range(2)] == [1, 2]
    stream.cancel()
    await asyncio.wait_for(scripted_maintenance.closed.wait(), 60)


async def test_a_cancellation_inside_the_server_is_reported_to_the_client(
    get_session: Callable[..., Any], scripted_sessions: Any
) -> None:
    scripted_sessions.raises(asyncio.CancelledError())
    error = await failure(get_session(sessions.GetSessionRequest()))
    assert (error.code(), reason(error)) == (Code.UNAVAILABLE, "INTERRUPTED")
