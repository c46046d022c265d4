"""State machines use the PostgreSQL of the integration tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from property.store_harness import StoreHarness


@pytest.fixture
def harness(postgres: str, tmp_path: Path) -> Iterator[StoreHarness]:
    """An empty store with an index in memory."""
    opened = StoreHarness.open(postgres, tmp_path / "data")
    try:
        yield opened
    finally:
        opened.close()
