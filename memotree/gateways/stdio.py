"""MCP over standard input and output, for a program that starts ``memotree mcp`` as its child.

The stores belong to one server: to whoever holds the lock of the data folder. When nobody does, this process starts a
private server in itself, announced like any other, so that a second agent on the same data folder finds it. Otherwise
it calls the one that runs, over gRPC; when that goes away, the next call begins anew.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import structlog
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from mcp import stdio_server
from memotree_storage.embedded.lock import DataFolderInUseError, DataFolderUnusableError
from memotree_storage.errors import MemoTreeError

from memotree.client.contract import make_repeatable
from memotree.client.errors import MemoTreeClientError, UnavailableError
from memotree.client.transport import AioTransport, TransportSettings
from memotree.gateways.callers import Caller, LocalCaller, RemoteCaller, told
from memotree.gateways.catalogue import Catalogue
from memotree.gateways.http_server import log_libraries
from memotree.gateways.mcp import mcp_server
from memotree.server.announcement import read_announcement
from memotree.server.app import Compose, Operations, Server
from memotree.server.calls import RunningCalls
from memotree.server.logs import configure_logging
from memotree.settings import Settings
from memotree.v1 import maintenance_service_pb2 as maintenance

CALL_SECONDS: Final = 600.0
"""How long one call may take over gRPC; the client of MCP has a patience of its own and cancels."""

STREAM_SECONDS: Final = 24 * 3600.0
"""The same for a call that streams: an ingestion may take hours."""

TRIAL_SECONDS: Final = 5.0
"""How long a server that was announced has to answer before it counts as gone."""

START_SECONDS: Final = 60.0
"""How long another process may take from locking the data folder to announcing itself."""

log = structlog.get_logger("memotree.mcp")


@dataclass(frozen=True, slots=True)
class ServerChoice:
    """Where the server is to be found.

    Attributes:
        settings: Of the data folder, and of a private server.
        address: A server that was named; then no other is looked for, and none is started.
    """

    settings: Settings
    address: str = ""


class FoundServer:
    """A caller of whichever server is there; it starts one when none is.

    Args:
        place: Where to look.
        compose: Builds the operations of a private server.
    """

    def __init__(self, place: ServerChoice, compose: Compose) -> None:
        self._place = place
        self._compose = compose
        self._lock = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._caller: Caller | None = None

    async def call(self, method: MethodDescriptor, request: Message) -> Message:
        """The answer of an RPC that answers once; a server that has gone away is replaced."""
        repeatable = make_repeatable(request)
        caller = await self.find()
        try:
            return await caller.call(method, request)
        except UnavailableError as error:
            if error.reason:  # a server answered, and told so
                raise
            await self._lose(caller)
            if not repeatable:
                raise
        return await (await self.find()).call(method, request)

    async def stream(self, method: MethodDescriptor, request: Message) -> AsyncIterator[Message]:
        """The messages of an RPC that streams."""
        make_repeatable(request)
        caller = await self.find()
        try:
            async for message in caller.stream(method, request):
                yield message
        except UnavailableError as error:
            if not error.reason:
                await self._lose(caller)
            raise

    async def find(self) -> Caller:
        """The way to the server.

        Raises:
            MemoTreeClientError: None runs and none could be started.
        """
        async with self._lock:
            if self._caller is None:
                try:
                    self._caller = await self._reach()
                except MemoTreeError as error:
                    log.warning("no server", reason=error.reason, cause=error.message)
                    raise told(error) from error
            return self._caller

    async def close(self) -> None:
        """Give the connection up, and stop the private server if there is one."""
        async with self._lock:
            await self._stack.aclose()

    async def _lose(self, caller: Caller) -> None:
        async with self._lock:
            if self._caller is caller:
                self._caller = None
                await self._stack.aclose()
                self._stack = AsyncExitStack()

    async def _reach(self) -> Caller:
        """The lock of the data folder decides who is the server; an announcement may be of one that was killed."""
        if self._place.address:
            return self._connect(self._place.address)
        deadline = asyncio.get_running_loop().time() + START_SECONDS
        while True:
            try:
                return await self._start()
            except (DataFolderInUseError, DataFolderUnusableError) as error:
                found = await self._announced()
                if found is not None:
                    return self._connect(found)
                over = asyncio.get_running_loop().time() > deadline
                if over or isinstance(error, DataFolderUnusableError):
                    raise
            await asyncio.sleep(0.1)  # the other one starts at this moment, or stops

    async def _announced(self) -> str | None:
        """The address that the data folder names, if a server answers there."""
        announced = read_announcement(self._place.settings.data_folder)
        if announced is None:
            return None
        link = AioTransport(announced.address, TransportSettings(timeout=TRIAL_SECONDS, attempts=1))
        try:
            await link.call(maintenance.GetStatusRequest(), maintenance.GetStatusResponse)
        except MemoTreeClientError:
            return None
        finally:
            await link.close()
        return announced.address

    def _connect(self, address: str) -> Caller:
        settings = TransportSettings(
            timeout=CALL_SECONDS, stream_timeout=STREAM_SECONDS, attempts=3, on_warning=_ignore
        )
        link = AioTransport(address, settings)
        self._stack.push_async_callback(link.close)
        log.info("connected", address=address)
        return RemoteCaller(link)

    async def _start(self) -> Caller:
        """A private server in this process; it listens on any free port, so that it is in nobody's way."""
        settings = self._place.settings.model_copy(update={"port": 0, "http_enabled": False})
        stack, calls = AsyncExitStack(), RunningCalls()
        try:
            operations: Operations = await stack.enter_async_context(self._compose(settings))
            await stack.enter_async_context(Server(settings, operations))
        except BaseException:
            await stack.aclose()
            raise
        stack.push_async_callback(calls.wait_idle)  # what was cancelled still cleans up
        self._stack.push_async_callback(stack.aclose)
        return LocalCaller(operations, calls)


def _ignore(_warning: str) -> None:
    """Warnings are part of the result; nobody reads a log here."""


async def serve_stdio(place: ServerChoice, workspace: str, compose: Compose) -> None:
    """Serve MCP until standard input ends or a signal asks to stop.

    Args:
        place: Where the server is to be found.
        workspace: The workspace that stands when a call names none.
        compose: Builds the operations of a private server.
    """
    configure_logging(place.settings.log_level, place.settings.log_format)
    log_libraries()
    found = FoundServer(place, compose)
    server = mcp_server(Catalogue(found, workspace))
    with _signalled() as signalled:
        async with stdio_server() as (incoming, outgoing):
            starting = asyncio.create_task(_begin(found))  # while the client introduces itself
            serving = asyncio.create_task(server.run(incoming, outgoing, server.create_initialization_options()))
            await asyncio.wait({serving, signalled}, return_when=asyncio.FIRST_COMPLETED)
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await found.close()
            if signalled.done():  # the thread that reads standard input cannot be woken, and has nothing to lose
                os._exit(0)
            await serving


async def _begin(found: FoundServer) -> None:
    """Reach the server before the first call wants it; that call tells what is wrong."""
    with suppress(MemoTreeClientError):
        await found.find()


@contextmanager
def _signalled() -> Iterator["asyncio.Future[None]"]:
    """A future that is done when a signal asks to stop."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[None] = loop.create_future()

    def stop() -> None:
        if not arrived.done():
            arrived.set_result(None)

    names = (signal.SIGTERM, signal.SIGINT)
    for name in names:
        loop.add_signal_handler(name, stop)
    try:
        yield arrived
    finally:
        for name in names:
            loop.remove_signal_handler(name)
