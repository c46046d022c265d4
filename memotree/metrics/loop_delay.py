"""Measures how late the event loop comes to what is due: whatever holds it, all calls wait for."""

import asyncio
from typing import Final

from prometheus_client import CollectorRegistry, Histogram

SECONDS: Final = 0.25
"""The time from one look to the next."""

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class LoopDelay:
    """Looks at the event loop again and again, until it is stopped.

    Args:
        registry: Gets the metric.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._delay = Histogram(
            "memotree_event_loop_delay_seconds",
            f"How much later than due the event loop ran, seen every {SECONDS:g} seconds.",
            buckets=BUCKETS,
            registry=registry,
        )
        self._next: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin in the running event loop."""
        loop = asyncio.get_running_loop()
        self._next = loop.call_later(SECONDS, self._look, loop, loop.time() + SECONDS)

    def stop(self) -> None:
        """End."""
        if self._next is not None:
            self._next.cancel()

    def _look(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._delay.observe(max(loop.time() - due, 0.0))
        self.start()
