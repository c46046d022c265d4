"""The embedded Qdrant: the engine as a child process, with an address that stays the same across restarts."""

import asyncio
import secrets
import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc

from memotree_storage.embedded.child import ChildCommand
from memotree_storage.embedded.lock import DataFolderLock
from memotree_storage.embedded.supervisor import Supervisor
from memotree_storage.ports import IndexUnavailableError

_HEALTH: Final = "/qdrant.Qdrant/HealthCheck"
_FLUSH: Final = "/memotree.engine.Maintenance/Flush"
_OPTIMISE: Final = "/memotree.engine.Maintenance/Optimise"
_START_TIMEOUT: Final = 120.0
_CALL_TIMEOUT: Final = 5.0
_FLUSH_TIMEOUT: Final = 120.0
_OPTIMISE_TIMEOUT: Final = 3600.0
_POLL: Final = 0.01


@dataclass(frozen=True, slots=True)
class QdrantEndpoint:
    """The address of a Qdrant: ``url`` contains the host and the port of its gRPC interface."""

    url: str
    api_key: str | None = field(default=None, repr=False)


class EmbeddedQdrant:
    """A Qdrant engine in a data folder, on the loopback interface, protected by an API key generated at each start.

    The folder holds ``data/``, ``engine.log``, the key and the lock. Start and stop it from the same event loop. If the
    engine crashes, it is restarted with the same port and key, so that clients reconnect automatically.

    Args:
        data_folder: Created if missing; a second server on it is refused with ``DataFolderInUseError``.
    """

    def __init__(self, data_folder: Path) -> None:
        self._folder = data_folder.absolute()
        self._lock = DataFolderLock(self._folder)
        self._supervisor: Supervisor | None = None
        self._endpoint: QdrantEndpoint | None = None
        self._reservation: socket.socket | None = None
        self._channel: grpc.aio.Channel | None = None

    @property
    def log(self) -> Path:
        """The file with the engine's output."""
        return self._folder / "engine.log"

    @property
    def supervisor(self) -> Supervisor:
        """The supervisor of the engine process: its state and restarts; available only between start and stop."""
        if self._supervisor is None:
            raise RuntimeError("The embedded Qdrant is not running; call start() first.")
        return self._supervisor

    async def start(self) -> QdrantEndpoint:
        """Start the engine and return its address.

        Errors: ``DataFolderInUseError``, ``ChildStartError`` with the end of the log.
        """
        if self._endpoint is not None:
            return self._endpoint
        self._lock.acquire()
        try:
            endpoint = QdrantEndpoint(f"http://127.0.0.1:{self._reserve_port()}", secrets.token_urlsafe(32))
            self._write_key(endpoint.api_key or "")
            self._channel = grpc.aio.insecure_channel(
                endpoint.url.removeprefix("http://"),
                options=[
                    ("grpc.initial_reconnect_backoff_ms", 50),
                    ("grpc.max_reconnect_backoff_ms", 1000),
                    ("grpc.enable_http_proxy", 0),  # no proxy of the environment leads to this machine
                ],
            )
            self._endpoint = endpoint
            self._supervisor = Supervisor(self._engine(), ready=self._ready, start_timeout=_START_TIMEOUT)
            await self._supervisor.start()
        except BaseException:
            await self.stop()
            raise
        return endpoint

    async def stop(self) -> None:
        """Flush, stop the engine and unlock the data folder; safe to repeat."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            await supervisor.stop()
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()
        if self._reservation is not None:
            self._reservation.close()
            self._reservation = None
        self._endpoint = None
        self._lock.release()

    async def flush(self) -> None:
        """Return when everything that was written before is durable; raise ``IndexUnavailableError`` otherwise."""
        await self._ask(_FLUSH, deadline=_FLUSH_TIMEOUT)

    async def optimise(self) -> None:
        """Return when every collection is optimised; raise ``IndexUnavailableError`` if one could not be.

        The engine does that by itself once many points have been written.
        """
        await self._ask(_OPTIMISE, deadline=_OPTIMISE_TIMEOUT)

    async def write_anew(self) -> None:
        """Optimise every collection so that nothing of deleted points stays in its files; for the errors see above."""
        await self._ask(_OPTIMISE, deadline=_OPTIMISE_TIMEOUT, request=b"anew")

    async def _ask(self, method: str, *, deadline: float, request: bytes = b"") -> None:
        try:
            await self._call(method, deadline=deadline, request=request)
        except grpc.aio.AioRpcError as error:
            raise IndexUnavailableError(f"{error.code().name}: {error.details()}") from error

    def _reserve_port(self) -> int:
        """Bind a free port without listening: it stays reserved while the engine, which shares it, is restarted."""
        self._reservation = socket.socket()
        self._reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._reservation.bind(("127.0.0.1", 0))
        return int(self._reservation.getsockname()[1])

    def _write_key(self, key: str) -> None:
        path = self._folder / "api-key"
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_text(key, encoding="ascii")

    def _engine(self) -> ChildCommand:
        assert self._reservation is not None  # noqa: S101 - start() made it
        return ChildCommand(
            name="the embedded Qdrant engine",
            command=[
                *(sys.executable, "-P", "-m", "memotree_storage.qdrant.engine"),
                *("--data", str(self._folder / "data")),
                *("--port", str(self._reservation.getsockname()[1])),
                *("--api-key-file", str(self._folder / "api-key")),
            ],
            log=self.log,
        )

    async def _ready(self) -> None:
        while True:
            try:
                await self._call(_HEALTH, deadline=_CALL_TIMEOUT)
            except grpc.aio.AioRpcError:
                await asyncio.sleep(_POLL)
            else:
                return

    async def _call(self, method: str, *, deadline: float, request: bytes = b"") -> None:
        """Send a few bytes. No method takes a message, so the engine's messages need not be imported here."""
        if self._channel is None or self._endpoint is None:
            raise IndexUnavailableError("the embedded engine is not running")
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(method)
        await call(
            request, timeout=deadline, metadata=(("api-key", self._endpoint.api_key or ""),), wait_for_ready=True
        )
