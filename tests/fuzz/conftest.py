"""One server for all fuzz tests of a run that need one."""

from collections.abc import Iterator

import pytest
from fuzz.server import FuzzedServer
from fuzz.world import World
from property.store_harness import fresh_database


@pytest.fixture(scope="session")
def fuzzed(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FuzzedServer]:
    """A server with all services."""
    with FuzzedServer.running(tmp_path_factory.mktemp("fuzz"), fresh_database(postgres)) as server:
        yield server


@pytest.fixture(scope="session")
def world(fuzzed: FuzzedServer) -> World:
    """The workspace of the generated requests."""
    return World(fuzzed)
