"""Features are computed ahead, and a caller need not wait for a slow one."""

import asyncio

import pytest
from memotree_storage.index.features import Prefetcher


async def test_prefetched_values_come_in_order_and_at_most_two_are_computed_at_once() -> None:
    under_way, most = 0, 0

    async def make(number: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return number

    ahead = Prefetcher(range(5), make)
    assert [await ahead.take() for _ in range(6)] == [0, 1, 2, 3, 4, None]
    assert ahead.over
    assert most == 2


async def test_without_waiting_a_slow_value_is_none_and_with_waiting_it_is_returned() -> None:
    go = asyncio.Event()

    async def make(number: int) -> int:
        await go.wait()
        return number

    ahead = Prefetcher([1], make)
    assert await ahead.take_soon(0.0) is None
    assert not ahead.over
    go.set()
    assert await ahead.take() == 1
    assert await ahead.take_soon(0.0) is None


async def test_an_error_is_raised_only_when_its_value_is_awaited() -> None:
    async def make(number: int) -> int:
        if number:
            raise ZeroDivisionError
        return number

    ahead = Prefetcher([0, 1, 2], make)
    assert await ahead.take() == 0
    assert await ahead.take_soon(5.0) is None
    with pytest.raises(ZeroDivisionError):
        await ahead.take()
    await ahead.stop()


async def test_stopping_cancels_unfinished_values() -> None:
    cancelled = asyncio.Event()

    async def make(_: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    ahead = Prefetcher([1], make)
    await ahead.take_soon(0.0)
    await asyncio.sleep(0)
    await ahead.stop()
    assert cancelled.is_set()
