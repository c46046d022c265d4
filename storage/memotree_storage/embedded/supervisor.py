"""Child processes that start with the server, come back when they die, and go when the server goes."""

import asyncio
import contextlib
import enum
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from subprocess import Popen
from typing import Any, Final, TypeVar

import structlog
from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    stop_after_attempt,
    stop_never,
    wait_exponential,
    wait_random,
)
from tenacity.stop import stop_base

from memotree_storage.embedded.child import ChildCommand, ChildStartError, log_tail, spawn

_STABLE_AFTER: Final = 10.0
"""Seconds a child must live before a new death is met without a pause."""
_START_ATTEMPTS: Final = 3

_T = TypeVar("_T")

_log = structlog.get_logger(__name__)


class ChildState(enum.Enum):
    """What a supervised child is doing."""

    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    STOPPING = "stopping"


Callback = Callable[[], Awaitable[None] | None]
"""Called on the event loop after a child came back."""


class Supervisor:
    """Starts one child process, watches it, starts it again when it ends by itself, and stops it.

    Each life of the child belongs to a thread of its own that waits for it: the kernel's parent-death signal follows
    the thread that made the child, not the process, so that thread has to live as long as the child does.

    Args:
        child: The command.
        ready: Returns when the child answers; it is cancelled when the child ends before that. It may raise
            ``ChildStartError`` to give up.
        prepare: Called in a thread before each start, to clear what an earlier life left behind.
        start_timeout: Seconds for ``ready``.
    """

    def __init__(
        self,
        child: ChildCommand,
        *,
        ready: Callable[[], Awaitable[None]],
        prepare: Callable[[], None] | None = None,
        start_timeout: float = 60.0,
    ) -> None:
        self._child = child
        self._ready = ready
        self._prepare = prepare
        self._start_timeout = start_timeout
        self._callbacks: list[Callback] = []
        self._state = ChildState.STOPPED
        self._process: Popen[bytes] | None = None
        self._ended: asyncio.Future[int] | None = None
        self._guard: asyncio.Task[None] | None = None
        self._restarts = 0

    @property
    def state(self) -> ChildState:
        """What the child is doing now; anything but ``RUNNING`` means that it does not answer."""
        return self._state

    @property
    def pid(self) -> int | None:
        """Process id of the present life, or ``None`` between lives."""
        return self._process.pid if self._process is not None else None

    @property
    def restarts(self) -> int:
        """How often the child came back after it had ended by itself."""
        return self._restarts

    def on_restart(self, callback: Callback) -> None:
        """Have ``callback`` called each time the child answers again after a death."""
        self._callbacks.append(callback)

    async def start(self) -> None:
        """Start the child and return when it answers; ``ChildStartError`` with the end of its log otherwise."""
        if self._state is not ChildState.STOPPED:
            return
        self._state = ChildState.STARTING
        try:
            async for attempt in self._attempts(stop_after_attempt(_START_ATTEMPTS)):
                with attempt:
                    await self._begin_life()
        except BaseException:
            await self._end_life()
            self._state = ChildState.STOPPED
            raise
        self._state = ChildState.RUNNING
        self._guard = asyncio.create_task(self._keep_alive(), name=f"supervise {self._child.name}")

    async def stop(self) -> None:
        """End the child, gently at first, and return when it is gone; safe to repeat."""
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await guard
        if self._process is not None:
            self._state = ChildState.STOPPING
            await self._end_life()
        self._state = ChildState.STOPPED

    @staticmethod
    def _attempts(stop: stop_base) -> AsyncRetrying:
        return AsyncRetrying(
            retry=retry_if_exception_type(ChildStartError),
            wait=wait_exponential(multiplier=0.05, max=5.0) + wait_random(0, 0.05),
            stop=stop,
            reraise=True,
        )

    async def _keep_alive(self) -> None:
        """Begin a new life after each end; pauses grow for as long as lives are short."""
        await self._wait_for_end()
        while True:
            async for attempt in self._attempts(stop_never):
                with attempt:
                    await self._one_more_life()

    async def _one_more_life(self) -> None:
        await self._begin_life()
        began = time.monotonic()
        self._restarts += 1
        self._state = ChildState.RUNNING
        _log.info("embedded server is back", name=self._child.name, pid=self.pid, restarts=self._restarts)
        await self._tell()
        status = await self._wait_for_end()
        if time.monotonic() - began < _STABLE_AFTER:
            raise ChildStartError(f"{self._child.name} ended by itself with status {status}.")

    async def _tell(self) -> None:
        for callback in self._callbacks:
            try:
                result = callback()
                if result is not None:
                    await result
            except Exception:  # noqa: BLE001 - a listener's fault must not end the watch over the child
                _log.exception("a restart callback failed", name=self._child.name)

    async def _wait_for_end(self) -> int:
        assert self._ended is not None  # noqa: S101 - a life has begun
        status = await asyncio.shield(self._ended)
        self._process = None
        self._state = ChildState.RESTARTING
        _log.warning("embedded server ended", name=self._child.name, status=status)
        return status

    async def _begin_life(self) -> None:
        """Spawn the child and wait until it answers; on any failure nothing of it is left."""
        if self._prepare is not None:
            await asyncio.to_thread(self._prepare)
        loop = asyncio.get_running_loop()
        born: asyncio.Future[Popen[bytes]] = loop.create_future()
        self._ended = loop.create_future()
        threading.Thread(
            target=_live,
            args=(self._child, loop, born, self._ended),
            name=f"{self._child.name} life",
            daemon=True,
        ).start()
        try:
            self._process = await asyncio.shield(born)
        except OSError as error:
            raise ChildStartError(f"{self._child.name} could not be started: {error}.") from error
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):
                self._process = await born
                await self._end_life()
            raise
        try:
            await self._until_ready(self._ended)
        except BaseException:
            await self._end_life()
            raise

    async def _until_ready(self, ended: asyncio.Future[int]) -> None:
        waiting = asyncio.ensure_future(self._ready())
        either: set[asyncio.Future[Any]] = {waiting, ended}
        try:
            done, _ = await asyncio.wait(either, timeout=self._start_timeout, return_when=asyncio.FIRST_COMPLETED)
            if ended in done:
                raise self._failed(f"ended with status {ended.result()} before it answered")
            if waiting not in done:
                raise self._failed(f"did not answer within {self._start_timeout:g} seconds")
            waiting.result()
        finally:
            waiting.cancel()

    def _failed(self, what: str) -> ChildStartError:
        return ChildStartError(f"{self._child.name} {what}. The end of {self._child.log}: {log_tail(self._child.log)}")

    async def _end_life(self) -> None:
        """Signal the present life until it is gone."""
        process, ended = self._process, self._ended
        if process is None or ended is None:
            return
        for number, grace in (*self._child.stop_signals, (signal.SIGKILL, None)):
            if ended.done():
                break
            # Not Popen.send_signal: it may reap the child under the thread that waits for it.
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)
            await asyncio.wait({ended}, timeout=grace)
        self._process = None


def _live(
    child: ChildCommand,
    loop: asyncio.AbstractEventLoop,
    born: asyncio.Future[Popen[bytes]],
    ended: asyncio.Future[int],
) -> None:
    """Make the child and wait for its end; runs in the thread that the kernel takes for the child's parent."""
    try:
        process = spawn(child)
    except OSError as error:
        _tell_loop(loop, born.set_exception, error)
        return
    _tell_loop(loop, born.set_result, process)
    status = process.wait()
    _tell_loop(loop, ended.set_result, status)


def _tell_loop(loop: asyncio.AbstractEventLoop, call: Callable[[_T], object], value: _T) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(call, value)
