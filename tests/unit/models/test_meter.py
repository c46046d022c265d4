"""The meter counts the use of models and stops before the limit; the pace spreads calls evenly."""

import asyncio

import pytest

from memotree.models.meter import BudgetExhaustedError, Meter, Usage
from memotree.models.rate_limit import RateLimiter

pytestmark = pytest.mark.requirement("FOREST-12")


def test_a_meter_adds_up_by_kind_and_model() -> None:
    meter = Meter()
    for tokens in (10, 20):
        with meter.call("chat", "m", 5) as call:
            call.answered(tokens, 1)
    with meter.call("embedding", "e", 5) as call:
        call.answered(7)
    meter.cached("chat", "m", 3)
    meter.cached("chat", "other", 0)
    assert meter.usage == [Usage("chat", "m", 2, 30, 2, 3), Usage("embedding", "e", 1, 7, 0, 0)]
    assert meter.tokens == 39


def test_what_an_earlier_attempt_used_counts_but_not_a_call_that_failed() -> None:
    meter = Meter(max_tokens=10)
    for _ in range(3):
        with pytest.raises(OSError, match="away"), meter.call("chat", "m", 5):
            raise OSError("away")
    spent = Meter(max_tokens=3, spent=3)
    with pytest.raises(BudgetExhaustedError), spent.call("chat", "m", 1):
        pass
    assert meter.usage == spent.usage == []


def test_tokens_are_reserved_during_a_call() -> None:
    meter = Meter(max_tokens=100)
    with meter.call("chat", "m", 60) as call:
        with pytest.raises(BudgetExhaustedError, match="100 tokens"), meter.call("chat", "m", 60):
            pass
        call.answered(20, 10)
    with meter.call("chat", "m", 60) as call:
        call.answered(60)


def test_a_warning_is_listed_once_and_the_list_is_bounded() -> None:
    meter = Meter()
    for number in range(100):
        meter.warn("It failed.")
        meter.warn(f"It failed {number} times.")
    assert meter.warnings[:2] == ["It failed.", "It failed 0 times."]
    assert len(meter.warnings) == 20


async def test_calls_are_spread_over_the_minute() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(round(seconds))
        await asyncio.sleep(0)

    pace = RateLimiter(concurrency=10, per_minute=6, sleep=sleep)

    async def call() -> None:
        async with pace.slot():
            pass

    await asyncio.gather(*(call() for _ in range(4)))
    assert waits == [10, 20, 30], "six a minute: one in ten seconds"
