"""What the store does in threads does not wait for long computations of other parts."""

import asyncio
import threading

import pytest
from memotree_storage.concurrency.threads import (
    LONG_TEXT,
    in_comparison_thread,
    in_store_thread,
    in_thread_if_long,
    in_turns,
)


@pytest.mark.requirement("STORE-8")
async def test_the_store_goes_on_while_all_other_threads_are_busy() -> None:
    over = threading.Event()
    others = [asyncio.create_task(asyncio.to_thread(over.wait, 60)) for _ in range(200)]
    await asyncio.sleep(0)
    try:
        assert await in_store_thread(lambda: 7) == 7
        assert not any(task.done() for task in others)
    finally:
        over.set()
        await asyncio.gather(*others)


@pytest.mark.requirement("STORE-8")
async def test_long_comparisons_occupy_no_thread_that_others_need() -> None:
    over, busy = threading.Event(), threading.Semaphore(0)

    def compare() -> str:
        busy.release()
        over.wait(60)
        return threading.current_thread().name

    comparisons = [asyncio.create_task(in_comparison_thread(compare)) for _ in range(200)]
    try:
        assert await asyncio.to_thread(busy.acquire, timeout=60)
        assert await asyncio.gather(*(asyncio.to_thread(int) for _ in range(50))) == [0] * 50
        assert await in_store_thread(lambda: 7) == 7
    finally:
        over.set()
        names = await asyncio.gather(*comparisons)
    assert len(set(names)) == 2


@pytest.mark.requirement("STORE-8")
@pytest.mark.parametrize(("characters", "is_here"), [(0, True), (LONG_TEXT, True), (LONG_TEXT + 1, False)])
async def test_only_a_long_text_is_worth_a_thread(characters: int, is_here: bool) -> None:
    thread = await in_thread_if_long(characters, threading.get_ident)
    assert (thread == threading.get_ident()) is is_here


@pytest.mark.requirement("STORE-9")
async def test_others_run_between_the_pieces_of_a_long_loop() -> None:
    others = asyncio.create_task(asyncio.sleep(0, "run"))
    seen = [others.done() async for _ in in_turns(range(10_000))]
    assert (seen[0], seen[-1], len(seen)) == (False, True, 10_000)
