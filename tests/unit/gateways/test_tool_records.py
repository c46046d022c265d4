"""Each call of a tool leaves one record, however it came and ended, and is made with the roles of that moment."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
import pytest_asyncio
from memotree_storage.errors import MemoTreeError

from memotree.audit.log import REFUSED
from memotree.gateways.callers import LocalCaller
from memotree.gateways.catalogue import Catalogue, InvalidArgumentsError, UnknownToolError
from memotree.gateways.tool_operations import ToolOperations, catalogue_of, with_tools
from memotree.identity.errors import KeyRefusedError
from memotree.request.observed_calls import HTTP, TOOL, CallObservers, ObservedCall, calling_through
from memotree.request.principal import ALL_BRANCHES, Grant, Principal, Role, acting_as
from memotree.request.rate import Rate
from memotree.tools.builtin.services import ToolOptions, builtin_tools
from memotree.tools.declaration import Permission
from memotree.tools.executor import Executor
from memotree.tools.function_tool import FunctionTool, tool
from memotree.tools.policy import ToolAdmission
from memotree.tools.rate_limit import ToolRateError, ToolRateLimit
from memotree.v1 import tool_service_pb2 as pb
from memotree.v1 import workspace_service_pb2

pytestmark = [pytest.mark.requirement("TOOL-12"), pytest.mark.requirement("SERVE-3")]

EVERYWHERE = Grant("*", ALL_BRANCHES, Role.READER)
ADA = Principal("ada", grants=(EVERYWHERE,), key_id="k")


class Records:
    """The calls of tools, and refused RPCs, that an audit log would keep."""

    def __init__(self) -> None:
        self.calls: list[ObservedCall] = []

    def began(self, call: ObservedCall) -> None:
        """Do nothing."""

    def settle(self, call: ObservedCall) -> None:
        if call.interface != TOOL and (call.tool or call.code in REFUSED):
            self.calls.append(call)

    def ended(self, call: ObservedCall) -> None:
        """Do nothing: it is kept already."""

    def taken(self) -> list[tuple[str, str, str]]:
        """The records since the last time: the tool, the interface and the code."""
        found = [(call.tool, call.interface, call.reason or call.code) for call in self.calls]
        self.calls.clear()
        return found


class Keys:
    """A key that can be ended, and roles that can be taken away."""

    def __init__(self) -> None:
        self.is_valid = True
        self.grants: Sequence[Grant] = ADA.grants

    def renewed(self, who: Principal) -> Principal:
        if not self.is_valid:
            raise KeyRefusedError
        return replace(who, grants=tuple(self.grants))

    @tool(category="keys")
    async def end_key(self) -> str:
        """End the key."""
        self.is_valid = False
        return "ended"

    @tool(category="keys")
    async def take_roles(self) -> str:
        """Take all roles away."""
        self.grants = ()
        return "taken"

    @tool(category="keys", read_only=True, permissions=(Permission("read", "server"),))
    async def read_server(self) -> str:
        """Read what needs a role in all workspaces."""
        return "read"


class Server:
    """The operations of ToolService, and the catalogue of another interface of the same server."""

    def __init__(self, executor: Executor) -> None:
        self.records, self.keys = Records(), Keys()
        self.admission = ToolAdmission()
        own = (self.keys.end_key, self.keys.take_roles, self.keys.read_server)
        answer = workspace_service_pb2.ListWorkspacesResponse()
        found = with_tools(
            {"WorkspaceService": SimpleNamespace(list_workspaces=AsyncMock(return_value=answer))},
            "main",
            1 << 20,
            CallObservers([self.records]),
            (*builtin_tools(ToolOptions(hosts=("*",))), *map(FunctionTool, own)),
            executor,
            admission=self.admission,
            renew=self.keys.renewed,
        )
        operations = found["ToolService"]
        assert isinstance(operations, ToolOperations)
        self.operations = operations
        self.catalogue: Catalogue = catalogue_of(found, LocalCaller(found), "main")

    async def batch(self, *names: str) -> list[str]:
        """The code of each call of a batch; "" for success."""
        request = pb.ExecuteToolsRequest(calls=[pb.ToolCall(name=name) for name in names], go_on=True)
        with acting_as(ADA):
            answer = await self.operations.execute_tools(request)
        return [each.error.code for each in answer.results]


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    executor = Executor()
    yield Server(executor)
    await executor.close()


TOOLS = ["date_time", "list_workspaces"]
"""A function, and a tool that calls an RPC."""


@pytest.mark.parametrize("name", TOOLS)
async def test_a_call_that_succeeds_has_one_record(server: Server, name: str) -> None:
    await server.operations.execute_tool(pb.ExecuteToolRequest(name=name))
    assert server.records.taken() == [(name, "local", "OK")]
    with calling_through(HTTP):
        assert (await server.catalogue.call(name, {})).success
    assert server.records.taken() == [(name, "http", "OK")]


@pytest.mark.parametrize("name", TOOLS)
async def test_a_call_that_comes_too_soon_has_one_record(server: Server, name: str) -> None:
    server.admission.rate = ToolRateLimit(Rate(1, 1))
    server.admission.count()
    with pytest.raises(ToolRateError):
        await server.operations.execute_tool(pb.ExecuteToolRequest(name=name, request_id="mine"))
    assert [getattr(each.request, "request_id", "") for each in server.records.calls] == ["mine"]
    assert server.records.taken() == [(name, "local", "TOOL_RATE_EXCEEDED")]
    with acting_as(ADA):
        server.admission.count()
    assert await server.batch(name, name) == ["TOOL_RATE_EXCEEDED"] * 2
    assert server.records.taken() == [(name, "local", "TOOL_RATE_EXCEEDED")] * 2
    with calling_through(HTTP):
        result = await server.catalogue.call(name, {})
    assert result.failure is not None
    assert result.failure.code == "TOOL_RATE_EXCEEDED"
    assert server.records.taken() == [(name, "http", "TOOL_RATE_EXCEEDED")]


@pytest.mark.parametrize("name", TOOLS)
@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1, "a": 2}'])
async def test_arguments_that_are_no_object_have_one_record(server: Server, name: str, text: str) -> None:
    call = pb.ExecuteToolRequest(name=name, arguments_json=text)
    with pytest.raises(InvalidArgumentsError):
        await server.operations.execute_tool(call)
    assert server.records.taken() == [(name, "local", "INVALID_ARGUMENTS")]
    batch = [pb.ToolCall(name=name), pb.ToolCall(name=name, arguments_json=text), pb.ToolCall(name=name)]
    with pytest.raises(InvalidArgumentsError):
        await server.operations.execute_tools(pb.ExecuteToolsRequest(calls=batch))
    assert server.records.taken() == [(name, "local", "INVALID_ARGUMENTS")], "no call of the batch was made"


@pytest.mark.parametrize("name", TOOLS)
@pytest.mark.parametrize("value", [1, "\ud800", float("nan")])
async def test_arguments_that_do_not_match_have_one_record(server: Server, name: str, value: Any) -> None:
    with calling_through(HTTP):
        result = await server.catalogue.call(name, {"page_token": value, "zone": value})
    assert result.failure is not None
    assert result.failure.code == "INVALID_ARGUMENTS"
    assert server.records.taken() == [(name, "http", "INVALID_ARGUMENTS")]


async def test_a_tool_that_there_is_not_has_no_record(server: Server) -> None:
    with pytest.raises(MemoTreeError):
        await server.operations.execute_tool(pb.ExecuteToolRequest(name="nothing"))
    with pytest.raises(UnknownToolError) as caught:
        await server.catalogue.call("nothing", {})
    assert caught.value.reason == "UNKNOWN_TOOL"
    assert server.records.taken() == []


async def test_the_record_of_a_function_has_its_arguments(server: Server) -> None:
    given = {"url": "https://me:secret@127.0.0.1/", "method": "POST", "body": "secret"}
    assert not (await server.catalogue.call("http_request", given)).success
    (call,) = server.records.calls
    assert call.function is not None
    assert call.function.given == given
    assert call.function.parameters["properties"].keys() >= given.keys()


# --- Who calls --------------------------------------------------------------------------------------------------------


async def test_a_key_that_ends_within_a_batch_makes_no_further_call(server: Server) -> None:
    codes = await server.batch("read_server", "end_key", "read_server", "date_time", "list_workspaces")
    assert codes == ["", "", *["KEY_REFUSED"] * 3]
    assert [code for _, _, code in server.records.taken()] == ["OK", "OK", *["KEY_REFUSED"] * 3]


async def test_roles_hold_as_they_are_at_each_call(server: Server) -> None:
    codes = await server.batch("read_server", "take_roles", "read_server", "date_time")
    assert codes == ["", "", "TOOL_NOT_PERMITTED", ""]
    server.keys.grants = [replace(EVERYWHERE, tools=("list_*",))]
    assert await server.batch("date_time", "list_workspaces") == ["TOOL_NOT_PERMITTED", ""]


async def test_a_key_that_has_ended_makes_no_call_and_lists_nothing(server: Server) -> None:
    server.keys.is_valid = False
    with acting_as(ADA):
        answer = await server.operations.execute_tool(pb.ExecuteToolRequest(name="date_time"))
        assert (answer.result.error.code, answer.result.error.status) == ("KEY_REFUSED", "UNAUTHENTICATED")
        for tool_name in TOOLS:
            result = await server.catalogue.call(tool_name, {})
            assert result.failure is not None
            assert result.failure.code == "KEY_REFUSED"
        assert [name for name, _, _ in server.records.taken()] == ["date_time", *TOOLS]
        with pytest.raises(KeyRefusedError):
            await server.operations.list_tools(pb.ListToolsRequest())
        with pytest.raises(KeyRefusedError):
            await server.operations.get_tool(pb.GetToolRequest(name="date_time"))
