"""Calls operations for a gateway: in this process, or over gRPC in another one. Both raise the same errors."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import grpc
import structlog
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from structlog.contextvars import bind_contextvars, get_contextvars

from memotree.client.errors import MemoTreeClientError, decode_error
from memotree.client.transport import Transport
from memotree.error_mapping import HIDDEN, Code, classify
from memotree.request.observed_calls import CallObservers, ObservedCall, observers_of
from memotree.request.principal import Principal, act_as
from memotree.server.binding import OperationMissingError, operation_name
from memotree.server.calls import RunningCalls
from memotree.server.grpc_status import to_status

DETAILS_KEY: Final = "grpc-status-details-bin"

log = structlog.get_logger("memotree.tool")

T = TypeVar("T")


class Caller(Protocol):
    """Calls RPCs of the contract. Every failure is a ``MemoTreeClientError``; cancelling the task cancels the call."""

    async def call(self, method: MethodDescriptor, request: Message) -> Message:
        """The response of a unary RPC."""
        ...

    def stream(self, method: MethodDescriptor, request: Message) -> AsyncIterator[Message]:
        """The messages of a streaming RPC, as they arrive; closing the iterator early cancels the call."""
        ...


class RemoteCaller:
    """Calls a server over gRPC."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def call(self, method: MethodDescriptor, request: Message) -> Message:
        """The response of a unary RPC; the call is retried where that is safe."""
        return await self._transport.call(request, message_factory.GetMessageClass(method.output_type))

    async def stream(self, method: MethodDescriptor, request: Message) -> AsyncIterator[Message]:
        """The messages of a streaming RPC."""
        answer = message_factory.GetMessageClass(method.output_type)
        async for message in self._transport.stream(request, answer):
            yield message


@dataclass(frozen=True, slots=True)
class _Failed:
    """A failed call with the interface of a gRPC error, so that one function decodes both."""

    status: Any

    def code(self) -> grpc.StatusCode:
        number: int = self.status.code
        return next(code for code in Code if code.value[0] == number)

    def details(self) -> str:
        return str(self.status.message)

    def trailing_metadata(self) -> tuple[tuple[str, bytes], ...]:
        return ((DETAILS_KEY, self.status.SerializeToString()),)


def told(error: BaseException, call_id: str = "") -> MemoTreeClientError:
    """Convert an error of the server into the error that a client would raise."""
    return error if isinstance(error, MemoTreeClientError) else decode_error(_Failed(to_status(error, call_id)), "")


class LocalCaller:
    """Calls the operations of this process.

    Each call runs in its own task. If the gateway's handler is cancelled (even repeatedly, as anyio does while a
    cancelled handler waits), that task is cancelled only once, so that the operation's clean-up is not interrupted.

    Args:
        operations: The object with the operations of each service, by the service's short name.
        calls: Counts the calls, and refuses new ones while the server stops.
        observers: Those who are told of each call; those of the operations if it is ``None``.
        who: Who makes all calls; ``None`` if each has a principal of its own.
    """

    def __init__(
        self,
        operations: Mapping[str, object],
        calls: RunningCalls | None = None,
        observers: CallObservers | None = None,
        who: Principal | None = None,
    ) -> None:
        self._operations = operations
        self._who = who
        self.observers = observers_of(operations) if observers is None else observers
        self._calls = calls or RunningCalls()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def call(self, method: MethodDescriptor, request: Message) -> Message:
        """The response of a unary RPC."""

        async def answer() -> Message:
            found: Message = await self._operation(method)(request)
            return found

        return await self._wait(self._begin(self._guarded(method, request, answer)))

    async def stream(self, method: MethodDescriptor, request: Message) -> AsyncIterator[Message]:
        """The messages of a streaming RPC."""
        queue: asyncio.Queue[Message | None] = asyncio.Queue()

        async def pump() -> None:
            try:
                async with aclosing(self._operation(method)(request)) as messages:
                    async for message in messages:
                        queue.put_nowait(message)
            finally:
                queue.put_nowait(None)

        task = self._begin(self._guarded(method, request, pump))
        task.add_done_callback(lambda _: queue.put_nowait(None))  # in case it was refused before it began
        try:
            while (message := await queue.get()) is not None:
                yield message
            await self._wait(task)
        finally:
            task.cancel()

    def _operation(self, method: MethodDescriptor) -> Callable[[Message], Any]:
        subject = self._operations.get(method.containing_service.name)
        operation: Callable[[Message], Any] | None = getattr(subject, operation_name(method), None)
        if operation is None:
            raise OperationMissingError(method.full_name)
        return operation

    def _begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # it was logged already; this marks it as retrieved, since the waiter may be gone

    @staticmethod
    async def _wait(task: asyncio.Task[T]) -> T:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.cancel()
            raise

    async def _guarded(
        self, method: MethodDescriptor, request: Message, work: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        """Run one call, count and log it; a failure is raised as the error that a client may see."""
        if self._who is not None:
            act_as(self._who)
        call = ObservedCall(f"{method.containing_service.full_name}/{method.name}")
        outer = get_contextvars().get("call")  # of a call of ToolService; each task has its own context
        bind_contextvars(call=call.call_id, **({"within": outer} if outer else {}))
        with self._calls.running():
            try:
                with self._calls.admitted():
                    self.observers.began(call, request)
                    result = await work()
                    self.observers.settle(call)
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    self.observers.ended(call, Code.CANCELLED.name)
                    _log(call)
                    raise
                raise self._failed(call, error) from error
            except Exception as error:
                raise self._failed(call, error) from error
        self.observers.ended(call)
        _log(call)
        return result

    def _failed(self, call: ObservedCall, error: BaseException) -> MemoTreeClientError:
        answer = classify(error)
        self.observers.ended(call, answer.code.name, answer.reason)
        facts = {"reason": answer.reason} | ({"exc_info": error} if answer is HIDDEN else {})
        _log(call, **facts)
        return told(error, call.call_id)


def _log(call: ObservedCall, **facts: Any) -> None:
    """Log one line for the call, as for a call over gRPC."""
    write = log.error if "exc_info" in facts else log.info
    write("call", method=call.method, code=call.code, ms=round(1000 * call.seconds, 2), **facts)
