"""Calls are counted once, under labels of a bounded set."""

import pytest
from google.protobuf.empty_pb2 import Empty
from prometheus_client import CollectorRegistry

from memotree.metrics.call_metrics import OTHER, UNKNOWN, CallMetrics
from memotree.request.observed_calls import CallObservers, ObservedCall, calling_through
from memotree.server.calls import TooManyCallsError
from memotree.tools.rate_limit import ToolRateError

GET = "memotree.v1.NodeService/GetNode"

pytestmark = pytest.mark.requirement("TOOL-12")


class Counted(CallObservers):
    """The calls of a server that has one method, and their metrics."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        super().__init__([CallMetrics(self._registry, [GET])])

    def value(self, name: str, **labels: str) -> float | None:
        return self._registry.get_sample_value(f"memotree_{name}", labels)

    def labels(self, name: str) -> list[dict[str, str]]:
        """The labels of the samples of a metric that are not 0."""
        samples = (sample for metric in self._registry.collect() for sample in metric.samples)
        return [sample.labels for sample in samples if sample.name == f"memotree_{name}" and sample.value]


@pytest.fixture
def counted() -> Counted:
    return Counted()


def test_a_call_that_succeeds_counts_once_and_runs_no_more(counted: Counted) -> None:
    call = ObservedCall(GET, interface="grpc")
    counted.began(call, Empty())
    assert counted.value("running_calls", kind="rpc") == 1
    counted.settle(call)
    counted.ended(call)
    assert counted.value("calls_total", method=GET, interface="grpc", code="OK") == 1
    assert counted.value("call_seconds_count", method=GET, interface="grpc") == 1
    counted.ended(ObservedCall(GET, interface="grpc"), "INVALID_ARGUMENT", "INVALID_REQUEST")
    assert counted.value("running_calls", kind="rpc") == 0, "a call that is refused before it began does not run"


def test_the_rpcs_of_a_tool_are_no_calls_of_a_client(counted: Counted) -> None:
    with calling_through("tool"):
        inner = ObservedCall(GET)
    counted.began(inner, Empty())
    assert counted.value("running_calls", kind="rpc") == 0
    counted.ended(inner, "NOT_FOUND", "NODE_NOT_FOUND")
    assert counted.labels("calls_total") == [{"method": GET, "interface": "tool", "code": "NOT_FOUND"}]


@pytest.mark.parametrize("code", ["INTERNAL", "DATA_LOSS"])
def test_a_fault_of_a_method_that_was_called_before_increases_a_number_that_was_told(
    counted: Counted, code: str
) -> None:
    labels = {"method": GET, "interface": "grpc", "code": code}
    counted.ended(ObservedCall(GET, interface="grpc"))
    assert counted.value("calls_total", **labels) == 0
    counted.ended(ObservedCall(GET, interface="grpc"), code, "ANY")
    assert counted.value("calls_total", **labels) == 1


def test_calls_of_clients_that_found_no_place_are_counted_apart_from_those_that_came_too_often(
    counted: Counted,
) -> None:
    assert counted.value("calls_turned_away_total") == 0
    for interface, reason in (
        ("grpc", TooManyCallsError.reason),
        ("tool", TooManyCallsError.reason),  # the call of the tool fails, too
        ("grpc", ToolRateError.reason),
    ):
        counted.ended(ObservedCall(GET, interface=interface), "RESOURCE_EXHAUSTED", reason)
    assert counted.value("calls_turned_away_total") == 1


def test_unknown_methods_and_error_codes_without_end_share_one_label(counted: Counted) -> None:
    for number in range(200):
        counted.ended(ObservedCall(f"memotree.v1.Made/Up{number}\n", interface="grpc"), "UNIMPLEMENTED")
        counted.ended(ObservedCall("", "custom_tool", "mcp"), "INTERNAL", f"CODE_{number}")
    assert counted.labels("calls_total") == [{"method": UNKNOWN, "interface": "grpc", "code": "UNIMPLEMENTED"}]
    codes = {labels["code"] for labels in counted.labels("tool_calls_total")}
    assert OTHER in codes
    assert len(codes) <= 51
