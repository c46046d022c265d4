"""A whole server, and new workspaces for each test."""

import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from crash.service import start

from memotree.client import Client, Workspace


@pytest.fixture(scope="session")
async def address(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    folder = tmp_path_factory.mktemp("markdown")
    service = await start(folder / "data", folder / "server.log")
    try:
        yield service.address
    finally:
        service.kill()


@pytest.fixture
def new_workspace(address: str) -> Iterator[Callable[[], Workspace]]:
    """Makes a workspace."""
    with Client(address) as client:

        def make() -> Workspace:
            name = f"w-{secrets.token_hex(6)}"
            client.create_workspace(name)
            return client.workspace(name)

        yield make


@pytest.fixture
def workspace(new_workspace: Callable[[], Workspace]) -> Workspace:
    return new_workspace()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where an export goes; it does not exist."""
    return tmp_path / "export"
