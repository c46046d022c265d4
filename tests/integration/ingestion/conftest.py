"""The operations on documents over real stores."""

from collections.abc import AsyncIterator

import pytest
from endpoints import ModelEndpoint
from integration.forests import Forest, forest_of
from integration.worlds import World


@pytest.fixture
async def forest(world: World) -> AsyncIterator[Forest]:
    async with forest_of(world) as made:
        yield made


@pytest.fixture
async def endpoint() -> AsyncIterator[ModelEndpoint]:
    """A chat model."""
    async with ModelEndpoint() as made:
        yield made
