"""The handling of a call around its operation: decoding, deadlines, limits, cancellation, streams and the log."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import grpc  # type: ignore[import-untyped]  # grpcio ships no types
import pytest
from grpc import aio
from integration.wires import Refusal
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


async def refusal(call: Any) -> Refusal:
    with pytest.raises(aio.AioRpcError) as caught:
        await call
    return Refusal.of(caught.value)


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
        "/memotree.v1.SessionService/OpenSession", request_serializer=sessions.OpenSessionRequest.SerializeToString
    )
    for text in ("short", "\x80" * 40_000):
        await refusal(open_session(sessions.OpenSessionRequest(request_id=text)))
    assert [line["request"] for line in call_lines(log_lines)] == ["short", "\x80" * 200]


async def test_an_answer_of_the_wrong_type_is_an_internal_error(
    get_session: Callable[..., Any], scripted_sessions: Any
) -> None:
    async def wrong(_request: object) -> sessions.Session:
        return sessions.Session()

    scripted_sessions.answer = wrong
    assert (await refusal(get_session(sessions.GetSessionRequest()))).code == "INTERNAL"


@pytest.mark.parametrize(
    "method", ["SessionService/ListChanges", "NodeService/GetNode", "MaintenanceService/RebuildWorkspace"]
)
async def test_a_missing_operation_answers_unimplemented_with_a_reason(channel: aio.Channel, method: str) -> None:
    streams = method.endswith("RebuildWorkspace")
    path = f"/memotree.v1.{method}"
    refused = await refusal(channel.unary_stream(path)(b"").read() if streams else channel.unary_unary(path)(b""))
    assert (refused.code, refused.reason) == ("UNIMPLEMENTED", "OPERATION_MISSING")


@pytest.mark.requirement("SERVE-1", "CANVAS-8")
async def test_a_deadline_ends_the_operation(
    get_session: Callable[..., Any], scripted_sessions: Any, log_lines: list[Any]
) -> None:
    held, timeout = scripted_sessions.holds(), 0.05
    while held.begun.locked():  # on a busy machine a call may arrive after its deadline
        timeout *= 2
        refused = await refusal(get_session(sessions.GetSessionRequest(), timeout=timeout))
        assert refused.code == "DEADLINE_EXCEEDED"
    await asyncio.wait_for(held.ended.wait(), 60)
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
    assert context.aborted[0] is grpc.StatusCode.DEADLINE_EXCEEDED
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
    held = scripted_sessions.holds()
    call = get_session(sessions.GetSessionRequest())
    await asyncio.wait_for(held.begun.acquire(), 60)
    call.cancel()
    await asyncio.wait_for(held.ended.wait(), 60)
    assert [(line["code"], line["log_level"]) for line in call_lines(log_lines)] == [("CANCELLED", "info")]


async def test_a_stream_arrives_in_order(verify_workspace: Callable[..., Any]) -> None:
    stream = verify_workspace(maintenance.VerifyWorkspaceRequest(workspace="w"))
    assert [response.progress.done async for response in stream] == [1, 2]


@pytest.mark.requirement("SERVE-2")
@pytest.mark.parametrize(
    ("error", "code"),
    [(NotFoundError("The workspace is gone; list the workspaces.", "workspace", "w"), "NOT_FOUND"),
     (RuntimeError("secret"), "INTERNAL")],
)  # fmt: skip
async def test_an_error_in_a_stream_comes_after_what_was_sent_and_an_unforeseen_one_is_hidden(
    verify_workspace: Callable[..., Any], scripted_maintenance: Any, error: Exception, code: str
) -> None:
    async def fail() -> None:
        raise error

    scripted_maintenance.then = fail
    stream = verify_workspace(maintenance.VerifyWorkspaceRequest(workspace="w"))
    assert [(await stream.read()).progress.done for _ in range(2)] == [1, 2]
    refused = await refusal(stream.read())
    assert (refused.code, refused.reason) == (code, code)
    assert "secret" not in refused.message


@pytest.mark.requirement("CANVAS-8")
async def test_a_stream_is_closed_at_once_when_its_client_cancels(
    verify_workspace: Callable[..., Any], scripted_maintenance: Any
) -> None:
    scripted_maintenance.then = asyncio.Event().wait
    stream = verify_workspace(maintenance.VerifyWorkspaceRequest(workspace="w"))
    assert [(await stream.read()).progress.done for _ in range(2)] == [1, 2]
    stream.cancel()
    await asyncio.wait_for(scripted_maintenance.closed.wait(), 60)
