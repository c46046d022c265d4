"""A real server on a data folder of its own, whose files can be looked at."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from crash.service import Service, start


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """A server that answers."""
    found = await start(tmp_path / "data", tmp_path / "server.log")
    try:
        yield found
    finally:
        found.kill()
