"""How often a principal calls tools: counted with a clock of the test's own."""

from fractions import Fraction

import pytest
from google.rpc import error_details_pb2  # type: ignore[import-untyped]  # no py.typed
from hypothesis import given
from hypothesis import strategies as st

from memotree.error_mapping import Code, classify
from memotree.request.principal import ALL_BRANCHES, LOCAL, Grant, Principal, Role
from memotree.request.rate import Rate
from memotree.server.grpc_status import to_status
from memotree.tools import rate_limit
from memotree.tools.rate_limit import ToolRateError, ToolRateLimit

pytestmark = pytest.mark.requirement("TOOL-4")


class Clock:
    """A time in seconds, which the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def somebody(name: str) -> Principal:
    return Principal(name, grants=(Grant("*", ALL_BRANCHES, Role.READER),))


def called(limit: ToolRateLimit, who: Principal) -> float:
    """0 if a call was let through, else the seconds after which it may come."""
    try:
        limit.count(who)
    except ToolRateError as error:
        return error.retry_after
    return 0.0


def test_a_burst_passes_and_who_waits_as_long_as_it_was_told_passes() -> None:
    clock = Clock()
    limit = ToolRateLimit(Rate(60, burst=3), clock)
    assert [called(limit, somebody("ada")) for _ in range(4)] == [0, 0, 0, 1.0]
    clock.now += 0.25
    assert called(limit, somebody("ada")) == 0.75
    limit = ToolRateLimit(Rate(7, burst=1), clock)
    for _ in range(1000):
        assert called(limit, somebody("ada")) == 0
        after = called(limit, somebody("ada"))
        assert 60 / 7 <= after <= 60 / 7 + 0.001
        clock.now += after


def test_principals_do_not_take_from_each_other_and_strangers_share_one() -> None:
    limit = ToolRateLimit(Rate(1, burst=2), Clock())
    for name in ("ada", "ben"):
        assert [called(limit, somebody(name)) for _ in range(3)] == [0, 0, 60.0]
    assert called(limit, Principal("oidc:one")) == 0
    assert called(limit, LOCAL) == 0
    assert called(limit, Principal("oidc:two")) == 60.0, "whoever has no role, under whatever name"


def test_buckets_of_idle_principals_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit, "MOST_BUCKETS", 5)
    clock = Clock()
    limit = ToolRateLimit(Rate(60, burst=1), clock)
    assert [called(limit, somebody(f"p{number}")) for number in range(5)] == [0] * 5
    assert limit.buckets == 5
    assert [called(limit, somebody(f"q{number}")) for number in range(2)] == [0, 1.0], "further ones share a bucket"
    assert limit.buckets == 6
    assert called(limit, somebody("p0")) == 1.0, "who has a bucket keeps it"
    clock.now += 2
    for number in range(4):
        assert called(limit, somebody(f"r{number % 2}")) == (0 if number < 2 else 1.0)
    assert limit.buckets == 2


def test_a_million_principals_one_after_the_other_leave_few_buckets() -> None:
    clock = Clock()
    limit = ToolRateLimit(Rate(600, burst=10), clock)
    for number in range(20_000):
        clock.now += 0.01
        called(limit, somebody(f"p{number}"))
        assert limit.buckets <= 102, "one call a hundredth of a second, and a bucket is full after a second at most"


def test_the_rate_changes_while_the_server_runs() -> None:
    clock = Clock()
    limit = ToolRateLimit(None, clock)
    assert [called(limit, somebody("ada")) for _ in range(1000)] == [0] * 1000
    limit.change(Rate(1, burst=1))
    assert [called(limit, somebody("ada")) for _ in range(2)] == [0, 60.0]
    limit.change(Rate(600, burst=1))
    assert called(limit, somebody("ada")) == 0.1, "nobody waits for what an older rate would have said"
    limit.change(None)
    assert called(limit, somebody("ada")) == 0
    assert limit.buckets == 0


@given(
    st.integers(1, 600),
    st.integers(1, 20),
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 4000)), max_size=60),
)
def test_the_calls_that_pass_are_those_of_a_bucket_of_tokens(
    per_minute: int, burst: int, calls: list[tuple[str, int]]
) -> None:
    """The model: a bucket has so many tokens as the burst, gets one each interval, and a call takes one."""
    clock = Clock()
    limit = ToolRateLimit(Rate(per_minute, burst), clock)
    now = Fraction(1000)
    tokens = {"a": (Fraction(burst), now), "b": (Fraction(burst), now)}
    for name, milliseconds in calls:
        now += Fraction(milliseconds, 1000)
        clock.now = float(now)
        had, at = tokens[name]
        has = min(Fraction(burst), had + (now - at) * per_minute / 60)
        passed = called(limit, somebody(name)) == 0
        if abs(has - 1) > Fraction(1, 10**4):  # at the very moment, the last digit of a float decides
            assert passed == (has >= 1)
        tokens[name] = (has - 1 if passed else has, now)


def test_the_status_says_when_the_call_may_come_again() -> None:
    error = ToolRateError(Rate(60, 1), 12.3451)
    answer = classify(error)
    assert (answer.code, answer.reason) == (Code.RESOURCE_EXHAUSTED, "TOOL_RATE_EXCEEDED")
    assert "12.346 seconds" in answer.message
    retry = error_details_pb2.RetryInfo()
    assert any(detail.Unpack(retry) for detail in to_status(error, "call").details)
    assert retry.retry_delay.ToMilliseconds() == 12_346
