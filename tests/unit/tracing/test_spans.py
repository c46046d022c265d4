"""A call that is traced leads from its caller to what it did in the stores, and says nothing that a caller wrote."""

import asyncio
from collections.abc import Iterator

import pytest
import structlog
from google.protobuf.empty_pb2 import Empty
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from memotree.request.observed_calls import CallObservers, ObservedCall, calling_through, came_through
from memotree.tracing.provider import Tracing

pytestmark = pytest.mark.requirement("TOOL-12")

GET = "memotree.v1.NodeService/GetNode"
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


@pytest.fixture
def memory() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracing(memory: InMemorySpanExporter) -> Iterator[Tracing]:
    made = Tracing(1.0, SimpleSpanProcessor(memory))
    yield made
    made.close()


async def call(tracing: Tracing, code: str = "OK", reason: str = "", *, method: str = GET, tool: str = "") -> None:
    """A call with one use of PostgreSQL in it."""
    observers = CallObservers([tracing.calls])
    made = ObservedCall(method, tool)
    observers.began(made, Empty())
    with tracing.stores("postgresql"):
        await asyncio.sleep(0)
    observers.ended(made, code, reason)


def parents(spans: tuple[ReadableSpan, ...]) -> dict[str, str]:
    names = {span.context.span_id: span.name for span in spans if span.context}
    return {span.name: names.get(span.parent.span_id, "the caller") if span.parent else "" for span in spans}


async def test_the_trace_of_the_caller_goes_on_through_the_call_to_the_stores_and_the_log(
    tracing: Tracing, memory: InMemorySpanExporter
) -> None:
    with tracing.stores("postgresql"):
        pass
    assert not memory.get_finished_spans(), "work in the background makes no spans"
    came_through("grpc", lambda: [("traceparent", PARENT), ("user-agent", "x"), ("blob-bin", b"\0")])
    await call(tracing)
    spans = memory.get_finished_spans()
    assert parents(spans) == {"postgresql": GET, GET: "the caller"}
    assert {f"{span.context.trace_id:032x}" for span in spans if span.context} == {TRACE}
    assert trace.get_current_span() is trace.INVALID_SPAN, "a call that is over leaves no span behind"
    assert structlog.contextvars.get_contextvars()["trace"] == TRACE


async def test_a_share_of_none_keeps_no_trace(memory: InMemorySpanExporter) -> None:
    tracing = Tracing(0.0, SimpleSpanProcessor(memory))
    await call(tracing)
    tracing.close()
    assert not memory.get_finished_spans()


@pytest.mark.parametrize("parent", ["", "00-00-00-00", "x" * 10_000, PARENT.replace("0af", "zzz")])
async def test_a_header_that_is_none_begins_a_new_trace(
    tracing: Tracing, memory: InMemorySpanExporter, parent: str
) -> None:
    came_through("grpc", lambda: [("traceparent", parent)])
    await call(tracing)
    assert parents(memory.get_finished_spans()) == {"postgresql": GET, GET: ""}


async def test_the_rpcs_of_a_tool_are_below_it(tracing: Tracing, memory: InMemorySpanExporter) -> None:
    observers = CallObservers([tracing.calls])
    outer = ObservedCall(GET, "get_node", "mcp")
    observers.began(outer, Empty())
    with calling_through("tool"):
        await asyncio.create_task(call(tracing))
    observers.settle(outer)
    observers.ended(outer)
    assert parents(memory.get_finished_spans()) == {"postgresql": GET, GET: "get_node", "get_node": ""}


async def test_the_outcome_is_told_and_only_faults_of_the_server_are_errors(
    tracing: Tracing, memory: InMemorySpanExporter
) -> None:
    await asyncio.create_task(call(tracing, "NOT_FOUND", "NODE_NOT_FOUND"))
    await asyncio.create_task(call(tracing, "INTERNAL", "INTERNAL"))
    found = [span for span in memory.get_finished_spans() if span.name == GET]
    assert [(span.attributes or {})["error.type"] for span in found] == ["NODE_NOT_FOUND", "INTERNAL"]
    assert [span.status.status_code.name for span in found] == ["UNSET", "ERROR"]
