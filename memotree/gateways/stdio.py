"""MCP over standard input and output, for a program that starts ``memotree mcp`` as its child process.

Only one server may use the stores: the one that holds the lock of the data folder. If no server holds it, this process
runs a private server itself and announces it like any other, so that a second agent on the same data folder finds it.
Otherwise it calls the running server over gRPC; when that server stops, the next call looks for a server again.
"""

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

import structlog
from anyio import BrokenResourceError, CancelScope
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from mcp import stdio_server
from memotree_storage.embedded.lock import DataFolderInUseError, DataFolderUnusableError
from memotree_storage.errors import MemoTreeError

from memotree.client.contract import make_repeatable
from memotree.client.errors import MemoTreeClientError, UnavailableError
from memotree.client.keys import api_key, credentials
from memotree.client.transport import AioTransport, TransportSettings
from memotree.gateways.callers import Caller, LocalCaller, RemoteCaller, told
from memotree.gateways.catalogue import Catalogue
from memotree.gateways.mcp import mcp_server
from memotree.gateways.tool_definitions import chosen_tools
from memotree.gateways.tool_settings import admission_of
from memotree.identity.key_file import local_key
from memotree.server.announcement import read_announcement
from memotree.server.authentication import Authentication
from memotree.server.calls import RunningCalls
from memotree.server.logs import configure_logging
from memotree.settings import Settings
from memotree.tools.builtin.services import NAMES
from memotree.v1 import maintenance_service_pb2 as maintenance

CALL_SECONDS: Final = 600.0
"""How long one call may take over gRPC; the MCP client has its own timeout and cancels earlier."""

STREAM_SECONDS: Final = 24 * 3600.0
"""How long a streaming call may take over gRPC: an ingestion may take hours."""

TRIAL_SECONDS: Final = 5.0
"""How long an announced server may take to answer before it counts as stopped."""

START_SECONDS: Final = 60.0
"""How long another process may take from locking the data folder to announcing itself."""

_GONE: Final = "the client has closed its end"

if TYPE_CHECKING:
    from memotree.server.app import Compose, Operations

log = structlog.get_logger("memotree.mcp")


@dataclass(frozen=True, slots=True)
class ServerChoice:
    """Which server to use.

    Attributes:
        settings: They name the data folder and configure a private server.
        address: The address of a given server; then no other is looked for, and none is started.
    """

    settings: Settings
    address: str = ""


class FoundServer:
    """Calls the running server, or starts a private one if none runs.

    Args:
        place: Which server to use.
        compose: Builds the operations of a private server.
    """

    def __init__(self, place: ServerChoice, compose: "Compose") -> None:
        self._place = place
        self._compose = compose
        self._lock = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._caller: Caller | None = None

    async def call(self, method: MethodDescriptor, request: Message) -> Message:
        """The response of a unary RPC; if the server has stopped, another one is looked for."""
        repeatable = make_repeatable(request)
        caller = await self.find()
        try:
            return await caller.call(method, request)
        except UnavailableError as error:
            if error.reason:  # the server itself answered UNAVAILABLE
                raise
            await self._lose(caller)
            if not repeatable:
                raise
        return await (await self.find()).call(method, request)

    async def stream(self, method: MethodDescriptor, request: Message) -> AsyncIterator[Message]:
        """The messages of a streaming RPC."""
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
        """The caller of the server; looks for one, or starts one, if needed.

        Raises:
            MemoTreeClientError: No server runs and none could be started.
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
        """Close the connection, and stop the private server if there is one."""
        async with self._lock:
            await self._stack.aclose()

    async def _lose(self, caller: Caller) -> None:
        async with self._lock:
            if self._caller is caller:
                self._caller = None
                await self._stack.aclose()
                self._stack = AsyncExitStack()

    async def _reach(self) -> Caller:
        """Connect to the running server, or start one.

        A server that answers at its announced address is used at once, without loading what only a server needs. An
        announcement alone may be from a server that was killed; then the lock of the data folder decides.
        """
        if self._place.address:
            return self._connect(self._place.address)
        running = await self._announced()
        if running is not None:
            return self._connect(running)
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
            await asyncio.sleep(0.1)  # the other server is just starting or stopping

    async def _announced(self) -> str | None:
        """The address announced in the data folder, if a server answers there."""
        announced = read_announcement(self._place.settings.data_folder)
        if announced is None:
            return None
        transport = AioTransport(
            announced.address, TransportSettings(timeout=TRIAL_SECONDS, attempts=1, key=self._key())
        )
        try:
            await transport.call(maintenance.GetStatusRequest(), maintenance.GetStatusResponse)
        except MemoTreeClientError:
            return None
        finally:
            await transport.close()
        return announced.address

    def _key(self) -> str:
        """The API key: the one in the data folder is for its own server alone."""
        return api_key(None) if self._place.address else local_key(self._place.settings.data_folder)

    def _connect(self, address: str) -> Caller:
        settings = TransportSettings(
            timeout=CALL_SECONDS,
            stream_timeout=STREAM_SECONDS,
            attempts=3,
            on_warning=_ignore,
            contract_names=True,
            key=self._key(),
            channel=credentials(None) if self._place.address else None,
        )
        transport = AioTransport(address, settings)
        self._stack.push_async_callback(transport.close)
        log.info("connected", address=address)
        return RemoteCaller(transport)

    async def _start(self) -> Caller:
        """Start a private server in this process, on any free port so that it conflicts with no other program."""
        from memotree.server.app import Server  # noqa: PLC0415 - who only connects to a server needs none

        settings = self._place.settings.model_copy(update={"port": 0, "http_enabled": False})
        stack, calls = AsyncExitStack(), RunningCalls()
        try:
            operations: Operations = await stack.enter_async_context(self._compose(settings))
            await stack.enter_async_context(Server(settings, operations))
        except BaseException:
            await stack.aclose()
            raise
        stack.push_async_callback(calls.wait_idle)  # cancelled calls still clean up
        self._stack.push_async_callback(stack.aclose)
        who = None
        if settings.authentication != "none":  # whoever started this program may read the data folder, and so its key
            who = await Authentication(settings, operations).principal([f"Bearer {self._key()}"])
        return LocalCaller(operations, calls, who=who)


def _ignore(_warning: str) -> None:
    """Ignore a warning: warnings are part of the result, and nobody reads a log here."""


@asynccontextmanager
async def compose_when_needed(settings: Settings) -> "AsyncIterator[Operations]":
    """The operations of a private server; only who starts one imports what that needs, in a thread."""
    module = await asyncio.to_thread(import_module, "memotree.server.starting")
    async with module.Start().compose(settings) as operations:
        yield operations


async def serve_stdio(place: ServerChoice, compose: "Compose" = compose_when_needed) -> None:
    """Serve MCP until standard input ends or a signal arrives.

    Args:
        place: Which server to use; its settings have the default workspace and the tools that are offered.
        compose: Builds the operations of a private server.

    Raises:
        UnknownToolsError: The settings name a tool that does not exist.
    """
    if not gc.isenabled():  # the command turned it off; what was imported stays until the end
        gc.freeze()
        gc.enable()
    tools = chosen_tools(place.settings.mcp_tools, NAMES)
    configure_logging(place.settings.log_level, place.settings.log_format)
    found = FoundServer(place, compose)
    catalogue = Catalogue(found, place.settings.default_workspace, admission=admission_of(place.settings))
    server = mcp_server(catalogue, tools)
    with _signalled() as signalled:
        try:
            async with stdio_server() as (incoming, outgoing):
                named = catalogue if tools.with_functions else None
                starting = asyncio.create_task(_begin(found, named))  # meanwhile the client initializes the connection
                serving = asyncio.create_task(server.run(incoming, outgoing, server.create_initialization_options()))
                ended = await _first({serving, signalled})
                with CancelScope(shield=True):
                    starting.cancel()
                    await asyncio.gather(starting, return_exceptions=True)
                    await found.close()
                if serving not in ended:  # the thread that reads standard input cannot be interrupted, has no state
                    os._exit(0)
                await serving
        except* (OSError, BrokenResourceError):
            log.info(_GONE)


async def _first(tasks: set["asyncio.Future[None]"]) -> set["asyncio.Future[None]"]:
    """The tasks that have ended when one has; none if the transport fails earlier, which cancels its task group."""
    try:
        return (await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED))[0]
    except asyncio.CancelledError:
        log.info(_GONE)
        return set()


async def _begin(found: FoundServer, catalogue: Catalogue | None) -> None:
    """Reach the server before the first call needs it; if that fails, the first call reports the error.

    Args:
        found: The server.
        catalogue: Asks the server for its functions; ``None`` if none is offered.
    """
    with suppress(MemoTreeClientError):
        await found.find()
        if catalogue is not None:
            await catalogue.functions()


@contextmanager
def _signalled() -> Iterator["asyncio.Future[None]"]:
    """A future that is done when SIGTERM or SIGINT arrives."""
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
