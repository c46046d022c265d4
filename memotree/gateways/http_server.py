"""Serves HTTP and MCP on a separate port beside gRPC; it starts and stops with the server and shares its log."""

import asyncio
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final

import uvicorn
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.types import ASGIApp

from memotree.environment import variable
from memotree.gateways.callers import LocalCaller
from memotree.gateways.catalogue import Catalogue
from memotree.gateways.git_http import GitOverHttp
from memotree.gateways.http import http_app
from memotree.gateways.http_connection import HttpConnection
from memotree.gateways.mcp import mcp_server
from memotree.gateways.tool_definitions import chosen_tools
from memotree.server.calls import RunningCalls, most_begun, most_waiting
from memotree.server.half_open import REQUEST_SECONDS
from memotree.server.listen import address, listening, loopback
from memotree.server.readiness import Readiness
from memotree.server.unread import ANSWER_SECONDS, PATIENCE_SECONDS
from memotree.server.waiting import WaitingCalls
from memotree.settings import Settings

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
        self._host = loopback(settings.host)
        self._port = settings.port_for_http
        self._most_calls = settings.max_concurrent_calls
        caller = LocalCaller(operations, calls)
        catalogue = Catalogue(caller, settings.default_workspace)
        # `http_app` checks Host and Origin for every path, so the SDK's own check is not needed.
        self._sessions = StreamableHTTPSessionManager(
            mcp_server(catalogue, chosen_tools(settings.mcp_tools)), max_request_body_size=settings.max_message_bytes
        )
        self._app = http_app(
            catalogue,
            StreamableHTTPASGIApp(self._sessions),
            GitOverHttp(settings.data_folder, caller, calls),
            Readiness(operations, calls),
            most_bytes=settings.max_message_bytes,
        )
        self._server: _Uvicorn | None = None
        self._stopping = asyncio.Event()
        self._running: list[asyncio.Task[None]] = []

    @property
    def url(self) -> str:
        """The URL it listens on, once started."""
        return f"http://{address(self._host, self._port)}"

    async def start(self) -> None:
        """Listen.

        Errors: ``PortTakenError``.
        """
        place = listening(self._host, self._port, variable("http_port"))
        self._port = place.getsockname()[1]
        self._server = _Uvicorn(self._app, self._most_calls)
        self._running = [asyncio.create_task(self._keep_sessions()), asyncio.create_task(self._server.serve([place]))]
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


class _Uvicorn(uvicorn.Server):
    """A uvicorn server that installs no signal handlers and sets an event once it listens."""

    def __init__(self, app: ASGIApp, most_calls: int) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            limit_concurrency=most_begun(most_calls),
            http=partial(  # type: ignore[arg-type]
                HttpConnection,
                WaitingCalls(most_waiting(most_calls), REQUEST_SECONDS),
                WaitingCalls(most_waiting(most_calls), ANSWER_SECONDS, PATIENCE_SECONDS),
            ),
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=LINGER_SECONDS,  # type: ignore[arg-type] # uvicorn accepts fractions of a second
        )
        super().__init__(config)
        self.listens = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then set the event."""
        await super().startup(sockets)
        self.listens.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: the process as a whole handles signals."""
        yield
