"""A whole server, and a new workspace for each test, through both clients."""

import secrets
from collections.abc import AsyncIterator, Iterator

import pytest
from crash.service import start

from memotree.client import AsyncClient, AsyncWorkspace, Client, Workspace


@pytest.fixture(scope="session")
async def address(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    folder = tmp_path_factory.mktemp("adapters")
    service = await start(folder / "data", folder / "server.log")
    try:
        yield service.address
    finally:
        service.kill()


@pytest.fixture
def workspace(address: str) -> Iterator[Workspace]:
    with Client(address) as client:
        name = f"w-{secrets.token_hex(6)}"
        client.create_workspace(name)
        yield client.workspace(name)


@pytest.fixture
async def async_workspace(address: str, workspace: Workspace) -> AsyncIterator[AsyncWorkspace]:
    """The same workspace."""
    async with AsyncClient(address) as client:
        yield client.workspace(workspace.name)
