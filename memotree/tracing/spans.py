"""Spans of calls and of what they do in the stores, made where our own code passes, not by patching libraries.

The interceptor that the OpenTelemetry project has for ``grpc.aio`` fails on handlers of streams that are coroutines, as
ours are (its issue 3066), and knows neither tools nor calls inside of the process.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from structlog.contextvars import bind_contextvars, reset_contextvars

from memotree.request.observed_calls import ObservedCall

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_SERVER_FAULTS: Final = frozenset(
    {"INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNKNOWN", "UNIMPLEMENTED", "DEADLINE_EXCEEDED"}
)
"""The codes for which the server is to blame, as OpenTelemetry's conventions for gRPC list them."""

_NOTHING: Final = nullcontext()
_HEADERS: Final = ("traceparent", "tracestate")


class CallSpans:
    """Observes calls: each is a span, below that of its caller if the caller sent one (W3C ``traceparent``).

    The ids of trace and span stand in each line of the log of the call.

    Args:
        tracer: Makes the spans.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def began(self, call: ObservedCall) -> None:
        """Begin a span, which is that of the running task from now on."""
        inside = trace.get_current_span().get_span_context().is_valid  # a tool inside of an RPC, an RPC of a tool
        outer = None
        if not inside and call.metadata is not None:
            outer = _PROPAGATOR.extract(_headers(call.metadata()))
        kind = SpanKind.INTERNAL if inside else SpanKind.SERVER
        span = self._tracer.start_span(call.tool or call.method, outer, kind)
        token = contexts.attach(trace.set_span_in_context(span))
        if span.is_recording():
            span.set_attributes(_attributes(call))
        told = span.get_span_context()
        bound = bind_contextvars(trace=f"{told.trace_id:032x}", span=f"{told.span_id:016x}")
        call.span = span, token, bound

    def settle(self, call: ObservedCall) -> None:
        """Do nothing: the outcome is in the span when it ends."""

    def ended(self, call: ObservedCall) -> None:
        """End the span with the outcome of the call."""
        if call.span is None:
            return
        span, token, bound = call.span
        call.span = None
        _end(span, call)
        contexts.detach(token)
        if call.tool:  # the line of an RPC is written after this, in a context that ends with the call
            reset_contextvars(**bound)


def _end(span: Span, call: ObservedCall) -> None:
    if span.is_recording():
        span.set_attribute("rpc.response.status_code", call.code)
        if call.reason:
            span.set_attribute("error.type", call.reason)
        if call.code in _SERVER_FAULTS:
            span.set_status(Status(StatusCode.ERROR))
    span.end()


def _attributes(call: ObservedCall) -> dict[str, str]:
    """What a span says; no workspace and no text of a caller is among it."""
    told = {"rpc.method": call.method, "memotree.interface": call.interface, "memotree.call": call.call_id}
    return told | ({"gen_ai.tool.name": call.tool} if call.tool else {})


def _headers(metadata: Any) -> Mapping[str, str]:
    """The headers of W3C Trace Context in the metadata of a call."""
    return {key: value for key, value in metadata or () if key in _HEADERS and isinstance(value, str)}


class StoreSpans:
    """Makes a span of a use of a store, if a call that is traced makes it; what runs in the background has none.

    Args:
        tracer: Makes the spans.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def __call__(self, name: str) -> AbstractContextManager[object]:
        """Context manager around a use of a store, such as ``postgresql``."""
        if not trace.get_current_span().is_recording():
            return _NOTHING
        return self._span(name)

    @contextmanager
    def _span(self, name: str) -> Iterator[None]:
        # It is not made the current one: a connection is often held by an async generator, which may end elsewhere.
        span = self._tracer.start_span(name, kind=SpanKind.CLIENT, attributes={"db.system.name": name})
        try:
            yield
        except Exception as error:
            span.set_attribute("error.type", getattr(error, "reason", type(error).__name__))
            span.set_status(Status(StatusCode.ERROR))
            raise
        finally:
            span.end()
