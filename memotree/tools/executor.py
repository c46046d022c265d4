"""Calls functions within limits: how many at once, how long each, how much memory of those that block.

An async function runs in this process and is cancelled when its time is over. A function that blocks runs in a worker
process, which is ended then: so it ends whatever it does. Each plugin has worker processes of its own. Where there is a
sandbox, the process writes no files, and has a network only for tools that say that they reach out (``open_world``).
"""

import asyncio
import os
import pickle
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

import structlog
from memotree_storage.errors import FieldViolation, TooLargeError, UnavailableError

from memotree.error_mapping import DeadlineExceededError
from memotree.tools.errors import told_by_worker
from memotree.tools.function_tool import FunctionTool
from memotree.tools.results import MOST_BYTES, ToolResultTooLargeError, as_text, read_text
from memotree.tools.signature import WrongArgumentsError, written
from memotree.workers.environment import worker_environment
from memotree.workers.pool import (
    AnswerTooLongError,
    Program,
    WorkerCrashedError,
    WorkerPool,
    WorkerTooLargeError,
    WorkerTooSlowError,
)
from memotree.workers.sandbox import Sandbox

_PROGRAM: Final = "memotree.tools.worker"

_LOADING_SECONDS: Final = 30.0
"""How long a plugin may take to be imported."""

_WAITING: Final = 16
"""How many calls may wait, for each that may run, of those that need the same processes; further ones are refused."""

log = structlog.get_logger("memotree.tool")


class ToolTimeoutError(DeadlineExceededError):
    """A tool took longer than its calls may; unless it only reads, whether its work was done is not known."""

    reason = "TOOL_TIMEOUT"

    def __init__(self, tool: str, seconds: float, *, read_only: bool) -> None:
        told = (
            "and was ended; ask for less."
            if read_only
            else "and was stopped; whether its work was done is not known. Look before you send it again; the same "
            "request_id makes that safe for a tool that keeps to it."
        )
        super().__init__(f"{tool} took longer than {seconds:g} seconds {told}")


class ToolMemoryError(TooLargeError):
    """A tool needed more memory than its process may have."""

    reason = "TOOL_MEMORY"

    def __init__(self, tool: str, most_bytes: int) -> None:
        super().__init__(f"{tool} needed more than {most_bytes >> 20} MiB of memory and was ended; ask for less.")


class ToolCrashedError(UnavailableError):
    """The worker process of a tool ended in the middle of a call."""

    reason = "TOOL_CRASHED"
    passes = False

    def __init__(self, tool: str) -> None:
        super().__init__(f"The process of {tool} crashed; whether its work was done is not known.")


class TooManyToolCallsError(TooLargeError):
    """As many calls of tools wait as may, or the turn of this one did not come in its time; it was not begun."""

    reason = "TOO_MANY_TOOL_CALLS"
    passes = True

    def __init__(self, limit: str, seconds: float | None = None) -> None:
        waited = "" if seconds is None else f" within its {seconds:g} seconds"
        super().__init__(
            f"The server runs {limit} (its setting tools_max_concurrency), and others wait. It did not begin this "
            f"one{waited}; send it again in a moment."
        )


class ToolFailedError(RuntimeError):
    """A function raised an error in its worker process; the message has its traceback, for the log."""


@dataclass(frozen=True, slots=True)
class ToolLimits:
    """What calls of functions may take.

    Attributes:
        timeout: How long a call may take, unless its tool says otherwise.
        concurrency: How many calls run at once.
        memory: Bytes of memory of a worker process, with what Python itself needs.
        processes: Worker processes at once of the functions of this server, and of each plugin without a network and
            with one.
    """

    timeout: timedelta = timedelta(seconds=30)
    concurrency: int = 16
    memory: int = 1 << 30
    processes: int = 2


@dataclass(slots=True)
class _Queue:
    """Calls that wait for the same: a process of one pool, or a slot alone.

    Attributes:
        places: Held by the calls that have their turn.
        most: How many calls may have come, those with a turn included.
        limit: What the server runs at once, for a message.
        count: How many calls have come and not ended.
    """

    places: AbstractAsyncContextManager[None]
    most: int
    limit: str
    count: int = 0


class _Workers:
    """The worker processes of the functions of this server, or of one plugin, and the calls that need them."""

    def __init__(self, program: Program, limits: ToolLimits) -> None:
        self.pool = WorkerPool(program, limits.processes)
        most = limits.concurrency
        limit = f"{min(limits.processes, most)} calls at once of tools like this one, {most} of all"
        self.queue = _Queue(self.pool.places, most * (1 + _WAITING), limit)


class Executor:
    """Calls tools that are functions. For one event loop.

    Args:
        limits: What their calls may take.
        sandbox: Runs worker processes apart from the rest of the machine; ``None`` for nothing. What it shows is for
            the functions of this server alone.
    """

    def __init__(self, limits: ToolLimits | None = None, sandbox: Sandbox | None = None) -> None:
        self._limits = limits or ToolLimits()
        concurrency = self._limits.concurrency
        self._slots = asyncio.Semaphore(concurrency)
        self._queue = _Queue(nullcontext(), concurrency * (1 + _WAITING), f"{concurrency} calls of such tools at once")
        arguments = (str(self._limits.timeout.total_seconds()), str(self._limits.memory))
        program = Program(_PROGRAM, arguments, worker_environment(os.environ), 2 * MOST_BYTES, sandbox)
        self._workers = _Workers(program, self._limits)
        # No plugin runs in a process that another one ran in: it could have changed it, to read the other's settings.
        self._program = replace(program, sandbox=sandbox and replace(sandbox, shown=()))
        self._plugins: dict[tuple[str, bool], _Workers] = {}
        self._describing = asyncio.Semaphore(self._limits.processes)

    async def run(self, tool: FunctionTool, values: Mapping[str, Any]) -> dict[str, Any]:
        """The data of the result of one call. A cancelled call ends its work.

        Args:
            tool: The tool.
            values: Its arguments, checked.

        Raises:
            MemoTreeError: The function raised it.
            ToolTimeoutError: It took too long, the time in which it waited for its turn included.
            ToolMemoryError: It needed too much memory.
            ToolCrashedError: Its process ended.
            ToolResultTooLargeError: It returned too much.
            TooManyToolCallsError: Too many calls wait already, or its turn did not come in its time.
        """
        seconds = (tool.options.timeout or self._limits.timeout).total_seconds()
        read_only = tool.options.read_only
        if not tool.blocks:
            async with self._turn(self._queue, tool.name, seconds, read_only=read_only):
                return read_text(tool.name, as_text(await tool.function(**values)))
        async with self._turn(self._workers.queue, tool.name, seconds, read_only=read_only):
            body = pickle.dumps((tool.function, dict(values)))
            return await self._asked(self._workers.pool, tool.name, {}, body, seconds, read_only=read_only)

    async def run_plugin(
        self,
        plugin: str,
        name: str,
        arguments: Mapping[str, Any],
        seconds: float | None,
        settings: Mapping[str, Any] | None = None,
        *,
        network: bool = False,
        read_only: bool = False,
    ) -> dict[str, Any]:
        """The data of the result of one call of a tool of a plugin, as `run`.

        Args:
            plugin: The name of its entry point.
            name: The tool.
            arguments: Its arguments as they were given; they are checked in the process.
            seconds: How long it may take; the limit of all tools if ``None``.
            settings: What the settings of the server say to it, as JSON.
            network: Whether it may use the network, where there is a sandbox.
            read_only: Whether it changes nothing.

        Raises:
            WrongArgumentsError: The arguments have faults.
        """
        limit = seconds or self._limits.timeout.total_seconds()
        head = {"plugin": plugin, "tool": name, "settings": dict(settings or {})}
        body = written(arguments).encode()
        workers = self._workers_of(plugin, network=network)
        async with self._turn(workers.queue, name, limit, read_only=read_only):
            return await self._asked(workers.pool, name, head, body, limit, read_only=read_only)

    async def describe(self, plugin: str) -> list[Any]:
        """What a plugin declares."""
        workers = self._workers_of(plugin, network=False)
        async with self._describing, workers.pool.places:
            found = await self._asked(workers.pool, plugin, {"plugin": plugin}, b"", _LOADING_SECONDS, read_only=True)
        return list(found["tools"])

    async def close(self) -> None:
        """End the idle worker processes; all calls have ended before."""
        for workers in (self._workers, *self._plugins.values()):
            await workers.pool.close()

    def _workers_of(self, plugin: str, *, network: bool) -> _Workers:
        """The worker processes of one plugin, with or without a network."""
        if (plugin, network) not in self._plugins:
            self._plugins[plugin, network] = _Workers(replace(self._program, network=network), self._limits)
        return self._plugins[plugin, network]

    @asynccontextmanager
    async def _turn(self, queue: _Queue, name: str, seconds: float, *, read_only: bool) -> AsyncIterator[None]:
        """Wait for a turn and take it, for so long.

        A call takes a place of its queue before it takes a slot: so no call holds a slot that others could use while it
        waits for a process.

        Raises:
            ToolTimeoutError: It took longer.
            TooManyToolCallsError: Too many calls wait already, or its turn did not come in this time.
        """
        if queue.count >= queue.most:
            raise TooManyToolCallsError(queue.limit)
        queue.count += 1
        is_begun = False
        try:
            async with asyncio.timeout(seconds) as limit, queue.places, self._slots:
                is_begun = True
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            if not is_begun:
                raise TooManyToolCallsError(queue.limit, seconds) from None
            raise ToolTimeoutError(name, seconds, read_only=read_only) from None
        finally:
            queue.count -= 1

    async def _asked(
        self, pool: WorkerPool, name: str, head: dict[str, Any], body: bytes, seconds: float, *, read_only: bool
    ) -> dict[str, Any]:
        """What a process answers, for a call that holds a place of the pool."""
        try:
            answer, data = await pool.ask_in_place({**head, "seconds": seconds}, body, seconds)
        except WorkerTooSlowError:
            raise ToolTimeoutError(name, seconds, read_only=read_only) from None
        except WorkerTooLargeError:
            raise ToolMemoryError(name, self._limits.memory) from None
        except AnswerTooLongError:
            raise ToolResultTooLargeError(name) from None
        except WorkerCrashedError:
            raise ToolCrashedError(name) from None
        if answer.get("cause") == "length":
            raise ToolResultTooLargeError(name)
        if "faults" in answer:
            raise WrongArgumentsError([FieldViolation(str(field), str(told)) for field, told in answer["faults"]])
        if "defect" in answer:
            raise ToolFailedError(answer["defect"])
        if "reason" in answer:
            raise told_by_worker(answer)
        return read_text(name, data.decode())
