"""How many commits a second clients of one workspace make, and what a committed change costs in one call.

The server is a process of its own, as for users; the clients share this one. Each client updates a node of its own and
commits it, again and again; edits and commits of different clients overlap as they like.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import grpc

from bench.store_commit import build, measure_store
from bench.table import Row, timed
from bench.worlds import served_apart
from memotree.v1 import (
    maintenance_service_pb2,
    maintenance_service_pb2_grpc,
    node_service_pb2,
    node_service_pb2_grpc,
    session_service_pb2,
    session_service_pb2_grpc,
    workspace_service_pb2,
    workspace_service_pb2_grpc,
)

_WORKSPACE: Final = "bench"
_MANY: Final = 32
_RATE: Final = 150
_AT_ONCE: Final = 1000
"""Changes of one batch."""

_ONE_MS: Final = 20
_TEN_MS: Final = 30
_TIMES_STORE: Final = 3
"""How many times a commit of the store a commit of one client may take."""

_POLL: Final = 0.02
"""Seconds."""


class _Clients:
    """The stubs over one connection; a client in this process costs little beside its connection's server side."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.workspaces: Any = workspace_service_pb2_grpc.WorkspaceServiceStub(channel)
        self.sessions: Any = session_service_pb2_grpc.SessionServiceStub(channel)
        self.nodes: Any = node_service_pb2_grpc.NodeServiceStub(channel)
        self.maintenance: Any = maintenance_service_pb2_grpc.MaintenanceServiceStub(channel)


async def run(*, nodes: int, seconds: float, rounds: int, store_commit_ms: float | None) -> list[Row]:
    """Measure the rate with 1, 8 and 32 clients, and a committed change of one and of ten nodes.

    Args:
        nodes: How many nodes there are.
        seconds: How long each number of clients commits.
        rounds: Commits of one client by single calls.
        store_commit_ms: A commit of ten nodes at the level of the store, for comparison.
    """
    async with _server() as address:
        async with grpc.aio.insecure_channel(address) as channel:
            clients = _Clients(channel)
            ids = await _prepare(clients, nodes)
            await _until_indexed(clients)
            rows = [await _at_once(clients, ids, count, rounds, store_commit_ms) for count in (1, 10)]
            rows.append(await _one_by_one(clients, ids, rounds))
        for count in (1, 8, _MANY):
            rate = await _rate(address, ids[:count], seconds)
            met = rate >= _RATE if count == _MANY else None
            budget = f"≥ {_RATE} a second" if count == _MANY else ""
            rows.append(Row(f"edits and commits, {count} clients of one workspace", rate, "/s", budget=budget, met=met))
    return rows


@asynccontextmanager
async def _server() -> AsyncIterator[str]:
    with TemporaryDirectory(prefix="memotree-rate-") as name:
        async with served_apart(Path(name)) as address:
            yield address


async def _prepare(clients: _Clients, count: int) -> list[str]:
    """A workspace with an archive of that many nodes; returns their ids."""
    await clients.workspaces.CreateWorkspace(workspace_service_pb2.CreateWorkspaceRequest(name=_WORKSPACE))
    opened = await clients.sessions.OpenSession(session_service_pb2.OpenSessionRequest(workspace=_WORKSPACE))
    of_session = {"workspace": _WORKSPACE, "session_id": opened.session.id}
    made = await clients.workspaces.CreateArchive(
        workspace_service_pb2.CreateArchiveRequest(**of_session, name="notes")
    )
    await clients.sessions.CommitChanges(session_service_pb2.CommitChangesRequest(**of_session, message="Begin"))
    ids: list[str] = []
    for start in range(0, count, _AT_ONCE):
        creates = [
            node_service_pb2.CreateNodeRequest(
                archive_id=made.archive.id,
                title=f"Note {number}",
                content=f"Note {number} tells of harbours and boats.",
            )
            for number in range(start, min(start + _AT_ONCE, count))
        ]
        answer = await clients.nodes.BatchChangeNodes(_batch(creates, "create"))
        ids += [result.node.id for result in answer.results]
    return ids


async def _until_indexed(clients: _Clients) -> None:
    """Wait until the nodes that were made for the measurement are indexed; what is measured is indexed beside it."""
    request = maintenance_service_pb2.GetStatusRequest()
    while (await clients.maintenance.GetStatus(request)).index_backlog:  # noqa: ASYNC110 - a client can only look
        await asyncio.sleep(_POLL)


def _batch(changes: Sequence[Any], kind: str) -> node_service_pb2.BatchChangeNodesRequest:
    return node_service_pb2.BatchChangeNodesRequest(
        workspace=_WORKSPACE,
        changes=[node_service_pb2.NodeChange(**{kind: change}) for change in changes],
        commit=node_service_pb2.CommitAtOnce(message="Change some nodes"),
    )


async def _at_once(
    clients: _Clients, ids: Sequence[str], count: int, rounds: int, store_commit_ms: float | None
) -> Row:
    turn = itertools.cycle(ids)

    async def commit() -> object:
        content = f"At {time.time_ns()} the harbour was closed."
        updates = [node_service_pb2.UpdateNodeRequest(node_id=next(turn), content=content) for _ in range(count)]
        return await clients.nodes.BatchChangeNodes(_batch(updates, "update"))

    most = _ONE_MS if count == 1 else _TEN_MS
    what = "one updated node" if count == 1 else f"{count} updated nodes"
    row = Row.of_times(f"{what}, committed in one call over gRPC", await timed(commit, rounds), most=most)
    return row if store_commit_ms is None else replace(row, peer="store-level commit of 10", peer_value=store_commit_ms)


async def _one_by_one(clients: _Clients, ids: Sequence[str], rounds: int) -> Row:
    """What a client waits for the commit of one change while nobody else works, in turns with a commit of the store."""
    opened = await clients.sessions.OpenSession(session_service_pb2.OpenSessionRequest(workspace=_WORKSPACE))
    of_session = {"workspace": _WORKSPACE, "session_id": opened.session.id}
    turn = itertools.cycle(ids)
    with TemporaryDirectory(prefix="memotree-rate-") as folder:
        repository, head, paths, _ = await asyncio.to_thread(build, Path(folder, "bench.git"), len(ids), 2000)
        others = itertools.cycle(name.split("/")[3][:16] for name in paths)
        ours, theirs = list[float](), list[float]()
        for _ in range(rounds):
            content = f"At {time.time_ns()} the ferry was late."
            await clients.nodes.UpdateNode(
                node_service_pb2.UpdateNodeRequest(**of_session, node_id=next(turn), content=content)
            )
            begun = time.perf_counter()
            await clients.sessions.CommitChanges(
                session_service_pb2.CommitChangesRequest(**of_session, message="Change a node")
            )
            ours.append(time.perf_counter() - begun)
            await _until_indexed(clients)
            head, milliseconds = measure_store(repository, head, [next(others)], k=1, rounds=1, size=len(content))
            theirs.append(milliseconds / 1000)
        repository.close()
    return Row.of_times(
        "CommitChanges of one node over gRPC", ours, "store-level commit of one", theirs, most=_TIMES_STORE
    )


async def _rate(address: str, ids: Sequence[str], seconds: float) -> float:
    """Commits per second of clients that change a node each."""
    done = 0

    async def client(node_id: str) -> None:
        nonlocal done
        options = [("grpc.use_local_subchannel_pool", 1)]  # each client has a connection of its own
        async with grpc.aio.insecure_channel(address, options=options) as channel:
            one = _Clients(channel)
            opened = await one.sessions.OpenSession(session_service_pb2.OpenSessionRequest(workspace=_WORKSPACE))
            of_session = {"workspace": _WORKSPACE, "session_id": opened.session.id}
            await asyncio.sleep(0)
            while time.perf_counter() < end:
                content = f"At {time.time_ns()} the boats were out."
                await one.nodes.UpdateNode(
                    node_service_pb2.UpdateNodeRequest(**of_session, node_id=node_id, content=content)
                )
                await one.sessions.CommitChanges(
                    session_service_pb2.CommitChangesRequest(**of_session, message="Change a node")
                )
                done += 1

    begun = time.perf_counter()
    end = begun + seconds
    async with asyncio.TaskGroup() as group:
        for node_id in ids:
            group.create_task(client(node_id))
    return done / (time.perf_counter() - begun)
