"""The gRPC server: it listens, answers calls with the operations it is given, and stops without losing a call.

Stores and operations are built in ``compose`` and injected; this module does not depend on them.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from importlib.metadata import version
from typing import Any, Final, Protocol, Self, runtime_checkable

import grpc
import structlog
import uvloop
from grpc import aio
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from memotree.environment import variable
from memotree.request.observed_calls import observers_of
from memotree.server.announcement import Announcement, announce, withdraw
from memotree.server.authentication import Authentication
from memotree.server.binding import check, contract, handlers
from memotree.server.calls import RunningCalls, most_waiting
from memotree.server.certificates import Certificates
from memotree.server.connections import IdleConnections, close_connection
from memotree.server.half_open import REQUEST_SECONDS
from memotree.server.health import Health
from memotree.server.interceptors import CallInterceptor
from memotree.server.listen import PortTakenError, address, listening_host, refuse_taken
from memotree.server.logs import configure_logging
from memotree.server.readiness import Readiness
from memotree.server.request_reading import GRPC_LIMIT_FACTOR, RequestReader
from memotree.server.unread import LeftAnswers, UnreadAnswers
from memotree.server.waiting import WaitingCalls
from memotree.settings import Settings

Operations = Mapping[str, object]
"""The object with the operations of each service, by the service's short name (``"NodeService"``)."""


@runtime_checkable
class EndsStreams(Protocol):
    """Operations with streams that do not end while the server runs."""

    def stopping(self) -> None:
        """End these streams, because the server begins to stop and would wait for them."""


class SideServer(Protocol):
    """Another server for the same operations, such as HTTP, which starts and stops with the gRPC server."""

    @property
    def url(self) -> str:
        """The URL it listens on, once started."""
        ...

    async def start(self) -> None:
        """Listen.

        Errors: ``PortTakenError``.
        """
        ...

    async def stop(self) -> None:
        """Accept no more calls and end those that still run; calls that could finish in time have done so already."""
        ...


MakeSideServer = Callable[[Settings, Operations, RunningCalls], SideServer]
"""Creates a `SideServer` over operations; its calls are counted, so that a stop waits for them."""

Compose = Callable[[Settings], AbstractAsyncContextManager[Operations]]
"""Builds the stores and the operations on entry, and closes the stores on exit, after the last call."""

LINGER_SECONDS: Final = 1.0
"""How long a stop waits, after the last call to our services, for answers in transit and for reflection streams."""

_SHARE_OF_A_CONNECTION: Final = 4
"""One connection may have this part of all calls that run at once; further calls wait in its client.

A call counts as soon as it begins. Calls that are begun over many connections are limited while they are half-open.
"""

MOST_CONNECTIONS: Final = 1_024
"""How many connections of gRPC there may be on which no call runs."""

METADATA_BYTES: Final = 16 * 1024
"""The most bytes of metadata that a call may have: twice the longest proof that is looked at.

gRPC's own defaults refuse at random between 8 KiB and 16 KiB, so they are set to one size.
"""

_LOCAL: Final = "127.0.0.1"

REFLECTION_V1: Final = "grpc.reflection.v1.ServerReflection"
"""The newer name of the reflection service; it has the same messages as v1alpha."""

log = structlog.get_logger("memotree.server")


class Server:
    """One listening server; it belongs to the event loop in which it is started.

    Args:
        settings: The address to listen on, and limits.
        operations: The object with the operations of each service, by short name; a service that is left out
            answers UNIMPLEMENTED.
        on_stop: Called one after the other when the last call has ended: first what must still finish (a commit that
            was shielded from cancellation), then what must be closed. If one fails, that is logged and the others
            still run.
        partial: Whether operations may be missing; their calls answer UNIMPLEMENTED. Otherwise this is refused.
        side_server: Creates another server (such as HTTP) that starts and stops with this one.

    Errors: ``OperationsMismatchError``; ``PublicAddressError`` and ``HostNotAddressError`` for the host.
    """

    def __init__(
        self,
        settings: Settings,
        operations: Operations,
        *,
        on_stop: Sequence[Callable[[], Awaitable[None]]] = (),
        partial: bool = False,
        side_server: MakeSideServer | None = None,
    ) -> None:
        check(operations, partial=partial)
        self._settings = settings
        self._operations = operations
        self._on_stop = tuple(on_stop)
        self._host = listening_host(settings)
        self._certificates = Certificates.of(settings)
        self._port = self._local_port = self._certificate_port = 0
        self._left = LeftAnswers(lambda peer: close_connection(self._ports, peer))
        self._unread = UnreadAnswers(self._left)
        self._connections = IdleConnections(lambda: self._ports, MOST_CONNECTIONS)
        self._watching: asyncio.Task[None] | None = None
        self._calls = RunningCalls(settings.max_concurrent_calls, self._unread.make_room)
        half_open = WaitingCalls(most_waiting(settings.max_concurrent_calls), REQUEST_SECONDS)
        self._authentication = Authentication(settings, operations)
        self._reader = RequestReader(settings.max_message_bytes, half_open, UnreadAnswers(self._left))
        self._hurry = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None
        self._grpc: Any = None
        self._side_server = side_server(settings, operations, self._calls) if side_server is not None else None
        self.health = Health(Readiness(operations, self._calls).ready)

    @property
    def address(self) -> str:
        """The gRPC target that the server listens on."""
        return address(self._host, self._port)

    @property
    def certificate_address(self) -> str:
        """The gRPC target for clients with certificates; empty if there is none of its own."""
        return address(self._host, self._certificate_port) if self._certificate_port else ""

    @property
    def _ports(self) -> frozenset[int]:
        return frozenset({self._port, self._local_port, self._certificate_port})

    @property
    def url(self) -> str:
        """The URL of the other server (such as HTTP); empty without one."""
        return self._side_server.url if self._side_server is not None else ""

    @property
    def services(self) -> tuple[str, ...]:
        """The full names of the services that have operations."""
        return tuple(contract()[name].full_name for name in self._operations)

    async def start(self) -> None:
        """Listen, then announce the server in the data folder and report SERVING in the health service.

        Errors: ``PortTakenError``.
        """
        server = self._build()
        self._open_ports(server)
        await server.start()
        try:
            if self._side_server is not None:
                await self._side_server.start()
            announced = Announcement(self._local_address, os.getpid(), version("memotree"), self.url)
            announce(self._settings.data_folder, announced)
        except BaseException:
            await self._stop_side_server()
            await server.stop(None)
            raise
        self._grpc = server
        self._watching = asyncio.create_task(self._connections.watch())
        self.health.set_serving(self.services)
        log.info(
            "serving",
            address=self.address,
            services=len(self.services),
            **({"with_certificates": self.certificate_address} if self.certificate_address else {}),
            **({"url": self.url} if self.url else {}),
        )

    def _open_ports(self, server: Any) -> None:
        """Open the ports; with TLS, also one on loopback, where commands and hooks need no TLS.

        Errors: ``PortTakenError``.
        """
        settings = self._settings
        if self._certificates is None:
            self._port = self._opened(settings.port, "port", server.add_insecure_port)
            return
        self._local_port = server.add_insecure_port(address(_LOCAL, 0))
        required = settings.tls_client_ca is not None and settings.tls_client_required
        plain = self._certificates.for_grpc(of_clients=required)
        self._port = self._opened(settings.port, "port", lambda place: server.add_secure_port(place, plain))
        if settings.port_for_certificates is not None:
            mutual = self._certificates.for_grpc(of_clients=True)
            self._certificate_port = self._opened(
                settings.port_for_certificates, "tls_client_port", lambda place: server.add_secure_port(place, mutual)
            )

    def _opened(self, port: int, setting: str, add: Callable[[str], int]) -> int:
        refuse_taken(self._host, port, variable(setting))
        try:
            return int(add(address(self._host, port)))
        except RuntimeError:  # another program took the port after refuse_taken
            raise PortTakenError(self._host, port, "gRPC could not bind it", variable(setting)) from None

    @property
    def _local_address(self) -> str:
        """The gRPC target for programs on this machine."""
        return address(_LOCAL, self._local_port) if self._local_port else self.address

    async def stop(self, grace: float) -> None:
        """Stop: report NOT_SERVING, refuse new calls, let running ones finish, then call ``on_stop``.

        It may be called again; a second call with ``grace`` 0 ends the grace period of the first.

        Args:
            grace: Seconds to wait for running calls before they are cancelled.
        """
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(grace))
        elif grace <= 0:
            self._hurry.set()
        await asyncio.shield(self._stopping)

    async def __aenter__(self) -> Self:
        """Start the server."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop with the grace period of the settings."""
        await self.stop(self._settings.stop_grace.total_seconds())

    def _build(self) -> Any:
        server = aio.server(
            interceptors=(
                CallInterceptor(
                    self._calls,
                    self._reader,
                    self._unread,
                    self._left,
                    self._authentication,
                    observers_of(self._operations),
                    self._connections,
                ),
            ),
            options=_channel_options(self._settings),
        )
        absent = object()  # has no operations, so each RPC answers UNIMPLEMENTED with a message
        for name, service in contract().items():
            methods = handlers(service, self._operations.get(name, absent))
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, methods),))
        health_pb2_grpc.add_HealthServicer_to_server(self.health, server)
        names = (*self.services, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        server.add_generic_rpc_handlers((_reflection_v1(names),))
        return server

    async def _stop(self, grace: float) -> None:
        log.info("stopping", running=self._calls.count)
        self.health.stop()
        self._calls.close()
        for subject in self._operations.values():
            if isinstance(subject, EndsStreams):
                subject.stopping()
        if self._watching is not None:
            self._watching.cancel()
        if self._grpc is not None:
            await self._drain(grace)
            withdraw(self._settings.data_folder, os.getpid())
        for callback in self._on_stop:
            try:
                await callback()
            except Exception:
                log.exception("a part of the server failed to stop")
        log.info("stopped")

    async def _drain(self, grace: float) -> None:
        """Wait until all calls have ended; calls that still run after the grace period are cancelled.

        gRPC's own stop comes last: from then on it answers a new call with a bare CANCELLED, while before that our
        own answer says that nothing was begun and that the call may be sent again.
        """
        idle = asyncio.create_task(self._calls.wait_idle())
        hurry = asyncio.create_task(self._hurry.wait())
        try:
            await asyncio.wait({idle, hurry}, timeout=max(grace, 0), return_when=asyncio.FIRST_COMPLETED)
            await self._stop_side_server()
            await self._grpc.stop(LINGER_SECONDS if self._calls.count == 0 else None)
            await self._calls.wait_idle()  # a cancelled call still runs its clean-up
        finally:
            idle.cancel()
            hurry.cancel()

    async def _stop_side_server(self) -> None:
        """Stop the other server; a failure is logged and does not keep this server from stopping."""
        if self._side_server is not None:
            try:
                await self._side_server.stop()
            except Exception:
                log.exception("the other server failed to stop")


def _channel_options(settings: Settings) -> list[tuple[str, int]]:
    """The gRPC options for limits and keepalive of every connection; times are in milliseconds."""
    return [
        ("grpc.so_reuseport", 0),  # a second server must fail to bind instead of sharing our calls
        ("grpc.max_receive_message_length", int(settings.max_message_bytes * GRPC_LIMIT_FACTOR)),
        ("grpc.max_send_message_length", -1),  # the client decides what it accepts
        ("grpc.max_metadata_size", METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", METADATA_BYTES),
        ("grpc.max_concurrent_streams", max(1, settings.max_concurrent_calls // _SHARE_OF_A_CONNECTION)),
        ("grpc.server_handshake_timeout_ms", 10_000),  # with the default of 120 s, silent connections use up all files
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ]


def _reflection_v1(names: Sequence[str]) -> Any:
    """The reflection service under its newer name, for tools that know only that one."""
    messages = reflection._reflection_pb2  # noqa: SLF001 - the module has no public name for its messages
    servicer = reflection.aio.ReflectionServicer(names)
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=messages.ServerReflectionRequest.FromString,
        response_serializer=messages.ServerReflectionResponse.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(REFLECTION_V1, {"ServerReflectionInfo": handler})


def serve(
    settings: Settings,
    compose: Compose,
    on_ready: Callable[[Server], None] | None = None,
    side_server: MakeSideServer | None = None,
) -> None:
    """Run a server until SIGTERM, SIGINT or SIGHUP; a second signal cancels the calls that still run.

    Args:
        settings: The address to listen on, and limits.
        compose: Builds the stores and operations.
        on_ready: Called once the server accepts calls, e.g. to print its address.
        side_server: Creates another server (such as HTTP) that starts and stops with this one.

    Errors: those of ``compose`` and of ``Server``, before any call is accepted.
    """
    configure_logging(settings.log_level, settings.log_format)
    with suppress(asyncio.CancelledError):  # a signal arrived while the stores were starting
        uvloop.run(run_until_signalled(settings, compose, on_ready, side_server))


async def run_until_signalled(
    settings: Settings,
    compose: Compose,
    on_ready: Callable[[Server], None] | None = None,
    side_server: MakeSideServer | None = None,
) -> None:
    """Run a server in the current event loop; see ``serve``."""
    async with _signals() as signalled, compose(settings) as operations:
        server = Server(settings, operations, side_server=side_server)
        await server.start()
        if on_ready is not None:
            on_ready(server)
        await signalled(server.stop, settings.stop_grace.total_seconds())


Stop = Callable[[float], Awaitable[None]]


@asynccontextmanager
async def _signals() -> AsyncIterator[Callable[[Stop, float], Awaitable[None]]]:
    """Handles SIGTERM, SIGINT and SIGHUP. Before the server runs, a signal cancels the task that builds it.

    Yields a function that waits for the first signal and then stops with the given grace period; a second signal stops
    at once.
    """
    loop = asyncio.get_running_loop()
    main = asyncio.current_task()
    count = 0
    first, second = asyncio.Event(), asyncio.Event()
    waiting = False

    def arrived() -> None:
        nonlocal count
        count += 1
        (first if count == 1 else second).set()
        if not waiting and main is not None:
            main.cancel()

    async def wait_and_stop(stop: Stop, grace: float) -> None:
        nonlocal waiting
        waiting = True
        await first.wait()
        gentle = asyncio.ensure_future(stop(grace))
        again = asyncio.ensure_future(second.wait())
        await asyncio.wait({gentle, again}, return_when=asyncio.FIRST_COMPLETED)
        again.cancel()
        if not gentle.done():
            await stop(0)
        await gentle

    # the hangup of a closed terminal is ignored under `nohup`, and must stay so
    hangup = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    names = (signal.SIGTERM, signal.SIGINT, *hangup)
    for name in names:
        loop.add_signal_handler(name, arrived)
    try:
        yield wait_and_stop
    finally:
        for name in names:
            loop.remove_signal_handler(name)
