"""The outermost interceptor: it counts, times and logs every call of the contract and translates its errors."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final

import grpc
import structlog
from google.protobuf.message import DecodeError
from grpc import aio
from memotree_storage.errors import InvalidInputError
from structlog.contextvars import bind_contextvars

from memotree.error_mapping import HIDDEN, Code, ErrorAnswer, classify
from memotree.server.calls import RunningCalls
from memotree.server.grpc_status import to_status

CONTRACT: Final = "/memotree."
"""The prefix of the path of our RPCs; calls of health and reflection are not intercepted."""

DETAILS_KEY: Final = "grpc-status-details-bin"
"""The trailing metadata that carries a ``google.rpc.Status``."""

Context = Any
"""``grpc.aio.ServicerContext``, for which grpcio ships no types."""

log = structlog.get_logger("memotree.call")


class MalformedRequestError(InvalidInputError):
    """The request cannot be decoded as a message of its type."""

    reason = "MALFORMED_REQUEST"

    def __init__(self, method: str) -> None:
        super().__init__(
            f"The request is not a message that {method} accepts: a field has the wrong type or a text is not UTF-8. "
            "Build it from the contract in proto/."
        )


class LateCallError(TimeoutError):
    """The deadline of a call passed before it began."""


class CallInterceptor(aio.ServerInterceptor):
    """Wraps every operation.

    It decodes the request and encodes the response itself, so that errors there are answered like any other. A call
    that arrives while the server stops, or after its deadline, never reaches its operation.
    """

    def __init__(self, calls: RunningCalls) -> None:
        self._calls = calls

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """The handler of a call; wrapped if the call belongs to the contract."""
        handler = await continuation(details)
        if handler is None or not details.method.startswith(CONTRACT):
            return handler
        method: str = details.method.removeprefix("/")
        if handler.response_streaming:

            async def stream(raw: bytes, context: Context) -> None:
                await self._guard(method, handler, raw, context, _write_all)

            return grpc.unary_stream_rpc_method_handler(stream)

        async def single(raw: bytes, context: Context) -> bytes:
            answer: bytes = await self._guard(method, handler, raw, context, _answer_one)
            return answer

        return grpc.unary_unary_rpc_method_handler(single)

    async def _guard(
        self,
        method: str,
        handler: Any,
        raw: bytes,
        context: Context,
        run: Callable[[Any, Any, Context], Awaitable[Any]],
    ) -> Any:
        """Run one call and report its outcome to the client and the log."""
        record = _CallRecord(method)
        bind_contextvars(call=record.call_id)  # gRPC gives each call a context of its own
        with self._calls.running():
            try:
                self._calls.admit()
                _refuse_late(context)
                request = _decode(method, handler, raw)
                record.request_id = getattr(request, "request_id", "")
                result = await run(handler, request, context)
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if (
                    task is None or not task.cancelling()
                ):  # something inside the call was cancelled, not the call itself
                    await record.fail(error, context)
                record.log(Code.DEADLINE_EXCEEDED if context.time_remaining() == 0 else Code.CANCELLED)
                raise
            except Exception as error:  # noqa: BLE001 - the edge of the service: every error becomes a status here
                await record.fail(error, context)
            else:
                record.log(Code.OK)
                return result


def _refuse_late(context: Context) -> None:
    if context.time_remaining() == 0:
        raise LateCallError


def _decode(method: str, handler: Any, raw: bytes) -> Any:
    try:
        return handler.request_deserializer(raw)
    except DecodeError:
        raise MalformedRequestError(method) from None


async def _answer_one(handler: Any, request: Any, context: Context) -> bytes:
    """The encoded response of a unary call."""
    encoded: bytes = handler.response_serializer(await handler.unary_unary(request, context))
    return encoded


async def _write_all(handler: Any, request: Any, context: Context) -> None:
    """Send what the operation yields; if the client disconnects, the generator is closed at once, not by the GC."""
    async with aclosing(handler.unary_stream(request, context)) as responses:
        async for response in responses:
            await context.write(handler.response_serializer(response))


class _CallRecord:
    """The log record of one call."""

    __slots__ = ("begin", "call_id", "method", "request_id")

    def __init__(self, method: str) -> None:
        self.method = method
        self.call_id = secrets.token_hex(8)
        self.request_id = ""
        self.begin = time.perf_counter()

    async def fail(self, error: BaseException, context: Context) -> None:
        """Log the error and abort the call with its status."""
        answer = classify(error)
        self.log(answer.code, answer, error)
        status = to_status(error, self.call_id)
        await context.abort(answer.code, status.message, ((DETAILS_KEY, status.SerializeToString()),))

    def log(self, code: Code, answer: ErrorAnswer | None = None, error: BaseException | None = None) -> None:
        """Log one line for the call: an internal error with its traceback, an unavailable store as a warning."""
        facts: dict[str, object] = {
            "method": self.method,
            "code": code.name,
            "ms": round(1000 * (time.perf_counter() - self.begin), 2),
        }
        if self.request_id:
            facts["request"] = self.request_id
        if answer is not None:
            facts["reason"] = answer.reason
        if answer is HIDDEN:
            log.error("call", **facts, exc_info=error)
        elif code in {Code.UNAVAILABLE, Code.DATA_LOSS, Code.RESOURCE_EXHAUSTED}:
            log.warning("call", **facts, cause=f"{type(error).__name__}: {error}")
        else:
            log.info("call", **facts)
