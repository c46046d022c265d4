"""What a call has begun ends when its key or its role goes: each call of a tool looks again at who calls."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from memotree.composition import compose
from memotree.identity.errors import KeyRefusedError
from memotree.identity.key_file import KEY_FILE
from memotree.request.principal import Principal, acting_as
from memotree.settings import Settings
from memotree.v1 import access_service_pb2 as access
from memotree.v1 import tool_service_pb2 as pb

pytestmark = pytest.mark.requirement("SERVE-3")


@dataclass(frozen=True)
class Place:
    """The operations of a server that needs keys, and its administrator."""

    access: Any
    tools: Any
    admin: Principal

    async def codes(self, who: Principal, *names: str) -> list[str]:
        """The code of each call of a batch by somebody; "" for success."""
        request = pb.ExecuteToolsRequest(calls=[pb.ToolCall(name=name) for name in names], go_on=True)
        with acting_as(who):
            answer = await self.tools.execute_tools(request)
        return [each.error.code for each in answer.results]


@pytest_asyncio.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    settings = Settings(data_folder=tmp_path / "data", port=0, authentication="keys")
    async with compose(settings) as operations:
        key = (settings.data_folder / KEY_FILE).read_text(encoding="utf-8").strip()
        known: Any = operations["AccessService"]
        yield Place(known, operations["ToolService"], known.principal_of_key(key))


async def test_a_batch_that_goes_on_after_its_key_or_role_calls_nothing(place: Place) -> None:
    given = access.GrantRoleRequest(principal="ada", workspace="*", role=access.ROLE_READER)
    with acting_as(place.admin):
        await place.access.put_principal(access.PutPrincipalRequest(name="ada"))
        made = await place.access.create_key(access.CreateKeyRequest(principal="ada"))
        await place.access.grant_role(given)
    ada = place.access.principal_of_key(made.key)
    assert await place.codes(ada, "date_time", "list_workspaces") == ["", ""]

    given.tools.append("list_*")
    with acting_as(place.admin):
        await place.access.grant_role(given)
    assert await place.codes(ada, "date_time", "list_workspaces") == ["TOOL_NOT_PERMITTED", ""]

    with acting_as(place.admin):
        await place.access.delete_key(access.DeleteKeyRequest(key_id=made.api_key.id))
    assert await place.codes(ada, "date_time", "list_workspaces") == ["KEY_REFUSED", "KEY_REFUSED"]
    with acting_as(ada):
        with pytest.raises(KeyRefusedError):
            await place.tools.list_tools(pb.ListToolsRequest())
        with pytest.raises(KeyRefusedError):
            await place.tools.get_tool(pb.GetToolRequest(name="date_time"))
