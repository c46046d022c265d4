"""The operations on documents over real stores."""

from collections.abc import AsyncIterator

import pytest
from integration.forests import Forest, forest_of
from integration.worlds import World


@pytest.fixture
async def forest(world: World) -> AsyncIterator[Forest]:
    async with forest_of(world) as made:
        yield made
