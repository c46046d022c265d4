"""A process that answers requests of this one over a pipe.

Python runs one thread at a time: without such processes an import would leave the other cores idle, and calls would
wait for the interpreter that the index uses.

A message on the pipe is its length in eight bytes and a pickle. The process ends when its input does, which also
happens when the service dies. It has no state that could be lost.
"""

import asyncio
import contextlib
import gc
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, Final

_LENGTH_BYTES: Final = 8
_COLLECT_EVERY: Final = 50


class WorkerEndedError(Exception):
    """The process could not be started, or ended before it answered."""


class WorkerProcess:
    """A process that runs from the first request until `rest`; it answers one request after the other.

    A dedicated thread talks to it, since waiting for it must not occupy the threads that commits need.

    Args:
        module: The module that the process runs; it calls `serve`.
        first: Makes the first message to each process that is started; there is none without it.
    """

    def __init__(self, module: str, first: Callable[[], Any] | None = None) -> None:
        self._module = module
        self._first = first
        self._talker = ThreadPoolExecutor(1, thread_name_prefix="memotree-worker")
        self.process: subprocess.Popen[bytes] | None = None
        """The process, while there is one."""
        self.waiting = 0
        """Requests that are not answered yet."""

    async def ask(self, request: Callable[[], Any]) -> Any:
        """Return the answer to a request, which is made in the thread that sends it.

        Raises:
            WorkerEndedError: The process could not be started, or ended; the next request starts another.
        """
        self.waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._talker, self._asked, request)
        finally:
            self.waiting -= 1

    async def rest(self) -> None:
        """End the process when it has answered the current requests."""
        await asyncio.get_running_loop().run_in_executor(self._talker, self._discard)

    async def stop(self) -> None:
        """End the process immediately."""
        process = self.process
        if process is not None:
            process.kill()
        await self.rest()

    def _asked(self, request: Callable[[], Any]) -> Any:
        value = request()
        try:
            if self.process is None:
                self.process = _start(self._module)
                if self._first is not None:
                    _write(_pipe(self.process.stdin), self._first())
            _write(_pipe(self.process.stdin), value)
            return _read(_pipe(self.process.stdout))
        except (OSError, EOFError, pickle.PickleError) as error:
            self._discard()
            raise WorkerEndedError(str(error)) from error
        except BaseException:
            self._discard()  # an answer may still be on its way, and would be taken for the next one
            raise

    def _discard(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):  # unsent data has no reader any more
                    if pipe is not None:
                        pipe.close()
            process.wait()


def serve(answer: Callable[[Any], Any], *, first: Callable[[Any], None] | None = None) -> None:
    """Answer requests on the standard input until it ends.

    Args:
        answer: Returns the answer to a request.
        first: Takes the first message, if the service sends one.
    """
    # Each message creates a hundred thousand objects, which are freed without a collection; only errors make cycles.
    gc.disable()
    number = 0
    with contextlib.suppress(EOFError):
        if first is not None:
            first(_read(sys.stdin.buffer))
        gc.freeze()
        while True:
            _write(sys.stdout.buffer, answer(_read(sys.stdin.buffer)))
            number += 1
            if number % _COLLECT_EVERY == 0:
                gc.collect()


def _start(module: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - a module of this package
        [sys.executable, "-P", "-m", module],  # -P: nothing from the working directory
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C at the terminal must reach only the service
    )


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # noqa: S101 - all of them are pipes
    return pipe


def _write(pipe: IO[bytes], value: Any) -> None:
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    pipe.write(len(data).to_bytes(_LENGTH_BYTES, "big"))
    pipe.write(data)
    pipe.flush()


def _read(pipe: IO[bytes]) -> Any:
    """Read the next value; ``EOFError`` if the other end has closed the pipe."""
    length = pipe.read(_LENGTH_BYTES)
    data = pipe.read(int.from_bytes(length, "big"))
    if len(length) < _LENGTH_BYTES or len(data) < int.from_bytes(length, "big"):
        message = "the other end of the pipe is closed"
        raise EOFError(message)
    return pickle.loads(data)  # noqa: S301 - from our own process, over a private pipe
