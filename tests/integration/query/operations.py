"""Queries over a real store, the real tools and a model endpoint of the test's own."""

import json
from collections.abc import AsyncIterator
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
from memotree.request.observed_calls import CallObserver, CallObservers, ObservedOperations
from memotree.settings import load_settings
from memotree.tools.builtin.services import builtin_tools
from memotree.tools.executor import Executor
from memotree.tools.policy import ToolAdmission
from memotree.v1 import query_service_pb2 as pb

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
