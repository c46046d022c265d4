"""Serves HTTP and MCP on a separate port beside gRPC; it starts and stops with the server and shares its log."""

import asyncio
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import uvicorn
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from memotree_storage.model.workspace import SERVICE_EMAIL
from starlette.types import ASGIApp

from memotree.environment import variable
from memotree.gateways.callers import LocalCaller
from memotree.gateways.git_http import GitOverHttp
from memotree.gateways.http import http_app
from memotree.gateways.http_authentication import metadata_of, principal_of
from memotree.gateways.http_connection import IDLE_SECONDS, Connections
from memotree.gateways.mcp import mcp_server
from memotree.gateways.mcp_sessions import McpSessions
from memotree.gateways.tool_definitions import chosen_tools
from memotree.gateways.tool_operations import catalogue_of
from memotree.server.authentication import Authentication
from memotree.server.calls import RunningCalls, most_begun, most_waiting
from memotree.server.certificates import Certificates
from memotree.server.listen import address, listening, listening_host
from memotree.server.readiness import Readiness
from memotree.settings import Settings
from memotree.tools.builtin.services import NAMES

LINGER_SECONDS: Final = 1.0
"""How long a stop waits for answers in transit; the calls themselves have ended by then."""


class HttpServer:
    """HTTP and MCP over the operations of this process.

    Args:
        settings: The address to listen on, and limits.
        operations: The object with the operations of each service, by the service's short name.
        calls: Counts the calls, and refuses new ones while the server stops.

    Errors: ``PublicAddressError`` and ``HostNotAddressError`` for the host.
    """

    def __init__(self, settings: Settings, operations: Mapping[str, object], calls: RunningCalls) -> None:
        self._host = listening_host(settings)
        self._port = settings.port_for_http
        self._certificates = Certificates.of(settings)
        self._most_calls = settings.max_concurrent_calls
        authentication = Authentication(settings, operations)
        caller = LocalCaller(operations, calls)
        catalogue = catalogue_of(operations, caller, settings.default_workspace)
        # `http_app` checks Host and Origin for every path, so the SDK's own check is not needed.
        offered = chosen_tools(settings.mcp_tools, NAMES)
        self._sessions = StreamableHTTPSessionManager(
            mcp_server(catalogue, offered, principal_of),
            session_idle_timeout=None,  # `McpSessions` ends those that are idle,
            max_sessions=None,  # and so many that one principal cannot take them all
            max_request_body_size=settings.max_message_bytes,
        )
        self._mcp = McpSessions(
            StreamableHTTPASGIApp(self._sessions),
            settings.mcp_max_sessions,
            settings.mcp_session_idle.total_seconds(),
        )
        self._app = http_app(
            catalogue,
            self._mcp,
            GitOverHttp(settings.data_folder, caller, calls, f"{settings.committer_email} {SERVICE_EMAIL}"),
            Readiness(operations, calls),
            authentication,
            calls,
            most_bytes=settings.max_message_bytes,
            metadata=metadata_of(settings),
        )
        self._server: _Uvicorn | None = None
        self._stopping = asyncio.Event()
        self._running: list[asyncio.Task[None]] = []

    @property
    def url(self) -> str:
        """The URL it listens on, once started."""
        return f"{'http' if self._certificates is None else 'https'}://{address(self._host, self._port)}"

    async def start(self) -> None:
        """Listen.

        Errors: ``PortTakenError``.
        """
        place = listening(self._host, self._port, variable("http_port"))
        self._port = place.getsockname()[1]
        context = None if self._certificates is None else self._certificates.for_http()
        self._server = _Uvicorn(
            self._app, self._most_calls, Connections(most_waiting(self._most_calls), context), place
        )
        self._running = [asyncio.create_task(self._keep_sessions()), asyncio.create_task(self._server.serve([]))]
        await self._server.listens.wait()

    async def stop(self) -> None:
        """Accept no more calls and end those that still run."""
        if self._server is None:
            return
        self._stopping.set()  # end the sessions first: their open streams would keep the connections open
        self._server.should_exit = True
        await asyncio.gather(*self._running)

    async def _keep_sessions(self) -> None:
        """Run the MCP sessions in one task, because their context must be exited in the task that entered it."""
        async with self._sessions.run():
            await self._stopping.wait()
            await self._mcp.close()


class _Uvicorn(uvicorn.Server):
    """A uvicorn server whose connections are accepted by us; it installs no signal handlers.

    Args:
        app: The application.
        most_calls: How many calls may run at once.
        connections: Accepts the connections.
        listener: The socket that listens.
    """

    def __init__(self, app: ASGIApp, most_calls: int, connections: Connections, listener: socket.socket) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            limit_concurrency=most_begun(most_calls),
            timeout_keep_alive=IDLE_SECONDS,
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=LINGER_SECONDS,  # type: ignore[arg-type] # uvicorn accepts fractions of a second
        )
        super().__init__(config)
        self.listens = asyncio.Event()
        self._connections = connections
        self._listener = listener
        self._accepting: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, then set the event."""
        await super().startup(sockets)
        given = {"config": self.config, "server_state": self.server_state, "app_state": self.lifespan.state}
        self._listener.listen(self.config.backlog)
        self._accepting = asyncio.create_task(self._connections.accept(self._listener, **given))
        self.listens.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and end those that there are."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
        self._listener.close()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: the process as a whole handles signals."""
        yield
