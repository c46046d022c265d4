"""Counts calls and times them, for Prometheus.

Every label has a bounded set of values: methods and tools of the catalogue, interfaces, status and error codes. No name
of a workspace and no text of a caller becomes one; what is not known is counted as ``unknown``.
"""

from collections.abc import Collection
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from memotree.request.observed_calls import TOOL, ObservedCall

BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds in seconds: a read takes about one millisecond, a commit ten, and PostgreSQL may take thirty seconds."""

UNKNOWN: Final = "unknown"
"""The label of a method or a tool that there is not."""

OTHER: Final = "OTHER"
"""The label of an error code beyond the first `_MOST_CODES` of a tool."""

_MOST_CODES: Final = 50

_FAULTS: Final = ("INTERNAL", "DATA_LOSS")
"""Codes that are told with 0 as soon as a method was called: Prometheus sees no increase in a series that begins."""

TURNED_AWAY: Final = "TOO_MANY_CALLS"
"""The error code of a call that was not begun, since the server runs as many as it may."""


class CallMetrics:
    """Observes calls; each set of labels is looked up once, so that a call costs a few microseconds.

    Args:
        registry: Gets the metrics.
        methods: The RPCs that there are, such as ``memotree.v1.NodeService/GetNode``.
    """

    def __init__(self, registry: CollectorRegistry, methods: Collection[str]) -> None:
        self._methods = frozenset(methods)
        self._calls = Counter(
            "memotree_calls",
            "RPCs by method, interface (tool: one that a tool made) and gRPC status code.",
            ("method", "interface", "code"),
            registry=registry,
        )
        self._seconds = Histogram(
            "memotree_call_seconds",
            "Seconds from the arrival of the request of an RPC until its answer was known.",
            ("method", "interface"),
            buckets=BUCKETS,
            registry=registry,
        )
        self._tool_calls = Counter(
            "memotree_tool_calls",
            "Calls of tools by tool, interface and error code (OK: it succeeded).",
            ("tool", "interface", "code"),
            registry=registry,
        )
        self._tool_seconds = Histogram(
            "memotree_tool_call_seconds",
            "Seconds that a call of a tool took.",
            ("tool", "interface"),
            buckets=BUCKETS,
            registry=registry,
        )
        self._turned_away = Counter(
            "memotree_calls_turned_away",
            "RPCs of clients that were not begun, since the server ran as many as it may (TOO_MANY_CALLS).",
            registry=registry,
        )
        self._running = 0
        self._running_tools = 0
        running = Gauge(
            "memotree_running_calls", "Calls of clients that run now: rpc or tool.", ("kind",), registry=registry
        )
        running.labels("rpc").set_function(lambda: self._running)
        running.labels("tool").set_function(lambda: self._running_tools)
        self._bound: dict[tuple[str, str, str, str], tuple[Any, Any]] = {}
        self._codes: dict[str, set[str]] = {}

    def began(self, call: ObservedCall) -> None:
        """Count a call that runs."""
        if call.tool:
            self._running_tools += 1
        elif call.interface != TOOL:
            self._running += 1
        call.counted = True

    def settle(self, call: ObservedCall) -> None:
        """Do nothing: nothing is counted twice."""

    def ended(self, call: ObservedCall) -> None:
        """Count a call that has ended, and its seconds."""
        if call.counted:
            if call.tool:
                self._running_tools -= 1
            elif call.interface != TOOL:
                self._running -= 1
        key = (call.method, call.tool, call.interface, (call.tool and call.reason) or call.code)
        bound = self._bound.get(key)
        if bound is None:
            bound = self._bind(*key)
        count, seconds = bound
        count.inc()
        seconds.observe(call.seconds)
        if call.reason == TURNED_AWAY and not call.tool and call.interface != TOOL:
            self._turned_away.inc()

    def _bind(self, method: str, tool: str, interface: str, code: str) -> tuple[Any, Any]:
        """The counter and the histogram of a set of labels; they are remembered if there can be only so many."""
        if tool:
            codes = self._codes.setdefault(tool, set())
            if code not in codes and len(codes) >= _MOST_CODES:
                code = OTHER
            codes.add(code)
            found = self._tool_calls.labels(tool, interface, code), self._tool_seconds.labels(tool, interface)
        elif method in self._methods:
            for fault in _FAULTS:
                self._calls.labels(method, interface, fault)
            found = self._calls.labels(method, interface, code), self._seconds.labels(method, interface)
        else:
            return self._calls.labels(UNKNOWN, interface, code), self._seconds.labels(UNKNOWN, interface)
        if code != OTHER:
            self._bound[method, tool, interface, code] = found
        return found
