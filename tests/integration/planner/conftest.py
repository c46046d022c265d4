"""Plans in the workspace of a world, changed by their tools."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from integration.worlds import World
from memotree_storage.model.node import Node
from memotree_storage.postgres import tree
from memotree_storage.postgres.tree import Snapshot, State

from memotree.planner import Planner, PlannerTools
from memotree.tools.function_tool import CallContext, FunctionTool, tools_of
from memotree.tools.signature import WrongArgumentsError

BEGIN = datetime(2026, 9, 1, 8, tzinfo=UTC)


class NoOperations:
    """Operations that a test does not need."""

    async def call(self, method: MethodDescriptor, request: Message) -> Message:
        raise AssertionError(f"{method.name} was called with {request}")


@dataclass
class Clock:
    """A clock that tests move."""

    now: datetime = BEGIN

    def __call__(self) -> datetime:
        return self.now

    def pass_by(self, **time: float) -> None:
        self.now += timedelta(**time)


@dataclass
class Plans:
    """Calls tools by name, as a server does."""

    world: World
    clock: Clock
    tools: Mapping[str, FunctionTool]
    context: CallContext
    session: str = ""

    async def call(self, name: str, /, *, request_id: str = "", **given: Any) -> dict[str, Any]:
        """The result of a call; in the session, if there is one."""
        tool = self.tools[name]
        takes = tool.declaration.parameters["properties"]
        if self.session:
            given = {("session_id" if "session_id" in takes else "revision"): self.session, **given}
        values, faults = tool.signature.read(given)
        if faults:
            raise WrongArgumentsError(faults)
        context = replace(self.context, request_id=request_id)
        found: dict[str, Any] = await tool.function(**values, context=context)
        return found

    async def project(self, name: str = "Bake", **given: Any) -> str:
        return str((await self.call("create_project", name=name, **given))["project"]["id"])

    async def goal(self, title: str = "Eat better", **given: Any) -> str:
        return str((await self.call("create_goal", title=title, stage="yearly", **given))["goal"]["id"])

    async def task(self, title: str = "Buy flour", **given: Any) -> str:
        return str((await self.call("create_task", title=title, **given))["task"]["id"])

    async def node(self, node_id: str) -> Node:
        """A node that is alive at the head of main, or in the session."""
        node = await self.find(node_id)
        assert node is not None
        return node

    async def find(self, node_id: str) -> Node | None:
        """A node at the head of main, or in the session; ``None`` if it is not alive."""
        state = State(self.world.workspace, await self.world.head(), self.session or None)
        async with self.world.store.database.connection() as conn:
            version = (await tree.versions(Snapshot(conn, state), [node_id])).get(node_id)
            if version is None:
                return None
            if version.commit_id is None:
                return version.to_node()
        return await self.world.store.entries.node(self.world.workspace, version)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def plans(world: World, clock: Clock) -> Plans:
    planner = Planner(world.store, world.limits, clock=clock)
    tools = {tool.name: tool for tool in tools_of(PlannerTools(planner))}
    return Plans(world, clock, tools, CallContext(NoOperations(), world.workspace, "ada"))
