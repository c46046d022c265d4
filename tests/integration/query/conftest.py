"""A workspace with one fact, a scripted model, and questions to it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from endpoints import ModelEndpoint
from integration.query.stage import Ask, Witness, operations_with_queries
from integration.worlds import World
from memotree_storage.model.node import Node

from memotree.query.service import QueryOperations
from memotree.tools.function_tool import tools_of
from memotree.v1 import query_service_pb2 as pb


@pytest.fixture
async def endpoint() -> AsyncIterator[ModelEndpoint]:
    async with ModelEndpoint() as started:
        yield started


@pytest.fixture
def witness() -> Witness:
    return Witness()


@pytest.fixture
async def river(world: World) -> Node:
    node = world.node(
        "Stone bridge", type="leaf_chunk", content="The stone bridge was rebuilt after the flood of 1784."
    )
    await world.put(node)
    return node


@pytest.fixture
async def queries(
    world: World, endpoint: ModelEndpoint, river: Node, witness: Witness, tmp_path: Path
) -> AsyncIterator[QueryOperations]:
    del river
    async with operations_with_queries(
        world, endpoint, tmp_path / "settings", witness, more=tuple(tools_of(witness))
    ) as operations:
        found = operations["QueryService"]
        assert isinstance(found, QueryOperations)
        yield found


@pytest.fixture
def ask(world: World, queries: QueryOperations) -> Ask:
    async def asked(query: str = "When was the stone bridge rebuilt?", **fields: Any) -> pb.QueryResponse:
        options = pb.QueryOptions(**fields.pop("options", {}))
        return await queries.query(pb.QueryRequest(workspace=world.workspace, query=query, options=options, **fields))

    return asked
