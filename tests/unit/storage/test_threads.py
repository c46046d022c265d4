"""What the store does in threads does not wait for long computations of other parts."""

import asyncio
import threading

import pytest
from memotree_storage.concurrency.threads import in_store_thread


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
