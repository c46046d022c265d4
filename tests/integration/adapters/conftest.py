"""A whole server, and a new workspace for each test, through both clients."""

from collections.abc import AsyncIterator

import pytest
from integration.markdown.conftest import address, new_workspace, workspace

from memotree.client import AsyncClient, AsyncWorkspace, Workspace

__all__ = ["address", "new_workspace", "workspace"]


@pytest.fixture
async def async_workspace(address: str, workspace: Workspace) -> AsyncIterator[AsyncWorkspace]:
    """The same workspace."""
    async with AsyncClient(address) as client:
        yield client.workspace(workspace.name)
