"""The standard gRPC health service: one status for the server and one for each service.

The servicer of grpcio-health-checking never ends its watch calls, so a graceful stop would have to wait for its whole
grace period; here a watcher gets NOT_SERVING and then its call ends.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_Status = health_pb2.HealthCheckResponse


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # the package ships no types
    """Answers ``grpc.health.v1.Health``; the empty name stands for the server as a whole."""

    def __init__(self) -> None:
        self._statuses: dict[str, int] = {"": _Status.NOT_SERVING}
        self._stopped = False
        self._changed = asyncio.Event()

    def set_serving(self, services: Iterable[str]) -> None:
        """Report the server and these services (full names) as SERVING."""
        self._statuses |= dict.fromkeys(["", *services], _Status.SERVING)
        self._notify()

    def set(self, service: str, *, serving: bool) -> None:
        """Report whether one service accepts calls; has no effect after ``stop``."""
        if not self._stopped:
            self._statuses[service] = _Status.SERVING if serving else _Status.NOT_SERVING
            self._notify()

    def stop(self) -> None:
        """Report NOT_SERVING for all services, permanently."""
        self._stopped = True
        self._statuses = dict.fromkeys(self._statuses, _Status.NOT_SERVING)
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802 - the name is the contract's
        """Answer the status of a service; NOT_FOUND if this server does not have it."""
        status = self._statuses.get(request.service)
        if status is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"This server has no service {request.service!r}.")
        return _Status(status=status)

    async def Watch(self, request: Any, context: Any) -> None:  # noqa: N802 - the name is the contract's
        """Stream the status of a service, now and after each change, until the server stops."""
        sent = None
        while True:
            changed = self._changed
            status = self._statuses.get(request.service, _Status.SERVICE_UNKNOWN)
            if status != sent:
                await context.write(_Status(status=status))
                sent = status  # the status may have changed again during the write
            elif self._stopped:
                return
            else:
                await changed.wait()
