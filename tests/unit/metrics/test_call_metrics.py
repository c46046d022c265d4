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


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def observers(registry: CollectorRegistry) -> CallObservers:
    return CallObservers([CallMetrics(registry, [GET])])


def label_sets(registry: CollectorRegistry, name: str) -> list[dict[str, str]]:
    """The labels of the samples of a metric that are not 0."""
    samples = (sample for metric in registry.collect() for sample in metric.samples if sample.name == name)
    return [sample.labels for sample in samples if sample.value]


def test_a_call_that_succeeds_counts_once_and_runs_no_more(
    registry: CollectorRegistry, observers: CallObservers
) -> None:
    call = ObservedCall(GET, interface="grpc")
    observers.began(call, Empty())
    assert registry.get_sample_value("memotree_running_calls", {"kind": "rpc"}) == 1
    observers.settle(call)
    observers.ended(call)
    labels = {"method": GET, "interface": "grpc", "code": "OK"}
    assert registry.get_sample_value("memotree_calls_total", labels) == 1
    assert registry.get_sample_value("memotree_running_calls", {"kind": "rpc"}) == 0
    assert registry.get_sample_value("memotree_call_seconds_count", {"method": GET, "interface": "grpc"}) == 1


def test_a_call_that_was_refused_before_it_began_does_not_count_as_running(
    registry: CollectorRegistry, observers: CallObservers
) -> None:
    observers.ended(ObservedCall(GET, interface="grpc"), "INVALID_ARGUMENT", "INVALID_REQUEST")
    assert registry.get_sample_value("memotree_running_calls", {"kind": "rpc"}) == 0


def test_the_rpcs_of_a_tool_are_no_calls_of_a_client(registry: CollectorRegistry, observers: CallObservers) -> None:
    with calling_through("tool"):
        inner = ObservedCall(GET)
    observers.began(inner, Empty())
    assert registry.get_sample_value("memotree_running_calls", {"kind": "rpc"}) == 0
    observers.ended(inner, "NOT_FOUND", "NODE_NOT_FOUND")
    assert label_sets(registry, "memotree_calls_total") == [{"method": GET, "interface": "tool", "code": "NOT_FOUND"}]


@pytest.mark.parametrize("code", ["INTERNAL", "DATA_LOSS"])
def test_a_fault_of_a_method_that_was_called_before_increases_a_number_that_was_told(
    registry: CollectorRegistry, observers: CallObservers, code: str
) -> None:
    labels = {"method": GET, "interface": "grpc", "code": code}
    observers.ended(ObservedCall(GET, interface="grpc"))
    assert registry.get_sample_value("memotree_calls_total", labels) == 0
    observers.ended(ObservedCall(GET, interface="grpc"), code, "ANY")
    assert registry.get_sample_value("memotree_calls_total", labels) == 1


def test_calls_of_clients_that_found_no_place_are_counted_apart_from_those_that_came_too_often(
    registry: CollectorRegistry, observers: CallObservers
) -> None:
    assert registry.get_sample_value("memotree_calls_turned_away_total") == 0
    for interface, reason in (
        ("grpc", TooManyCallsError.reason),
        ("tool", TooManyCallsError.reason),  # the call of the tool fails, too
        ("grpc", ToolRateError.reason),
    ):
        observers.ended(ObservedCall(GET, interface=interface), "RESOURCE_EXHAUSTED", reason)
    assert registry.get_sample_value("memotree_calls_turned_away_total") == 1


def test_unknown_methods_share_one_label(registry: CollectorRegistry, observers: CallObservers) -> None:
    for number in range(50):
        observers.ended(ObservedCall(f"memotree.v1.Made/Up{number}\n", interface="grpc"), "UNIMPLEMENTED")
    assert label_sets(registry, "memotree_calls_total") == [
        {"method": UNKNOWN, "interface": "grpc", "code": "UNIMPLEMENTED"}
    ]


def test_error_codes_without_end_share_one_label(registry: CollectorRegistry, observers: CallObservers) -> None:
    for number in range(200):
        observers.ended(ObservedCall("", "custom_tool", "mcp"), "INTERNAL", f"CODE_{number}")
    codes = {labels["code"] for labels in label_sets(registry, "memotree_tool_calls_total")}
    assert OTHER in codes
    assert len(codes) <= 51
