"""Sends spans to a collector over OTLP. The provider belongs to one server; OpenTelemetry's global one stays unset."""

import threading
from importlib.metadata import version
from typing import Final

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

from memotree.tracing.spans import CallSpans, StoreSpans

_SECONDS: Final = 5.0
"""How long one attempt to send spans may take."""

_CLOSING_SECONDS: Final = 3.0


class Tracing:
    """The spans of one server.

    Args:
        share: Which part of the traces that begin here is kept, from 0 to 1; of others, their callers decide.
        processor: Takes the spans.
        exporter: What the processor gives them to, if that may take long to give up.
    """

    def __init__(self, share: float, processor: SpanProcessor, exporter: SpanExporter | None = None) -> None:
        resource = Resource.create({SERVICE_NAME: "memotree", SERVICE_VERSION: version("memotree")})
        self._provider = TracerProvider(ParentBasedTraceIdRatio(share), resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._exporter = exporter
        tracer = self._provider.get_tracer("memotree", version("memotree"))
        self.calls = CallSpans(tracer)
        self.stores = StoreSpans(tracer)

    @classmethod
    def to(cls, url: str, share: float) -> "Tracing":
        """Spans that are sent in the background; while the collector is silent, those that do not fit are dropped."""
        exporter = OTLPSpanExporter(endpoint=url, insecure=not url.startswith("https://"), timeout=_SECONDS)
        return cls(share, BatchSpanProcessor(exporter), exporter)

    def close(self) -> None:
        """Send what is left; blocks for at most three seconds, and drops what a silent collector did not take."""
        flushing = threading.Thread(target=self._provider.force_flush, daemon=True)
        flushing.start()
        flushing.join(_CLOSING_SECONDS)
        if self._exporter is not None:
            self._exporter.shutdown()  # ends the attempts that run
        self._provider.shutdown()
