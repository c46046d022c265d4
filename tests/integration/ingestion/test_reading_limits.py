"""Documents that take minutes to read hold nobody up, and a call that is cancelled stops what it has begun."""

import asyncio
from pathlib import Path

import grpc
import pytest
from crash.service import DEADLINE, Service, running
from integration.calls import Calls
from nasty_documents import pdf_bomb

from memotree.v1 import forest_service_pb2 as forest_pb
from memotree.v1.forest_service_pb2_grpc import ForestServiceStub

pytestmark = pytest.mark.requirement("STORE-8", "CANVAS-8")


def readers(service: Service) -> int:
    """How many processes of a server read documents."""
    return sum("reading_process" in command for command in service.children().values())


async def until_readers(service: Service, count: int) -> None:
    async with asyncio.timeout(DEADLINE):
        while readers(service) != count:  # noqa: ASYNC110 - other processes decide
            await asyncio.sleep(0.02)


async def test_ingestions_of_a_bomb_hold_up_neither_commits_nor_the_end_of_the_server(tmp_path: Path) -> None:
    order = forest_pb.IngestDocumentRequest(workspace="one", name="bomb.pdf", file=pdf_bomb(3000, 20_000))
    settings = {"MEMOTREE_STOP_GRACE": "1"}
    async with (
        running(tmp_path / "data", tmp_path / "server.log", environment=settings) as service,
        service.channel() as channel,
    ):
        await Calls(channel, "one").begin()
        ingest = ForestServiceStub(channel).IngestDocument
        streams = [ingest(order) for _ in range(8)]
        await until_readers(service, 2)
        await asyncio.wait_for(Calls(channel, "two").begin(), DEADLINE)  # commits
        for stream in streams:
            stream.cancel()
        await until_readers(service, 0)
        waiting = [asyncio.create_task(_ended(ingest(order))) for _ in range(8)]
        await until_readers(service, 2)
        assert await service.stop() == 0
        assert set(await asyncio.gather(*waiting)) <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}


async def _ended(stream: "grpc.aio.UnaryStreamCall[forest_pb.IngestDocumentRequest, object]") -> grpc.StatusCode:
    return await stream.code()
