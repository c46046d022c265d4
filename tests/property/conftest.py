"""The PostgreSQL of the state machines is the one of the integration tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.conftest import postgres
from property.arena import Arena

__all__ = ["arena", "postgres"]


@pytest.fixture
def arena(postgres: str, tmp_path: Path) -> Iterator[Arena]:
    """An empty store with an index in memory."""
    opened = Arena.open(postgres, tmp_path / "data")
    try:
        yield opened
    finally:
        opened.close()
