"""The server is killed under load: every call that was answered has its record, once."""

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path

import grpc
import pytest
from campaigns import points
from crash.service import Service, running

from memotree.client import AsyncClient
from memotree.v1 import node_service_pb2 as pb

pytestmark = pytest.mark.requirement("TOOL-12", "STORE-1")

CLIENTS = 16
FAULTS = ("audit.kept:200", "audit.moved:2", "audit.moved:3", "stage.recorded:150")


async def _write(client: AsyncClient, request: pb.CreateNodeRequest, answered: list[str], number: int) -> None:
    """Create one node after the other until the server or its PostgreSQL is gone."""
    for step in range(100_000):
        request.request_id = f"client-{number}-step-{step}"
        try:
            await client.raw.nodes.CreateNode(request)
        except grpc.aio.AioRpcError:
            return
        answered.append(request.request_id)


async def _load(service: Service, answered: list[str]) -> None:
    async with AsyncClient(service.address, attempts=1) as client:
        await client.create_workspace("notes", exist_ok=True)
        session = await client.workspace("notes").session(agent="load")
        archive = (await session.create_archive("notes")).id
        async with asyncio.TaskGroup() as running:
            for number in range(CLIENTS):
                request = pb.CreateNodeRequest(
                    workspace="notes", session_id=session.id, archive_id=archive, title="Note", content=f"By {number}."
                )
                running.create_task(_write(client, request, answered, number))


async def _check_records(service: Service, answered: list[str]) -> None:
    async with AsyncClient(service.address, timeout=300, attempts=100) as client:  # PostgreSQL may be starting
        recorded = Counter([each.request_id async for each in client.audit_records(method="CreateNode", code="OK")])
    assert not set(answered) - set(recorded)
    assert set(recorded.values()) == {1}


@pytest.mark.parametrize("fault", points("audit", FAULTS, hardest="audit.moved:2"))
async def test_every_answered_call_has_its_record_after_a_kill(tmp_path: Path, fault: str) -> None:
    data, log = tmp_path / "data", tmp_path / "server.log"
    answered: list[str] = []
    async with running(data, log, fault=fault) as service:
        await _load(service, answered)
        await service.has_killed_itself()
    assert answered
    async with running(data, log) as service:
        await _check_records(service, answered)


async def test_records_wait_while_postgresql_is_away_and_none_is_lost(tmp_path: Path) -> None:
    answered: list[str] = []
    async with running(tmp_path / "data", tmp_path / "server.log") as service:
        loading = asyncio.create_task(_load(service, answered))
        while len(answered) < 3 * CLIENTS:
            await asyncio.sleep(0)
            assert not loading.done()
        os.kill(service.child("postgres"), signal.SIGKILL)
        await loading
        await _check_records(service, answered)
