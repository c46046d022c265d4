"""The outermost interceptor: it counts, times and logs every call of the contract and translates its errors.

Calls that gRPC would refuse by itself, without details, are refused here: unknown methods, too many calls, messages
that are too large, requests that are no messages and requests that do not come. So are calls that do not prove who
makes them; health and reflection need no proof, since they tell nothing of what is in the server.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, nullcontext
from typing import Any, Final

import grpc
from grpc import aio
from structlog.contextvars import bind_contextvars

from memotree.error_mapping import Code, UnauthenticatedError
from memotree.identity.errors import ProviderUnavailableError
from memotree.request.observed_calls import GRPC, NOBODY, CallObservers, came_through
from memotree.request.principal import LOCAL, acting_as
from memotree.server.authentication import HEADER, Authentication
from memotree.server.call_record import CallRecord, Context, refuse, refusing
from memotree.server.calls import RunningCalls
from memotree.server.connections import IdleConnections
from memotree.server.half_open import RequestNotReceivedError
from memotree.server.request_reading import RequestMissingError, RequestReader
from memotree.server.unknown_methods import unknown
from memotree.server.unread import AnswerNotReadError, LeftAnswers, UnreadAnswers

CONTRACT: Final = "/memotree."
"""The prefix of the path of our RPCs; of health and reflection, only the requests are read here."""


class LateCallError(TimeoutError):
    """The deadline of a call passed before it began."""


class CallInterceptor(aio.ServerInterceptor):
    """Wraps every operation.

    It decodes the request and encodes the response itself, so that errors there are answered like any other. A call
    that arrives while the server stops, or after its deadline, or while the server runs as many calls as it may, never
    reaches its operation. A call of a method that the server does not have is told the nearest one.

    Args:
        calls: Counts the calls.
        reader: Reads the requests.
        unread: Sends the answers of streams.
        left: Takes the answers of calls that have only one.
        authentication: Finds out who calls.
        observers: Those who are told of each call.
        connections: Is told on which connections calls run.
    """

    def __init__(
        self,
        calls: RunningCalls,
        reader: RequestReader,
        unread: UnreadAnswers,
        left: LeftAnswers,
        authentication: Authentication,
        observers: CallObservers = NOBODY,
        connections: IdleConnections | None = None,
    ) -> None:
        self._calls = calls
        self._connections = connections
        self._authentication = authentication
        self._reader = reader
        self._unread = unread
        self._left = left
        self._observers = observers
        self._wrapped: dict[str, Any] = {}

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """The handler of a call; that of a method which the server has is made once."""
        wrapped = self._wrapped.get(details.method)
        if wrapped is None:
            handler = await continuation(details)
            method: str = details.method.removeprefix("/")
            if handler is None:
                return refusing(method, unknown(method), self._observers)
            wrapped = self._wrapped[details.method] = self._wrap(method, handler)
        return wrapped

    def _wrap(self, method: str, handler: Any) -> Any:
        if not f"/{method}".startswith(CONTRACT):
            return self._reader.reading(method, handler)
        if handler.response_streaming:

            async def stream(_requests: object, context: Context) -> None:
                await self._guard(method, handler, context, self._write_all)

            return grpc.stream_stream_rpc_method_handler(stream)

        async def single(_requests: object, context: Context) -> bytes:
            answer: bytes = await self._guard(method, handler, context, _answer_one)
            self._left.leave(context, len(answer))
            return answer

        return grpc.stream_unary_rpc_method_handler(single)

    async def _guard(
        self,
        method: str,
        handler: Any,
        context: Context,
        run: Callable[[Any, Any, Context], Awaitable[Any]],
    ) -> Any:
        """Run one call and report its outcome to the client and the log. It begins when its request has arrived.

        It runs no longer when an error is reported, so that a stop does not wait until the client has read that.
        """
        who, name = LOCAL, ""
        try:
            if self._authentication.is_required:
                proofs = _proofs(context)
                who = await self._authentication.principal(proofs, b"" if proofs else _certificate(context))
                bind_contextvars(principal=who.name)
            name = who.name
            raw = await self._reader.receive_only(method, context)
        except (
            RequestMissingError,
            RequestNotReceivedError,
            UnauthenticatedError,
            ProviderUnavailableError,
        ) as error:
            await refuse(method, error, context, self._observers, name)
        came_through(GRPC, context.invocation_metadata)  # gRPC gives each call a context of its own
        record = CallRecord(method, self._observers, who.name)
        bind_contextvars(call=record.call_id)
        try:
            streaming = self._calls.streaming(who.owner) if handler.response_streaming else nullcontext()
            busy = nullcontext() if self._connections is None else self._connections.calling(context.peer())
            with self._calls.running(), busy, streaming, self._calls.admitted(), acting_as(who):
                answer = await self._run(handler, context, raw, record, run)
                record.settle()
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or not task.cancelling():  # something inside the call was cancelled, not the call itself
                await record.fail(error, context)
            record.log(Code.DEADLINE_EXCEEDED if context.time_remaining() == 0 else Code.CANCELLED)
            raise
        except AnswerNotReadError as error:
            await error.wait_for_status()
            await record.fail(error, context)
        except Exception as error:  # noqa: BLE001 - the edge of the service: every error becomes a status here
            await record.fail(error, context)
        else:
            record.log_success()
            return answer

    async def _run(
        self,
        handler: Any,
        context: Context,
        raw: bytes,
        record: CallRecord,
        run: Callable[[Any, Any, Context], Awaitable[Any]],
    ) -> Any:
        """Run one call that was admitted."""
        _refuse_late(context)
        request = self._reader.read(record.method, handler.request_deserializer, raw)
        record.began(request)
        return await run(handler, request, context)

    async def _write_all(self, handler: Any, request: Any, context: Context) -> None:
        """Send what the operation yields; if the client disconnects, the generator is closed at once, not by the GC."""
        await self._unread.begin(context)
        async with aclosing(handler.unary_stream(request, context)) as responses:
            async for response in responses:
                await self._unread.write(context, handler.response_serializer(response))


def _proofs(context: Context) -> list[str]:
    """The values with which a call proves who makes it."""
    return [value for key, value in context.invocation_metadata() or () if key == HEADER]


def _certificate(context: Context) -> bytes:
    """The certificate with which the client has made the connection, as gRPC has verified it; empty without one."""
    found: bytes = next(iter(context.auth_context().get("x509_pem_cert", ())), b"")
    return found


def _refuse_late(context: Context) -> None:
    if context.time_remaining() == 0:
        raise LateCallError


async def _answer_one(handler: Any, request: Any, context: Context) -> bytes:
    """The encoded response of a unary call."""
    encoded: bytes = handler.response_serializer(await handler.unary_unary(request, context))
    return encoded
