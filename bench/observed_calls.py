"""Measures what it costs a call to be observed: by metrics, the audit log and traces."""

import itertools
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta

import grpc
from prometheus_client import CollectorRegistry

from bench.table import Row, paired
from bench.worlds import World, served
from memotree.audit import AuditLog
from memotree.audit.journal import Journal
from memotree.composition import changing_methods
from memotree.metrics.call_metrics import CallMetrics
from memotree.request.observed_calls import CallObserver
from memotree.server.binding import contract
from memotree.v1 import (
    node_service_pb2,
    node_service_pb2_grpc,
    session_service_pb2,
    session_service_pb2_grpc,
)

Call = Callable[[], Awaitable[object]]

MOST = 1.1
"""The budget of authentication, the audit log and metrics together."""


async def run(place: World, ids: Sequence[str], rounds: int) -> list[Row]:
    """Measure a read and a staged write on two servers over the same store, one of them with observers."""
    async with AsyncExitStack() as stack:
        log = AuditLog(
            place.store.database, Journal(place.folder / "audit" / "journal"), changing_methods(), timedelta(days=1)
        )
        log.start()
        stack.push_async_callback(log.stop)
        bare = await _channel(stack, place, ())
        watched = await _channel(stack, place, [log, _metrics()])
        first, second = _reading(watched, ids), _reading(bare, ids)
        for _ in ids:  # both servers share the cache of the store, which the first call of a node fills
            await second()
        session = session_service_pb2_grpc.SessionServiceStub(bare)
        opened = await session.OpenSession(session_service_pb2.OpenSessionRequest(workspace="bench", agent="bench"))
        read, read_bare = await paired(first, second, 4 * rounds)
        first, second = (_writing(channel, opened.session.id, ids[3]) for channel in (watched, bare))
        write, write_bare = await paired(first, second, 2 * rounds)
    return [
        Row.of_times("GetNode, observed", read, "GetNode, not observed", read_bare, most=MOST),
        Row.of_times("CreateNode, observed", write, "CreateNode, not observed", write_bare, most=MOST),
    ]


def _metrics() -> CallMetrics:
    methods = [f"{service.full_name}/{each.name}" for service in contract().values() for each in service.methods]
    return CallMetrics(CollectorRegistry(), methods)


async def _channel(stack: AsyncExitStack, place: World, observers: Sequence[CallObserver]) -> grpc.aio.Channel:
    """A connection to a server with these observers."""
    address = await stack.enter_async_context(served(place, asks_stores=False, observers=observers))
    return await stack.enter_async_context(grpc.aio.insecure_channel(address))


def _reading(channel: grpc.aio.Channel, ids: Sequence[str]) -> Call:
    """A call that reads one node after the other."""
    node = node_service_pb2_grpc.NodeServiceStub(channel)
    turn = itertools.cycle(ids)

    async def get() -> object:
        return await node.GetNode(node_service_pb2.GetNodeRequest(workspace="bench", node_id=next(turn)))

    return get


def _writing(channel: grpc.aio.Channel, session_id: str, parent_id: str) -> Call:
    """A call that stages a new node."""
    node = node_service_pb2_grpc.NodeServiceStub(channel)

    async def create() -> object:
        return await node.CreateNode(
            node_service_pb2.CreateNodeRequest(
                workspace="bench", session_id=session_id, parent_id=parent_id, title="New", content="Some words."
            )
        )

    return create
