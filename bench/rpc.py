"""Measures the cost of a call over gRPC, beside an empty call on the same server."""

import itertools
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from memotree_storage.commit.direct_import import commit_entries
from memotree_storage.model.node import Node

from bench import guarded_calls, observed_calls
from bench.table import Row, paired, timed
from bench.worlds import Text, World, forest, served
from memotree.gateways.tool_definitions import TOOLS
from memotree.v1 import (
    node_service_pb2,
    node_service_pb2_grpc,
    session_service_pb2,
    session_service_pb2_grpc,
    tool_service_pb2,
    tool_service_pb2_grpc,
)

Call = Callable[[], Awaitable[object]]


async def run(place: World, *, nodes: int, rounds: int, store_commit_ms: float | None) -> list[Row]:
    """Measure reads, staged writes and commits of ten nodes."""
    entries = list(forest(nodes, Text()))
    await commit_entries(place.store, place.workspace_id, "main", entries, "Import")
    await place.store.indexer.current(place.workspace_id)
    await place.store.indexer.flush()
    ids = [entry.id for entry in entries if isinstance(entry, Node)]
    async with served(place, asks_stores=False) as address, grpc.aio.insecure_channel(address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        node = node_service_pb2_grpc.NodeServiceStub(channel)
        session = session_service_pb2_grpc.SessionServiceStub(channel)

        async def empty() -> object:
            return await health.Check(health_pb2.HealthCheckRequest())

        turn = itertools.cycle(ids[:500])
        known = itertools.cycle(ids[-20:])

        async def get() -> object:
            return await node.GetNode(node_service_pb2.GetNodeRequest(workspace="bench", node_id=next(turn)))

        async def get_again() -> object:
            return await node.GetNode(node_service_pb2.GetNodeRequest(workspace="bench", node_id=next(known)))

        opened = await session.OpenSession(session_service_pb2.OpenSessionRequest(workspace="bench", agent="bench"))
        session_id = opened.session.id

        async def create() -> object:
            return await node.CreateNode(
                node_service_pb2.CreateNodeRequest(
                    workspace="bench", session_id=session_id, parent_id=ids[3], title="New", content="Some words."
                )
            )

        async def update() -> object:
            return await node.UpdateNode(
                node_service_pb2.UpdateNodeRequest(
                    workspace="bench", session_id=session_id, node_id=next(turn), title=f"Title {time.time_ns()}"
                )
            )

        rows = []
        for _ in range(20):
            await get_again()
        for name, call, most in (
            ("GetNode", get, 2.0),
            ("GetNode of a node read before", get_again, 1.5),
            ("CreateNode", create, 4.0),
            ("UpdateNode", update, 4.0),
        ):
            ours, theirs = await paired(call, empty, rounds)
            rows.append(Row.of_times(f"{name} over gRPC", ours, "empty RPC", theirs, most=most))
        new_node = {"session_id": session_id, "parent_id": ids[3], "title": "New", "content": "Some words."}
        rows += await _by_name(channel, "GetNode", get, lambda: {"node_id": next(turn)}, rounds)
        rows += await _by_name(channel, "CreateNode", create, lambda: new_node, rounds)
        samples = []
        await session.DiscardSession(
            session_service_pb2.DiscardSessionRequest(workspace="bench", session_id=session_id)
        )
        opened = await session.OpenSession(session_service_pb2.OpenSessionRequest(workspace="bench", agent="bench"))
        session_id = opened.session.id
        for _ in range(max(5, rounds // 10)):
            for _ in range(10):
                await update()
            samples += await timed(
                lambda: session.CommitChanges(
                    session_service_pb2.CommitChangesRequest(
                        workspace="bench", session_id=session_id, message="Ten changes"
                    )
                ),
                1,
                warm=0,
            )
        store = [] if store_commit_ms is None else [store_commit_ms / 1000]
        rows.append(Row.of_times("CommitChanges of 10 nodes over gRPC", samples, "store-level commit", store, most=4))
    return rows + await observed_calls.run(place, ids[:500], rounds) + await guarded_calls.run(rounds)


async def _by_name(
    channel: grpc.aio.Channel, rpc: str, typed: Call, arguments: Callable[[], Mapping[str, Any]], rounds: int
) -> list[Row]:
    """Measure a call of a tool beside the typed call of the same RPC."""
    tools = tool_service_pb2_grpc.ToolServiceStub(channel)
    name = next(tool.name for tool in TOOLS if tool.rpc == rpc)

    async def call() -> object:
        request = tool_service_pb2.ExecuteToolRequest(
            name=name, arguments_json=json.dumps(arguments()), workspace="bench"
        )
        return await tools.ExecuteTool(request)

    ours, theirs = await paired(call, typed, rounds)
    return [Row.of_times(f"{rpc} by ExecuteTool over gRPC", ours, rpc, theirs, most=1.3)]
