"""The standard gRPC health service: one status for the server and one for each service.

The servicer of grpcio-health-checking never ends its watch calls, so a graceful stop would have to wait for its whole
grace period; here a watcher gets NOT_SERVING and then its call ends. Nobody needs a key to watch, so those who watch
from one address take no place from others.

A service is SERVING only while the stores answer, as ``/readyz`` says over HTTP. A check asks them; a watcher learns of
a change within some seconds.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from grpc_health.v1 import health_pb2, health_pb2_grpc
from memotree_storage.errors import NotFoundError, TooLargeError

from memotree.server.call_record import refuse
from memotree.server.connections import address_of
from memotree.server.waiting import WaitingCalls

WATCH_SECONDS: Final = 5.0
"""How often the stores are asked for those who watch."""

MOST_WATCHERS: Final = 64
"""How many may watch at once. Their calls last, and must not take the places of others."""

_Status = health_pb2.HealthCheckResponse


class HealthUnknownError(NotFoundError):
    """A health check asks for a service that this server does not have."""

    reason = "HEALTH_UNKNOWN"

    def __init__(self, service: str) -> None:
        super().__init__(
            f"This server has no service {service!r}; ask for one that reflection lists, or for the empty name, which "
            "stands for the whole server.",
            "service",
            service,
        )


class TooManyWatchersError(TooLargeError):
    """More watch the health of this server than may, and this watch was the oldest of the address that has most."""

    reason = "TOO_MANY_WATCHERS"

    def __init__(self) -> None:
        super().__init__(
            f"{MOST_WATCHERS} calls watch the health of this server, the most that may, so this one, the oldest of the "
            "address that has most, was ended for a further one; ask with Check now and then."
        )


async def _always() -> bool:
    return True


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # the package ships no types
    """Answers ``grpc.health.v1.Health``; the empty name stands for the server as a whole.

    Args:
        ready: Tells whether the stores answer.
        watch_seconds: How often to ask it while somebody watches.
    """

    def __init__(self, ready: Callable[[], Awaitable[bool]] = _always, watch_seconds: float = WATCH_SECONDS) -> None:
        self._ready = ready
        self._watch_seconds = watch_seconds
        self._statuses: dict[str, int] = {"": _Status.NOT_SERVING}
        self._stopped = False
        self._watches = WaitingCalls(MOST_WATCHERS)
        self._watchers: set[_Watcher] = set()

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
        for each in self._watchers:
            each.wake.set()

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802 - the name is the contract's
        """Answer the status of a service; NOT_FOUND if this server does not have it."""
        status = await self._status(request.service)
        if status == _Status.SERVICE_UNKNOWN:
            await refuse("grpc.health.v1.Health/Check", HealthUnknownError(request.service), context)
        return _Status(status=status)

    async def Watch(self, request: Any, context: Any) -> AsyncGenerator[Any]:  # noqa: N802 - likewise
        """Yield the status of a service, now and after each change, until the server stops.

        RESOURCE_EXHAUSTED if it must make room for another one.
        """
        watcher = _Watcher()
        watch = self._watches.begin(address_of(context.peer()), watcher.end)
        self._watchers.add(watcher)
        try:
            sent = None
            while not watcher.must_end:
                watcher.wake.clear()
                status = await self._status(request.service)
                if status != sent:
                    yield _Status(status=status)
                    sent = status  # the status may have changed again while it was sent
                elif self._stopped:
                    return
                else:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(watcher.wake.wait(), self._watch_seconds)
        finally:
            self._watchers.discard(watcher)
            watch.end()
        await refuse("grpc.health.v1.Health/Watch", TooManyWatchersError(), context)

    async def _status(self, service: str) -> int:
        status = self._statuses.get(service, _Status.SERVICE_UNKNOWN)
        if status == _Status.SERVING and not await self._ready():
            return int(_Status.NOT_SERVING)
        return int(status)


class _Watcher:
    """Who watches.

    Attributes:
        wake: Set when there may be something to tell.
        must_end: Whether its call must make room for another one.
    """

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self.must_end = False

    def end(self) -> None:
        """Make room for another call."""
        self.must_end = True
        self.wake.set()
