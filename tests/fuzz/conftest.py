"""Fuzzing is a campaign; one server is for all its tests of a run that need one."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from fuzz.server import FuzzedServer
from fuzz.world import World
from property.store_harness import fresh_database


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Leave these tests to `make test-all`, CI and `make campaign`."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.campaign)


@pytest.fixture(scope="session")
def fuzzed(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FuzzedServer]:
    """A server with all services."""
    with FuzzedServer.running(tmp_path_factory.mktemp("fuzz"), fresh_database(postgres)) as server:
        yield server


@pytest.fixture(scope="session")
def world(fuzzed: FuzzedServer) -> World:
    """The workspace of the generated requests."""
    return World(fuzzed)
