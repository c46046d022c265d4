"""A real server on loopback over operations that a test scripts."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import structlog
from grpc import aio  # type: ignore[import-untyped]  # grpcio ships no types
from pydantic import ByteSize

from memotree.server.app import Server
from memotree.settings import Settings
from memotree.v1 import maintenance_service_pb2 as maintenance
from memotree.v1 import session_service_pb2 as sessions


class Held:
    """Calls that wait until the test lets them proceed."""

    def __init__(self) -> None:
        self.begun = asyncio.Semaphore(0)
        self.proceed = asyncio.Event()
        self.ended = asyncio.Event()

    async def answer(self, _request: object) -> None:
        self.begun.release()
        try:
            await self.proceed.wait()
        finally:
            self.ended.set()


class ScriptedSessions:
    """Answers two RPCs as the test says; the others are missing."""

    def __init__(self) -> None:
        self.answer: Callable[[Any], Awaitable[Any]] | None = None
        self.requests: list[sessions.GetSessionRequest] = []

    async def get_session(self, request: sessions.GetSessionRequest) -> sessions.GetSessionResponse:
        self.requests.append(request)
        if self.answer is not None:
            result = await self.answer(request)
            if result is not None:
                return result  # type: ignore[no-any-return]  # whatever the test wants
        return sessions.GetSessionResponse(session=sessions.Session(id=request.session_id))

    def raises(self, error: BaseException) -> None:
        async def answer(_request: object) -> None:
            raise error

        self.answer = answer

    def holds(self) -> Held:
        """Let each call wait."""
        held = Held()
        self.answer = held.answer
        return held


class ScriptedMaintenance:
    """Streams two steps of progress, then the answer that the test has set."""

    def __init__(self) -> None:
        self.then: Callable[[], Awaitable[None]] | None = None
        self.closed = asyncio.Event()

    async def verify_workspace(
        self, request: maintenance.VerifyWorkspaceRequest
    ) -> AsyncIterator[maintenance.VerifyWorkspaceResponse]:
        try:
            for done in (1, 2):
                progress = maintenance.Progress(step=request.workspace, done=done, total=2)
                yield maintenance.VerifyWorkspaceResponse(progress=progress)
            if self.then is not None:
                await self.then()
        finally:
            self.closed.set()


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the settings of the developer's shell and the files of the working folder from tests."""
    for name in [name for name in os.environ if name.startswith("MEMOTREE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def log_lines() -> Iterator[list[Any]]:
    """The log of the server."""
    with structlog.testing.capture_logs() as lines:
        yield lines


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        data_folder=tmp_path / "data", port=0, max_message_bytes=ByteSize(100_000), max_content_bytes=ByteSize(50_000)
    )


@pytest.fixture
def scripted_sessions() -> ScriptedSessions:
    return ScriptedSessions()


@pytest.fixture
def scripted_maintenance() -> ScriptedMaintenance:
    return ScriptedMaintenance()


@pytest_asyncio.fixture
async def server(
    settings: Settings, scripted_sessions: ScriptedSessions, scripted_maintenance: ScriptedMaintenance
) -> AsyncIterator[Server]:
    operations = {"SessionService": scripted_sessions, "MaintenanceService": scripted_maintenance}
    server = Server(settings, operations, partial=True)
    await server.start()
    yield server
    await server.stop(5)


@pytest_asyncio.fixture
async def channel(server: Server) -> AsyncIterator[aio.Channel]:
    async with aio.insecure_channel(server.address) as opened:
        yield opened


async def open_channel(stack: AsyncExitStack, address: str, *options: tuple[str, int]) -> Any:
    """A channel with a connection of its own."""
    own = (("grpc.use_local_subchannel_pool", 1), *options)
    channel = await stack.enter_async_context(aio.insecure_channel(address, options=own))
    await asyncio.wait_for(channel.channel_ready(), 60)
    return channel


@pytest_asyncio.fixture
async def connect(server: Server) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
    """Opens channels to the server, each with a connection of its own."""
    async with AsyncExitStack() as stack:
        yield partial(open_channel, stack, server.address)


@pytest.fixture
def get_session(channel: aio.Channel) -> Callable[..., Any]:
    """Calls GetSession; the server's answer is scripted."""
    call: Callable[..., Any] = channel.unary_unary(
        "/memotree.v1.SessionService/GetSession",
        request_serializer=sessions.GetSessionRequest.SerializeToString,
        response_deserializer=sessions.GetSessionResponse.FromString,
    )
    return call


@pytest.fixture
def verify_workspace(channel: aio.Channel) -> Callable[..., Any]:
    """Calls VerifyWorkspace, which streams."""
    call: Callable[..., Any] = channel.unary_stream(
        "/memotree.v1.MaintenanceService/VerifyWorkspace",
        request_serializer=maintenance.VerifyWorkspaceRequest.SerializeToString,
        response_deserializer=maintenance.VerifyWorkspaceResponse.FromString,
    )
    return call
