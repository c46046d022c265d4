"""All metrics of one server, in a registry of their own, and the port that tells them."""

import asyncio
import socket
from collections.abc import Collection
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

from memotree.metrics.call_metrics import CallMetrics
from memotree.metrics.listening import MetricsListener
from memotree.metrics.loop_delay import LoopDelay
from memotree.metrics.store_figures import Sources, StoreFigures


class ServerMetrics:
    """The metrics of a server; made in its event loop.

    Args:
        methods: The RPCs that there are.
        sources: Where figures of the stores come from.
        place: The socket on which they are told, which listens already; ``None`` for none.
    """

    def __init__(self, methods: Collection[str], sources: Sources, place: socket.socket | None = None) -> None:
        self.registry = CollectorRegistry()
        self.calls = CallMetrics(self.registry, methods)
        ProcessCollector(registry=self.registry)
        info = Gauge("memotree_build_info", "1, with the version of the server.", ("version",), registry=self.registry)
        info.labels(version("memotree")).set(1)
        self._changes = Counter(
            "memotree_history_changes",
            "How often a workspace got a new commit, branch or tag.",
            registry=self.registry,
        )
        self._delay = LoopDelay(self.registry)
        self.registry.register(StoreFigures(sources, asyncio.get_running_loop()))
        self._listener = None if place is None else MetricsListener(place, self.registry)

    def notice(self, _workspace_id: str) -> None:
        """Count a new commit, branch or tag."""
        self._changes.inc()

    def start(self) -> None:
        """Measure and answer from now on."""
        self._delay.start()
        if self._listener is not None:
            self._listener.start()

    async def stop(self) -> None:
        """Measure and answer no more."""
        self._delay.stop()
        if self._listener is not None:
            await asyncio.to_thread(self._listener.stop)
