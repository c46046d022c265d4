"""How a face reaches an operation: in this process, or over gRPC in another one. Both fail in the same words."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import grpc
import structlog
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from structlog.contextvars import bind_contextvars

from memotree.client.errors import MemoTreeClientError, decode_error
from memotree.client.transport import Transport
from memotree.errors import HIDDEN, Code, classify
from memotree.server.binding import OperationMissingError, operation_name
from memotree.server.calls import RunningCalls
from memotree.server.details import to_status

DETAILS_KEY: Final = "grpc-status-details-bin"

log = structlog.get_logger("memotree.tool")

T = TypeVar("T")


class Caller(Protocol):
    """Calls RPCs of the contract. Whatever fails is a ``MemoTreeClientError``; a cancelled call is given up."""

    async def call(self, method: MethodDescriptor, request: Message) -> Message:
        """The answer of an RPC that answers once."""
        ...

    def stream(self, method: MethodDescriptor, request: Message) -> AsyncIterator[Message]:
        """The messages of an RPC that streams, as they come; closing it early gives the call up."""
        ...


class RemoteCaller:
    """Calls a server over gRPC."""

    def __init__(self, link: Transport) -> None:
        self._link = link

    async def call(self, method: MethodDescriptor, request: Message) -> Message:
        """The answer of an RPC that answers once; tried again where that is safe."""
        return await self._link.call(request, message_factory.GetMessageClass(method.output_type))

    async def stream(self, method: MethodDescriptor, request: Message) -> AsyncIterator[Message]:
        """The messages of an RPC that streams."""
        answer = message_factory.GetMessageClass(method.output_type)
        async for message in self._link.stream(request, answer):
            yield message


@dataclass(frozen=True, slots=True)
class _Failed:
    """A failed call as gRPC would tell it, so that one function reads both."""

    status: Any

    def code(self) -> grpc.StatusCode:
        number: int = self.status.code
        return next(code for code in Code if code.value[0] == number)

    def details(self) -> str:
        return str(self.status.message)

    def trailing_metadata(self) -> tuple[tuple[str, bytes], ...]:
        return ((DETAILS_KEY, self.status.SerializeToString()),)


def told(error: BaseException, call_id: str = "") -> MemoTreeClientError:
    """An error of ours as a client of the server would see it."""
    return error if isinstance(error, MemoTreeClientError) else decode_error(_Failed(to_status(error, call_id)), "")


class LocalCaller:
    """Calls the operations of this process.

    Each call runs in a task of its own: a face that goes away (or is cancelled again and again, as anyio does while a
    cancelled handler waits) cancels it once, and the operation's own clean-up is left alone.

    Args:
        operations: The object with the operations of each service, by the service's short name.
        calls: Counts the calls, and refuses new ones while the server stops.
    """

    def __init__(self, operations: Mapping[str, object], calls: RunningCalls | None = None) -> None:
        self._operations = operations
        self._calls = calls or RunningCalls()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def call(self, method: MethodDescriptor, request: Message) -> Message:
        """The answer of an RPC that answers once."""

        async def answer() -> Message:
            found: Message = await self._operation(method)(request)
            return found

        return await self._wait(self._begin(self._guarded(method, answer)))

    async def stream(self, method: MethodDescriptor, request: Message) -> AsyncIterator[Message]:
        """The messages of an RPC that streams."""
        queue: asyncio.Queue[Message | None] = asyncio.Queue()

        async def pump() -> None:
            try:
                async with aclosing(self._operation(method)(request)) as messages:
                    async for message in messages:
                        queue.put_nowait(message)
            finally:
                queue.put_nowait(None)

        task = self._begin(self._guarded(method, pump))
        task.add_done_callback(lambda _: queue.put_nowait(None))  # refused before it began
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
            task.exception()  # it was logged; nobody may wait for it any more

    @staticmethod
    async def _wait(task: asyncio.Task[T]) -> T:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.cancel()
            raise

    async def _guarded(self, method: MethodDescriptor, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run one call, counted and logged; what fails is told as a client may see it."""
        call_id, begin = secrets.token_hex(8), time.perf_counter()
        bind_contextvars(call=call_id)  # a task has a context of its own
        with self._calls.running():
            try:
                self._calls.admit()
                result = await work()
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    _log(method, begin, Code.CANCELLED)
                    raise
                raise _failed(method, begin, error, call_id) from error
            except Exception as error:
                raise _failed(method, begin, error, call_id) from error
        _log(method, begin, Code.OK)
        return result


def _failed(method: MethodDescriptor, begin: float, error: BaseException, call_id: str) -> MemoTreeClientError:
    answer = classify(error)
    facts = {"reason": answer.reason} | ({"exc_info": error} if answer is HIDDEN else {})
    _log(method, begin, answer.code, **facts)
    return told(error, call_id)


def _log(method: MethodDescriptor, begin: float, code: Code, **facts: Any) -> None:
    """One line per call, as of a call over gRPC."""
    write = log.error if "exc_info" in facts else log.info
    name = f"{method.containing_service.full_name}/{method.name}"
    write("call", method=name, code=code.name, ms=round(1000 * (time.perf_counter() - begin), 2), **facts)
