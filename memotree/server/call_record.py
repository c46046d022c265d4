"""The record of one call: its line in the log, what its observers are told, and its refusal with details."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import grpc
import structlog
from google.protobuf.message import Message

from memotree.error_mapping import HIDDEN, Code, ErrorAnswer, classify
from memotree.request.observed_calls import GRPC, NOBODY, CallObservers, ObservedCall
from memotree.server.grpc_status import to_status

DETAILS_KEY: Final = "grpc-status-details-bin"
"""The trailing metadata that carries a ``google.rpc.Status``."""

Context = Any
"""``grpc.aio.ServicerContext``, for which grpcio ships no types."""

_NAME_CHARACTERS: Final = 200
"""The most characters of what a client names: its method and request id, which may have any length."""

log = structlog.get_logger("memotree.call")


class CallRecord:
    """The record of one call.

    Args:
        method: The path of the RPC without the first slash; an unknown one may have any length.
        observers: Those who are told of the call.
        who: The name of who calls; "" if that is not known.
    """

    __slots__ = ("_observers", "call", "call_id", "method", "request_id")

    def __init__(self, method: str, observers: CallObservers = NOBODY, who: str = "") -> None:
        self.method = method[:_NAME_CHARACTERS]
        self.call = ObservedCall(self.method, interface=GRPC, who=who)
        self.call_id = self.call.call_id
        self.request_id = ""
        self._observers = observers

    def began(self, request: Message) -> None:
        """Note the request.

        Errors: that of an observer that refuses the call.
        """
        self.request_id = str(getattr(request, "request_id", ""))[:_NAME_CHARACTERS]
        self._observers.began(self.call, request)

    def settle(self) -> None:
        """Note that the call has succeeded, before its answer is sent.

        Errors: that of an observer that does not let it succeed.
        """
        self._observers.settle(self.call)

    async def fail(self, error: BaseException, context: Context) -> None:
        """Log the error and abort the call with its status, which raises ``grpc.aio.AbortError``."""
        answer = classify(error)
        self.log(answer.code, answer, error)
        status = to_status(error, self.call_id)
        await context.abort(answer.code, status.message, ((DETAILS_KEY, status.SerializeToString()),))

    def log_success(self) -> None:
        """Log that the call has succeeded, when its answer is on its way: the client need not wait for the line."""
        self._observers.ended(self.call)
        asyncio.get_running_loop().call_soon(self._write, self._facts(Code.OK))

    def log(self, code: Code, answer: ErrorAnswer | None = None, error: BaseException | None = None) -> None:
        """Log one line for the call: an internal error with its traceback, an unavailable store as a warning."""
        self._observers.ended(self.call, code.name, "" if answer is None else answer.reason)
        facts = self._facts(code)
        if answer is not None:
            facts["reason"] = answer.reason
        if answer is HIDDEN:
            log.error("call", **facts, exc_info=error)
        elif code in {Code.UNAVAILABLE, Code.DATA_LOSS, Code.RESOURCE_EXHAUSTED}:
            log.warning("call", **facts, cause=f"{type(error).__name__}: {error}")
        else:
            self._write(facts)

    def _facts(self, code: Code) -> dict[str, object]:
        facts: dict[str, object] = {
            "method": self.method,
            "code": code.name,
            "ms": round(1000 * self.call.seconds, 2),
        }
        if self.request_id:
            facts["request"] = self.request_id
        return facts

    @staticmethod
    def _write(facts: Mapping[str, object]) -> None:
        log.info("call", **facts)


async def refuse(
    method: str, error: BaseException, context: Context, observers: CallObservers = NOBODY, who: str = ""
) -> None:
    """Refuse a call that no operation answers; raises ``grpc.aio.AbortError``.

    It also ends calls of the standard services (health, reflection) and of methods that nobody has.
    """
    await CallRecord(method, observers, who).fail(error, context)


def refusing(method: str, error: BaseException, observers: CallObservers = NOBODY) -> Any:
    """A ``grpc.RpcMethodHandler`` that refuses every call, whether its requests and answers are streams or not."""

    async def answer(_requests: object, context: Context) -> None:
        await refuse(method, error, context, observers)

    return grpc.stream_stream_rpc_method_handler(answer)
