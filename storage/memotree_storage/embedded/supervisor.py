"""Child processes that start with the server, are restarted when they crash, and stop with the server."""

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
from memotree_storage.embedded.child_log import LogFollower

_STABLE_AFTER: Final = 10.0
"""Seconds that a child must run before it is restarted without a pause after another crash."""
_START_ATTEMPTS: Final = 3

_T = TypeVar("_T")

_log = structlog.get_logger(__name__)


class ChildState(enum.Enum):
    """The state of a supervised child."""

    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    STOPPING = "stopping"


Callback = Callable[[], Awaitable[None] | None]
"""Called on the event loop after a child was restarted."""


class Supervisor:
    """Starts one child process, watches it, restarts it when it ends unexpectedly, and stops it.

    Each run of the child has its own thread, which waits for the child to end: the kernel's parent-death signal refers
    to the thread that created the child, not to the process, so that thread must live as long as the child.

    Args:
        child: The command.
        ready: Returns when the child answers; it is cancelled if the child ends before that. It may raise
            ``ChildStartError`` to give up.
        prepare: Called in a thread before each start, to remove what an earlier run left behind.
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
        self._following: asyncio.Task[None] | None = None
        self._restarts = 0

    @property
    def state(self) -> ChildState:
        """The current state of the child; it answers only while this is ``RUNNING``."""
        return self._state

    @property
    def pid(self) -> int | None:
        """Process id of the child; ``None`` while it is not running."""
        return self._process.pid if self._process is not None else None

    @property
    def restarts(self) -> int:
        """How often the child was restarted after it had ended unexpectedly."""
        return self._restarts

    def on_restart(self, callback: Callback) -> None:
        """Call ``callback`` each time the child answers again after a crash."""
        self._callbacks.append(callback)

    async def start(self) -> None:
        """Start the child and return when it answers; raise ``ChildStartError`` with the end of its log otherwise."""
        if self._state is not ChildState.STOPPED:
            return
        self._state = ChildState.STARTING
        follower = LogFollower(self._child.name, self._child.log)
        try:
            async for attempt in self._attempts(stop_after_attempt(_START_ATTEMPTS)):
                with attempt:
                    await self._begin_run()
        except BaseException:
            await self._end_run()
            self._state = ChildState.STOPPED
            raise
        self._state = ChildState.RUNNING
        self._guard = asyncio.create_task(self._keep_alive(), name=f"supervise {self._child.name}")
        self._following = asyncio.create_task(follower.follow(), name=f"follow {self._child.name}")

    async def stop(self) -> None:
        """Stop the child, gracefully at first, and return when it has ended; safe to repeat."""
        tasks, self._guard, self._following = (self._guard, self._following), None, None
        for task in tasks:
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        if self._process is not None:
            self._state = ChildState.STOPPING
            await self._end_run()
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
        """Restart the child each time it ends; pauses grow as long as the runs are short."""
        await self._wait_for_end()
        while True:
            async for attempt in self._attempts(stop_never):
                with attempt:
                    await self._restart()

    async def _restart(self) -> None:
        await self._begin_run()
        began = time.monotonic()
        self._restarts += 1
        self._state = ChildState.RUNNING
        _log.info("embedded server restarted", name=self._child.name, pid=self.pid, restarts=self._restarts)
        await self._notify()
        status = await self._wait_for_end()
        if time.monotonic() - began < _STABLE_AFTER:
            raise ChildStartError(f"{self._child.name} ended unexpectedly with status {status}.")

    async def _notify(self) -> None:
        for callback in self._callbacks:
            try:
                result = callback()
                if result is not None:
                    await result
            except Exception:  # noqa: BLE001 - a failing callback must not end the supervision
                _log.exception("restart callback failed", name=self._child.name)

    async def _wait_for_end(self) -> int:
        assert self._ended is not None  # noqa: S101 - a run has begun
        status = await asyncio.shield(self._ended)
        self._process = None
        self._state = ChildState.RESTARTING
        last = log_tail(self._child.log).splitlines()[-3:]
        _log.warning("embedded server ended", name=self._child.name, status=status, last_lines=last)
        return status

    async def _begin_run(self) -> None:
        """Start the child and wait until it answers; on any failure, leave nothing of it running."""
        if self._prepare is not None:
            await asyncio.to_thread(self._prepare)
        loop = asyncio.get_running_loop()
        started: asyncio.Future[Popen[bytes]] = loop.create_future()
        self._ended = loop.create_future()
        threading.Thread(
            target=_run_child,
            args=(self._child, loop, started, self._ended),
            name=f"{self._child.name} run",
            daemon=True,
        ).start()
        try:
            self._process = await asyncio.shield(started)
        except OSError as error:
            raise ChildStartError(f"{self._child.name} could not be started: {error}.") from error
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):
                self._process = await started
                await self._end_run()
            raise
        try:
            await self._until_ready(self._ended)
        except BaseException:
            await self._end_run()
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

    async def _end_run(self) -> None:
        """Send signals to the child until it has ended."""
        process, ended = self._process, self._ended
        if process is None or ended is None:
            return
        for number, grace in (*self._child.stop_signals, (signal.SIGKILL, None)):
            if ended.done():
                break
            # Not Popen.send_signal: it could reap the child, for which another thread is waiting.
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)
            await asyncio.wait({ended}, timeout=grace)
        self._process = None


def _run_child(
    child: ChildCommand,
    loop: asyncio.AbstractEventLoop,
    started: asyncio.Future[Popen[bytes]],
    ended: asyncio.Future[int],
) -> None:
    """Start the child and wait for its end; runs in the thread that the kernel regards as the child's parent."""
    try:
        process = spawn(child)
    except OSError as error:
        _set_in_loop(loop, started.set_exception, error)
        return
    _set_in_loop(loop, started.set_result, process)
    status = process.wait()
    _set_in_loop(loop, ended.set_result, status)


def _set_in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[_T], object], value: _T) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed, so no task is waiting
        loop.call_soon_threadsafe(call, value)
