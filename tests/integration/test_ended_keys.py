"""What a call has begun ends when its key or its role goes: each call of a tool looks again at who calls."""

from pathlib import Path
from typing import Any

import pytest

from memotree.composition import compose
from memotree.identity.errors import KeyRefusedError
from memotree.identity.key_file import KEY_FILE
from memotree.request.principal import acting_as
from memotree.settings import Settings
from memotree.v1 import access_service_pb2 as access
from memotree.v1 import tool_service_pb2 as pb

pytestmark = pytest.mark.requirement("SERVE-3")


async def test_a_batch_that_goes_on_after_its_key_or_role_calls_nothing(tmp_path: Path) -> None:
    settings = Settings(data_folder=tmp_path / "data", port=0, authentication="keys")
    batch = pb.ExecuteToolsRequest(
        calls=[pb.ToolCall(name="date_time"), pb.ToolCall(name="list_workspaces")], go_on=True
    )
    async with compose(settings) as operations:
        keys: Any = operations["AccessService"]
        tools: Any = operations["ToolService"]
        admin = keys.principal_of_key((settings.data_folder / KEY_FILE).read_text(encoding="utf-8").strip())
        given = access.GrantRoleRequest(principal="ada", workspace="*", role=access.ROLE_READER)
        with acting_as(admin):
            await keys.put_principal(access.PutPrincipalRequest(name="ada"))
            made = await keys.create_key(access.CreateKeyRequest(principal="ada"))
            await keys.grant_role(given)
        ada = keys.principal_of_key(made.key)

        async def codes() -> list[str]:
            with acting_as(ada):
                return [each.error.code for each in (await tools.execute_tools(batch)).results]

        assert await codes() == ["", ""]
        given.tools.append("list_*")
        with acting_as(admin):
            await keys.grant_role(given)
        assert await codes() == ["TOOL_NOT_PERMITTED", ""]
        with acting_as(admin):
            await keys.delete_key(access.DeleteKeyRequest(key_id=made.api_key.id))
        assert await codes() == ["KEY_REFUSED", "KEY_REFUSED"]
        with acting_as(ada):
            with pytest.raises(KeyRefusedError):
                await tools.list_tools(pb.ListToolsRequest())
            with pytest.raises(KeyRefusedError):
                await tools.get_tool(pb.GetToolRequest(name="date_time"))
