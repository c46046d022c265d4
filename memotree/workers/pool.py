"""Processes that are kept for the next request; each answers one at a time and can be stopped."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, Final, ParamSpec, TypeVar

import structlog

from memotree.workers.process import LENGTH_BYTES, encode
from memotree.workers.sandbox import Sandbox

_IDLE_SECONDS: Final = 30.0
"""After this time without a request, a process ends."""

_ENDING_SECONDS: Final = 1.0
"""How long a process that has closed its output may take to end by itself."""

_LOOKING_SECONDS: Final = 0.005
"""How often it is looked whether it has."""

_log = structlog.get_logger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class WorkerTooSlowError(RuntimeError):
    """The request took more time than it may; its process was ended."""


class WorkerTooLargeError(RuntimeError):
    """The request needed more memory than its process may have; the process was ended."""


class WorkerCrashedError(RuntimeError):
    """The process ended in the middle of the request."""


class AnswerTooLongError(RuntimeError):
    """The answer has more bytes than it may; its process was ended."""


@dataclass(frozen=True, slots=True)
class Program:
    """The program of the processes of a pool.

    Attributes:
        module: The module that is run; it calls `memotree.workers.process.answer_requests`.
        arguments: Its arguments.
        environment: Its environment variables; those of this process if ``None``.
        most_bytes: The most bytes of one answer; ``None`` for any number.
        sandbox: Runs it apart from the rest of the machine; ``None`` for nothing.
        network: Whether it has a network there.
    """

    module: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] | None = None
    most_bytes: int | None = None
    sandbox: Sandbox | None = None
    network: bool = False

    @property
    def command(self) -> list[str]:
        """What is run."""
        command = [sys.executable, "-P", "-m", self.module, *self.arguments]
        if self.sandbox is None:
            return command
        return self.sandbox.command(command, network=self.network, environment=self.environment)


class WorkerPool:
    """Sends requests to processes; a process that is free is kept for the next one. For one event loop.

    Args:
        program: What the processes run.
        processes: How many requests are worked on at once; others wait.
        attempts: In how many processes a request is tried that ends its process. More than one is only for work without
            effects.

    Attributes:
        places: One for each process. `ask` takes one; who must hold one first calls `ask_in_place`.
    """

    def __init__(self, program: Program, processes: int, attempts: int = 1) -> None:
        self.places = asyncio.Semaphore(processes)
        self._program = program
        self._attempts = attempts
        self._talkers = ThreadPoolExecutor(processes + 1, thread_name_prefix="memotree-workers")
        self._idle: list[Process] = []
        self._resting: asyncio.TimerHandle | None = None

    async def ask(self, head: dict[str, Any], body: bytes, seconds: float) -> tuple[dict[str, Any], bytes]:
        """The head and the body of the answer. A cancelled call ends its process.

        Args:
            head: What is asked.
            body: The bytes that it is about.
            seconds: How long one attempt may take, once a process is free.

        Raises:
            WorkerTooSlowError: It took longer, or more processor time than its process may use.
            WorkerTooLargeError: It needed too much memory.
            AnswerTooLongError: Its answer is too long.
            WorkerCrashedError: Each process that tried it ended.
        """
        async with self.places:
            return await self.ask_in_place(head, body, seconds)

    async def ask_in_place(self, head: dict[str, Any], body: bytes, seconds: float) -> tuple[dict[str, Any], bytes]:
        """As `ask`, by who holds one of the places."""
        for _ in range(self._attempts):
            try:
                return await self._tried(head, body, seconds)
            except WorkerCrashedError as error:
                _log.warning("a worker process ended", program=self._program.module, cause=str(error))
        raise WorkerCrashedError

    async def close(self) -> None:
        """End the idle processes. All requests have ended before, or are cancelled."""
        if self._resting is not None:
            self._resting.cancel()
        while self._idle:
            await self._run_to_end(self._idle.pop().end)
        self._talkers.shutdown(wait=False)

    def _run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Run a function in a thread that talks to a process: waiting for it must not occupy other threads."""
        call = partial(function, *args, **kwargs)
        return asyncio.get_running_loop().run_in_executor(self._talkers, call)

    async def _run_to_end(self, function: Callable[[], T]) -> T:
        """As `_run`; it is run also if whoever waits for it is cancelled, since else its process would stay."""
        return await asyncio.shield(self._run(function))

    async def _tried(self, head: dict[str, Any], body: bytes, seconds: float) -> tuple[dict[str, Any], bytes]:
        process = self._taken()
        try:
            async with asyncio.timeout(seconds):
                answer, data = await self._run(process.ask, head, body)
        except TimeoutError:
            await self._run_to_end(process.end)
            raise WorkerTooSlowError from None
        except (EOFError, ConnectionError):
            status = await self._run_to_end(process.ended)
            if status in _ended_by(signal.SIGXCPU):
                raise WorkerTooSlowError from None
            if status in _ended_by(signal.SIGKILL):  # by the system, which is out of memory
                raise WorkerTooLargeError from None
            raise WorkerCrashedError(f"exit status {status}") from None
        except BaseException:
            await self._run_to_end(process.end)
            raise
        if answer.get("cause") == "memory":
            await self._run_to_end(process.end)  # what is left of it may be in pieces
            raise WorkerTooLargeError
        self._keep(process)
        return answer, data

    def _taken(self) -> "Process":
        """An idle process that still runs, or one that begins with this request."""
        while self._idle:
            process = self._idle.pop()
            if process.runs:
                return process
            self._talkers.submit(process.end)
        return Process(self._program)

    def _keep(self, process: "Process") -> None:
        self._idle.append(process)
        if self._resting is not None:
            self._resting.cancel()
        self._resting = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._rest)

    def _rest(self) -> None:
        """End the idle processes."""
        idle, self._idle = self._idle, []
        for process in idle:
            self._talkers.submit(process.end)


class Process:
    """One process, which begins with its first request. The methods but ``runs`` block; call them in a thread."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._changing = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False

    @property
    def runs(self) -> bool:
        """Whether it has begun and not ended."""
        return self._process is not None and not _has_ended(self._process)

    def ask(self, head: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        """The head and the body of the answer; ``EOFError`` or ``ConnectionError`` if the process ended.

        Raises:
            AnswerTooLongError: The answer is too long.
        """
        process = self._begun()
        assert process.stdin is not None  # noqa: S101 - both are pipes
        assert process.stdout is not None  # noqa: S101
        process.stdin.write(encode(head, body))
        process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._read(process.stdout, _number(_read(process.stdout, LENGTH_BYTES))))
        return answer, self._read(process.stdout, answer["length"])

    def _read(self, pipe: IO[bytes], count: int) -> bytes:
        if count < 0 or (self._program.most_bytes is not None and count > self._program.most_bytes):
            raise AnswerTooLongError
        return _read(pipe, count)

    def _begun(self) -> "subprocess.Popen[bytes]":
        with self._changing:
            if self._is_over:  # the call was cancelled before this thread came to it
                raise EOFError
            if self._process is None:
                # Not by the event loop: uvloop runs Python code in the fork, which crashes beside the threads of gRPC.
                self._process = subprocess.Popen(  # noqa: S603 - our own program
                    self._program.command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=self._program.environment,
                    start_new_session=True,  # Ctrl-C at the terminal must reach only the service
                )
            return self._process

    def ended(self) -> int:
        """The exit status of a process that has closed its output, so that it is ending; negative after a signal."""
        until = time.monotonic() + _ENDING_SECONDS
        while self.runs and time.monotonic() < until:
            time.sleep(_LOOKING_SECONDS)
        return self.end()

    def end(self) -> int:
        """End the process, if it has not ended, and what it started in its group; return its exit status.

        What it started in a session of its own goes on, unless a sandbox ends it.
        """
        with self._changing:
            self._is_over = True
            process = self._process
            if process is None:
                return 0
            if process.returncode is None:  # nobody has waited for it: its number still is that of its group
                with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: of a group that has ended
                    os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):  # unsent data has no reader any more
                if pipe is not None:
                    pipe.close()
        return status


def _has_ended(process: "subprocess.Popen[bytes]") -> bool:
    """Whether a process has ended. It is not waited for, so that its number stays that of its group."""
    if process.returncode is not None:
        return True
    if not hasattr(os, "waitid"):  # macOS before Python 3.13; there, what it started may go on
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _ended_by(number: signal.Signals) -> tuple[int, int]:
    """The exit statuses of a process that a signal has ended: by itself, and in a sandbox."""
    return -number, 128 + number


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _read(pipe: IO[bytes], count: int) -> bytes:
    data = pipe.read(count)
    if len(data) < count:
        raise EOFError
    return data
