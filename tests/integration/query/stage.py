"""What the tests of questions share: their operations, functions that behave badly, and what the model was told."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from endpoints import ModelEndpoint
from integration.scripted_server import ScriptedForest, operations
from integration.worlds import World

from memotree.forest.recall.recall import Recall
from memotree.gateways.catalogue import Catalogue
from memotree.gateways.tool_operations import with_tools
from memotree.models.gateway import Models
from memotree.models.model_errors import RetryPolicy
from memotree.query.service import QueryOperations
from memotree.request.observed_calls import CallObserver, CallObservers, ObservedCall, ObservedOperations
from memotree.settings import load_settings
from memotree.tools.builtin.services import builtin_tools
from memotree.tools.executor import Executor, TooManyToolCallsError
from memotree.tools.function_tool import tool
from memotree.tools.policy import ToolAdmission
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
    async def shout(self, length: int) -> dict[str, list[str]]:
        """Returns very much."""
        return {"shouted": ["word " * 50] * (length // 50)}

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


IMPATIENT = RetryPolicy(timeout=5, attempts=2, first_wait=0.001, longest_wait=0.002, failures=3, cool_down=60)


_builtin_tools = cache(builtin_tools)  # to describe them takes longer than a question


@asynccontextmanager
async def operations_with_queries(
    world: World,
    endpoint: ModelEndpoint | None,
    folder: Path,
    *observers: CallObserver,
    more: tuple[Any, ...] = (),
    admission: ToolAdmission | None = None,
) -> AsyncIterator[ObservedOperations]:
    """All operations, with a chat model behind the endpoint (none without); recall is the real one."""
    given = {} if endpoint is None else endpoint.settings("chat")
    models = Models.from_settings(load_settings(data_folder=folder, **given), world.store.database, IMPATIENT)
    await models.open()
    recalling = Recall(world.store, world.limits, models)
    forest = ScriptedForest()
    forest.recall = recalling.recall  # type: ignore[method-assign]
    executor = Executor()

    def over_tools(catalogue: Catalogue) -> dict[str, object]:
        return {"QueryService": QueryOperations(catalogue, recalling, models, world.store)}

    yield with_tools(
        operations(world, forest),
        world.workspace,
        1 << 20,
        CallObservers(observers),
        (*_builtin_tools(), *more),
        executor,
        admission=admission,
        over_tools=over_tools,
    )
    await executor.close()
    await models.close()


def results_told(endpoint: ModelEndpoint, call: int = -1) -> list[dict[str, Any]]:
    """The results of tools in a request to the model."""
    return [json.loads(part["content"]) for part in endpoint.chat_calls[call]["messages"] if part["role"] == "tool"]


def codes(answer: pb.QueryResponse) -> list[tuple[str, str, bool]]:
    """Of each call the tool, the error code, and whether it was made."""
    return [(call.name, call.result.error.code, call.called) for call in answer.tool_calls]
