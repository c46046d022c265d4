"""The record of one call: its line in the log, and its refusal with ``google.rpc`` details."""

import asyncio
import secrets
import time
from collections.abc import Mapping
from typing import Any, Final

import grpc
import structlog

from memotree.error_mapping import HIDDEN, Code, ErrorAnswer, classify
from memotree.server.grpc_status import to_status

DETAILS_KEY: Final = "grpc-status-details-bin"
"""The trailing metadata that carries a ``google.rpc.Status``."""

Context = Any
"""``grpc.aio.ServicerContext``, for which grpcio ships no types."""

_NAME_CHARACTERS: Final = 200

log = structlog.get_logger("memotree.call")


class CallRecord:
    """The record of one call.

    Args:
        method: The path of the RPC without the first slash; an unknown one may have any length.
    """

    __slots__ = ("begin", "call_id", "method", "request_id")

    def __init__(self, method: str) -> None:
        self.method = method[:_NAME_CHARACTERS]
        self.call_id = secrets.token_hex(8)
        self.request_id = ""
        self.begin = time.perf_counter()

    async def fail(self, error: BaseException, context: Context) -> None:
        """Log the error and abort the call with its status, which raises ``grpc.aio.AbortError``."""
        answer = classify(error)
        self.log(answer.code, answer, error)
        status = to_status(error, self.call_id)
        await context.abort(answer.code, status.message, ((DETAILS_KEY, status.SerializeToString()),))

    def log_success(self) -> None:
        """Log that the call has succeeded, when its answer is on its way: the client need not wait for the line."""
        asyncio.get_running_loop().call_soon(self._write, self._facts(Code.OK))

    def log(self, code: Code, answer: ErrorAnswer | None = None, error: BaseException | None = None) -> None:
        """Log one line for the call: an internal error with its traceback, an unavailable store as a warning."""
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
            "ms": round(1000 * (time.perf_counter() - self.begin), 2),
        }
        if self.request_id:
            facts["request"] = self.request_id
        return facts

    @staticmethod
    def _write(facts: Mapping[str, object]) -> None:
        log.info("call", **facts)


async def refuse(method: str, error: BaseException, context: Context) -> None:
    """Refuse a call that no operation answers; raises ``grpc.aio.AbortError``.

    It also ends calls of the standard services (health, reflection) and of methods that nobody has.
    """
    await CallRecord(method).fail(error, context)


def refusing(method: str, error: BaseException) -> Any:
    """A ``grpc.RpcMethodHandler`` that refuses every call, whether its requests and answers are streams or not."""

    async def answer(_requests: object, context: Context) -> None:
        await refuse(method, error, context)

    return grpc.stream_stream_rpc_method_handler(answer)
