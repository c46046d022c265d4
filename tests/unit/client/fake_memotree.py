"""A MemoTree server in memory, complete enough for tests of the client and the command line.

It keeps states as plain dictionaries, records every call, and fails on demand. It does not check what the tests of the
real server check.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import grpc
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status
from unit.client.fake_forest import FakeForest, FakeJobs, FakeMemory
from unit.client.fake_nodes import FakeNodes
from unit.client.fake_places import FakePlaces
from unit.client.fake_state import FakeWorkspace, RefusedError

from memotree.v1 import job_service_pb2

SERVICES = ("Workspace", "Session", "Node", "Memory", "View", "History", "Maintenance", "Job", "Forest")


class FakeMemoTree(FakePlaces, FakeNodes, FakeMemory, FakeJobs, FakeForest):
    """Every service of the contract over one dictionary of workspaces.

    Attributes:
        calls: Each call that arrived, by the name of its method, with its request.
        faults: The refusals of the next calls, by method.
    """

    def __init__(self) -> None:
        self.spaces: dict[str, FakeWorkspace] = {}
        self.jobs: dict[str, job_service_pb2.Job] = {}
        self.ends: list[job_service_pb2.Job] = []
        self.ingestions: deque[job_service_pb2.Job] = deque()
        self.refusals: dict[str, tuple[str, str]] = {}
        self.answers: dict[str, Message] = {}
        self.calls: list[tuple[str, Any]] = []
        self.deadlines: list[float | None] = []
        self.faults: dict[str, deque[RefusedError]] = {}
        self.address = ""

    def fail(self, method: str, *refusals: RefusedError) -> None:
        """Refuse the next calls of ``method``."""
        self.faults.setdefault(method, deque()).extend(refusals)

    def requests(self, method: str) -> list[Any]:
        """The requests that arrived for ``method``."""
        return [request for name, request in self.calls if name == method]


class _RecordingInterceptor(grpc.ServerInterceptor):
    """Records calls, repeats the first answer for a known request id, and turns refusals into rich statuses."""

    def __init__(self, fake: FakeMemoTree) -> None:
        self._fake = fake

    def intercept_service(
        self, continuation: Callable[[Any], Any], details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler:
        handler = continuation(details)
        name = details.method.rsplit("/", 1)[1]
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                lambda request, context: self._stream(name, handler.unary_stream, request, context),
                handler.request_deserializer,
                handler.response_serializer,
            )
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self._answer(name, handler.unary_unary, request, context),
            handler.request_deserializer,
            handler.response_serializer,
        )

    def _answer(self, name: str, method: Callable[..., Any], request: Any, context: grpc.ServicerContext) -> Any:
        self._fake.calls.append((name, request))
        self._fake.deadlines.append(context.time_remaining())
        request_id = getattr(request, "request_id", "")
        try:
            if request_id in self._fake.answers:
                return self._fake.answers[request_id]
            self._fault_before(name)
            answer = method(request, context)
        except RefusedError as refusal:
            abort(context, refusal)
        if request_id:
            self._fake.answers[request_id] = answer
        try:
            self._fault_before(f"{name} answered")
        except RefusedError as refusal:
            abort(context, refusal)
        return answer

    def _stream(self, name: str, method: Callable[..., Any], request: Any, context: grpc.ServicerContext) -> Any:
        self._fake.calls.append((name, request))
        try:
            self._fault_before(name)
            yield from method(request, context)
        except RefusedError as refusal:
            abort(context, refusal)

    def _fault_before(self, name: str) -> None:
        faults = self._fake.faults.get(name)
        if faults:
            raise faults.popleft()


def abort(context: grpc.ServicerContext, refusal: RefusedError) -> None:
    """End the call with the rich status of ``refusal``."""
    reason = error_details_pb2.ErrorInfo(reason=refusal.reason, domain="memotree", metadata={"seen": "yes"})
    status = status_pb2.Status(code=refusal.code.value[0], message=refusal.message)
    for detail in (*([reason] if refusal.reason else []), *refusal.details):
        status.details.add().Pack(detail)
    context.abort_with_status(rpc_status.to_status(status))


@contextmanager
def serving(fake: FakeMemoTree) -> Iterator[FakeMemoTree]:
    """The fake behind a free port of loopback."""
    server = grpc.server(ThreadPoolExecutor(4), interceptors=[_RecordingInterceptor(fake)])
    for name in SERVICES:
        module = import_module(f"memotree.v1.{name.lower()}_service_pb2_grpc")
        getattr(module, f"add_{name}ServiceServicer_to_server")(fake, server)
    fake.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield fake
    finally:
        server.stop(None).wait()
