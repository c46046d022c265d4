"""A whole server, and new workspaces for each test."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from crash.service import running
from memotree_storage.model.node import new_id

from memotree.client import Client, Workspace


@pytest.fixture(scope="session")
async def address(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    folder = tmp_path_factory.mktemp("whole")
    async with running(folder / "data", folder / "server.log") as service:
        yield service.address


@pytest.fixture
def new_workspace(address: str) -> Iterator[Callable[[], Workspace]]:
    """Makes a workspace."""
    with Client(address) as client:

        def make() -> Workspace:
            return client.workspace(client.create_workspace(f"w-{new_id()}").name)

        yield make


@pytest.fixture
def workspace(new_workspace: Callable[[], Workspace]) -> Workspace:
    return new_workspace()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where an export goes; it does not exist."""
    return tmp_path / "export"
