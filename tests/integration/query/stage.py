"""What the tests of questions share: functions that behave badly, and an observer of what is called."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from integration.worlds import World

from memotree.query.service import QueryOperations
from memotree.request.observed_calls import ObservedCall
from memotree.tools.executor import TooManyToolCallsError
from memotree.tools.function_tool import tool
from memotree.tools.results import MOST_BYTES
from memotree.v1 import query_service_pb2 as pb

Ask = Callable[..., Awaitable[pb.QueryResponse]]


class Witness:
    """An observer that remembers the calls of tools, and functions that behave badly."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, str]] = []
        self.running = 0
        self.tries = 0
        self.most_running = 0
        self.begun = asyncio.Event()
        self.met = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.inner: Callable[[], Awaitable[Any]] | None = None

    def began(self, call: ObservedCall) -> None:
        """Nothing."""

    def settle(self, call: ObservedCall) -> None:
        """Nothing."""

    def ended(self, call: ObservedCall) -> None:
        """Remember a call of a tool."""
        if call.tool:
            self.calls.append((call.tool, call.interface, call.principal))

    @tool(category="test", read_only=True)
    async def wait_long(self) -> str:
        """Waits for ever."""
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return ""

    @tool(category="test")
    async def write_long(self) -> str:
        """Changes something for ever."""
        return await self.wait_long()

    @tool(category="test", read_only=True)
    async def try_twice(self) -> str:
        """Fails until it is asked again."""
        self.tries += 1
        if self.tries == 1:
            raise TooManyToolCallsError("one call at once")
        return "now"

    @tool(category="test", read_only=True)
    async def meet(self, number: int) -> int:
        """Meets another call."""
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        if self.running == 2:
            self.met.set()
        await self.met.wait()
        self.running -= 1
        return number

    @tool(category="test")
    async def scribble(self, number: int) -> int:
        """Writes something."""
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        return number

    @tool(category="test")
    async def write_much(self) -> str:
        """Writes something, and returns more than a result may have."""
        self.tries += 1
        return "word " * MOST_BYTES

    @tool(category="test", read_only=True)
    async def shout(self, length: int) -> dict[str, str]:
        """Returns very much."""
        return {"shouted": "word " * length}

    @tool(category="test", read_only=True)
    async def ask_again(self) -> str:
        """Asks a query."""
        assert self.inner is not None
        await self.inner()
        return "answered"


async def streamed(queries: QueryOperations, world: World, **fields: Any) -> list[pb.StreamQueryResponse]:
    """The events of a question."""
    request = pb.StreamQueryRequest(workspace=world.workspace, query="When was the stone bridge rebuilt?", **fields)
    return [event async for event in queries.stream_query(request)]
