"""The one event of a call, and who is told of it: metrics, the audit log and traces listen to the same calls.

A call is an RPC or the call of a tool. A tool makes RPCs itself; these come through the interface `TOOL`, so that
nobody counts them as calls of a client.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog
from google.protobuf.message import Message

from memotree.request.principal import principal

GRPC: Final = "grpc"
HTTP: Final = "http"
MCP: Final = "mcp"
LOCAL: Final = "local"
TOOL: Final = "tool"

INTERFACES: Final = (GRPC, HTTP, MCP, LOCAL, TOOL)
"""How a call comes: over gRPC, HTTP or MCP, from this program itself, or from a tool that was called."""

GIT_PUSH: Final = "git-receive-pack"
"""The method of a push over HTTP."""

_INTERFACE: ContextVar[str] = ContextVar("interface", default=LOCAL)

Metadata = Callable[[], Iterable[tuple[str, str | bytes]] | None]

_METADATA: ContextVar[Metadata | None] = ContextVar("metadata", default=None)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FunctionArguments:
    """The arguments of a tool that is a function.

    Attributes:
        given: The arguments by name, as they came; they may be wrong.
        parameters: The JSON Schema that they should match.
    """

    given: Mapping[str, Any]
    parameters: Mapping[str, Any]


class ObservedCall:
    """One call, from its begin to its end.

    Attributes:
        method: The RPC, such as ``memotree.v1.NodeService/GetNode``, or that of the tool; it may be unknown.
        tool: The name of the tool; "" for an RPC.
        interface: One of `INTERFACES`.
        principal: The name of who calls; "" if that is not known.
        call_id: The id of the call in the log.
        request: The request, once it was read; of a function, where it acts and for whom.
        function: The arguments of a function, once they were read; no observer keeps a text of them.
        code: The name of its gRPC status, such as ``OK``; "" until it has ended.
        reason: The error code of a failed call.
        begin: When it began, in seconds of ``time.perf_counter``.
        seconds: How long it took, once it has ended.
        metadata: Returns the metadata or headers that the caller sent, if they are known.

    The other attributes belong to the observers.
    """

    __slots__ = (
        "begin",
        "call_id",
        "code",
        "counted",
        "function",
        "interface",
        "metadata",
        "method",
        "principal",
        "reason",
        "request",
        "seconds",
        "settled",
        "span",
        "tool",
    )

    def __init__(self, method: str, tool: str = "", interface: str = "", who: str | None = None) -> None:
        self.method = method
        self.tool = tool
        self.interface = interface or _INTERFACE.get()
        self.principal = principal().name if who is None else who
        self.call_id = secrets.token_hex(8)
        self.request: Message | None = None
        self.function: FunctionArguments | None = None
        self.code = ""
        self.reason = ""
        self.seconds = 0.0
        self.metadata = _METADATA.get()
        self.settled = False
        self.counted = False  # as one that runs, by the metrics
        self.span: Any = None
        self.begin = time.perf_counter()


class CallObserver(Protocol):
    """Is told of every call, in the task and the context of the call; what it does must take microseconds."""

    def began(self, call: ObservedCall) -> None:
        """The request was read. An error that is raised here refuses the call, which then ends with that error."""
        ...

    def settle(self, call: ObservedCall) -> None:
        """The code of the call is known and its answer was not sent. An error makes the call fail with that error."""
        ...

    def ended(self, call: ObservedCall) -> None:
        """The call is over; told once for each call that began. Raises nothing."""
        ...


class CallObservers:
    """Tells several observers of each call, in their order.

    Args:
        observers: The observers; with none of them, a call costs nothing.
    """

    __slots__ = ("_observers",)

    def __init__(self, observers: Sequence[CallObserver] = ()) -> None:
        self._observers = tuple(observers)

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._observers)

    def began(self, call: ObservedCall, request: Message | None = None) -> None:
        """Tell that the request of a call was read.

        Errors: that of an observer that refuses the call.
        """
        call.request = request
        for observer in self._observers:
            observer.began(call)

    def settle(self, call: ObservedCall) -> None:
        """Tell that a call has succeeded, before its answer is sent.

        Errors: that of an observer that does not let it succeed.
        """
        call.code = "OK"
        call.seconds = time.perf_counter() - call.begin
        call.settled = True
        for observer in self._observers:
            observer.settle(call)

    def ended(self, call: ObservedCall, code: str = "OK", reason: str = "") -> None:
        """Tell that a call is over. A failed call is settled here, and an error of that goes to the log."""
        if not call.settled or code != call.code:
            call.code, call.reason = code, reason
            call.seconds = time.perf_counter() - call.begin
            for observer in self._observers:
                try:
                    observer.settle(call)
                except Exception as error:  # noqa: BLE001 - the call has failed anyway
                    _log.warning("a failed call could not be kept", call_failed=call.call_id, why=str(error))
        for observer in self._observers:
            observer.ended(call)


NOBODY: Final = CallObservers()
"""No observer."""


class ObservedOperations(dict[str, object]):
    """The operations of a server by service, with those who are told of their calls."""

    def __init__(self, operations: Any, observers: CallObservers) -> None:
        super().__init__(operations)
        self.observers = observers


def observers_of(operations: object) -> CallObservers:
    """Who is told of the calls of these operations."""
    return operations.observers if isinstance(operations, ObservedOperations) else NOBODY


def came_through(interface: str, metadata: Metadata | None = None) -> None:
    """Note the interface of the calls that this task makes, and what returns the metadata of its caller."""
    _INTERFACE.set(interface)
    _METADATA.set(metadata)


@contextmanager
def calling_through(interface: str, metadata: Metadata | None = None) -> Iterator[None]:
    """Context manager in which calls come through an interface; ``metadata`` returns what the caller sent beside it."""
    token, before = _INTERFACE.set(interface), _METADATA.get()
    if metadata is not None:
        _METADATA.set(metadata)
    try:
        yield
    finally:
        _INTERFACE.reset(token)
        _METADATA.set(before)
