"""A stage for jobs, over real PostgreSQL."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from integration.jobs.stage import Act, Open, Stage
from memotree_storage.store import Store


@pytest.fixture
def stage(store: Store) -> Open:
    """Opens a stage; options go to its runner. A second one on the same store is the next process."""

    @asynccontextmanager
    async def opened(act: Act | None = None, *, started: bool = True, **options: Any) -> AsyncIterator[Stage]:
        made = Stage(store, act, options)
        if started:
            await made.runner.start()
        try:
            yield made
        finally:
            await made.runner.stop()

    return opened
