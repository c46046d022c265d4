"""Reads documents in processes that have limits and can be stopped; see `reading_process`."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import IO, Any, Final, ParamSpec, TypeVar

import structlog

from memotree.forest.documents.document import Document, UnreadableDocumentError, quoted
from memotree.forest.documents.reading import read_document
from memotree.forest.documents.reading_process import LENGTH_BYTES, encode
from memotree.forest.documents.serialization import from_json

_SMALL: Final = 4096
"""A text of up to this many bytes is read in a thread of this process: no text of that size takes long."""

_PROCESSES: Final = 2
_IDLE_SECONDS: Final = 30.0
"""After this time without a document, a process ends."""

_ATTEMPTS: Final = 2
"""Processes in which a document is read before it counts as one that crashes them."""

_SLOWEST: Final = 10
"""How many times its processor time a document may take, on a machine that does other things too."""

_log = structlog.get_logger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class DocumentTooCostlyError(UnreadableDocumentError):
    """Reading the document would take more time or memory than one document may."""

    reason = "DOCUMENT_TOO_COSTLY"

    def __init__(self, name: str, limit: str, setting: str) -> None:
        super().__init__(
            f"{quoted(name)} needs more than {limit} to be read; give it in parts, or as plain text, or raise {setting}"
            " on the server."
        )


class DocumentTooLongError(UnreadableDocumentError):
    """The document has more text than one document may."""

    reason = "DOCUMENT_TOO_LONG"

    def __init__(self, name: str, most: int) -> None:
        super().__init__(f"{quoted(name)} has more than {most:,} characters; give it in parts.")


class DocumentCrashesReaderError(UnreadableDocumentError):
    """The library that reads this kind of document crashed."""

    reason = "DOCUMENT_CRASHES_READER"

    def __init__(self, name: str) -> None:
        super().__init__(f"{quoted(name)} crashed the library that reads it; save it anew, or give it as plain text.")


class ReadingFailedError(RuntimeError):
    """A defect in a reader; the message has its traceback, for the log."""


@dataclass(frozen=True, slots=True)
class ReadingLimits:
    """What one document may cost.

    Attributes:
        time: Processor time.
        memory: Bytes of memory of a reading process, with what Python itself needs.
        characters: Characters of its text.
    """

    time: timedelta = timedelta(seconds=120)
    memory: int = 2 << 30
    characters: int = 50_000_000


class DocumentReader:
    """Reads documents, two at once; a process is kept for the next one. For one event loop.

    Args:
        limits: What one document may cost.
    """

    def __init__(self, limits: ReadingLimits | None = None) -> None:
        self._limits = limits or ReadingLimits()
        self._slots = asyncio.Semaphore(_PROCESSES)
        self._talkers = ThreadPoolExecutor(_PROCESSES + 1, thread_name_prefix="memotree-documents")
        self._idle: list[_Process] = []
        self._resting: asyncio.TimerHandle | None = None

    async def read(self, data: bytes | str, *, media_type: str = "", name: str = "") -> Document:
        """Reads a document as `read_document` does, within the limits. A cancelled call stops its process.

        Raises:
            UnreadableDocumentError: As `read_document` does, or because a limit was exceeded.
            ReadingFailedError: A reader has a defect.
        """
        if isinstance(data, str) and len(data) <= _SMALL:
            return await asyncio.to_thread(read_document, data, media_type=media_type, name=name)
        body = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        request = {"media_type": media_type, "name": name, "is_text": isinstance(data, str)}
        async with self._slots:
            head, answer = await self._asked(request, body, name)
        self._refuse(head, name)
        return await asyncio.to_thread(from_json, answer)

    async def close(self) -> None:
        """Ends the idle processes. Reading has ended before, or is cancelled."""
        if self._resting is not None:
            self._resting.cancel()
        while self._idle:
            await self._run(self._idle.pop().end)
        self._talkers.shutdown(wait=False)

    async def _run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in a thread that talks to a process: waiting for it must not occupy other threads."""
        call = partial(function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._talkers, call)

    async def _asked(self, request: dict[str, Any], body: bytes, name: str) -> tuple[dict[str, Any], bytes]:
        for _ in range(_ATTEMPTS):  # the first process may have ended for a reason of its own
            process = self._idle.pop() if self._idle else _Process(self._limits)
            try:
                async with asyncio.timeout(_SLOWEST * self._limits.time.total_seconds()):
                    head, answer = await self._run(process.ask, request, body)
            except TimeoutError:
                await self._run(process.end)
                raise self._too_slow(name) from None
            except (EOFError, ConnectionError):
                status = await self._run(process.ended)
                if status == -signal.SIGXCPU:
                    raise self._too_slow(name) from None
                if status == -signal.SIGKILL:  # by the system, which is out of memory
                    raise self._too_large(name) from None
                _log.warning("the process that reads a document ended", document=name, status=status)
                continue
            except BaseException:
                await asyncio.shield(self._run(process.end))
                raise
            if head.get("cause") == "memory":
                await self._run(process.end)  # what is left of it may be in pieces
            else:
                self._keep(process)
            return head, answer
        raise DocumentCrashesReaderError(name)

    def _keep(self, process: "_Process") -> None:
        self._idle.append(process)
        if self._resting is not None:
            self._resting.cancel()
        self._resting = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._rest)

    def _rest(self) -> None:
        """End the idle processes."""
        idle, self._idle = self._idle, []
        for process in idle:
            self._talkers.submit(process.end)

    def _refuse(self, head: dict[str, Any], name: str) -> None:
        cause = head.get("cause")
        if cause == "memory":
            raise self._too_large(name)
        if cause == "length":
            raise DocumentTooLongError(name, self._limits.characters)
        if cause == "defect":
            raise ReadingFailedError(head["message"])
        if reason := head.get("reason"):
            raise _error(reason, head["message"])

    def _too_slow(self, name: str) -> DocumentTooCostlyError:
        limit = f"{self._limits.time.total_seconds():g} seconds of processor time"
        return DocumentTooCostlyError(name, limit, "MEMOTREE_DOCUMENT_TIME")

    def _too_large(self, name: str) -> DocumentTooCostlyError:
        return DocumentTooCostlyError(name, f"{self._limits.memory >> 20} MiB of memory", "MEMOTREE_DOCUMENT_MEMORY")


class _Process:
    """One reading process, which begins with its first document. The methods block; call them in a thread."""

    def __init__(self, limits: ReadingLimits) -> None:
        self._arguments = (str(limits.time.total_seconds()), str(limits.memory), str(limits.characters))
        self._changing = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def ask(self, request: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        """The head and the body of the answer; ``EOFError`` or ``ConnectionError`` if the process ended."""
        process = self._begun()
        assert process.stdin is not None  # noqa: S101 - both are pipes
        assert process.stdout is not None  # noqa: S101
        process.stdin.write(encode(request, body))
        process.stdin.flush()
        length = int.from_bytes(_read(process.stdout, LENGTH_BYTES), "big")
        head: dict[str, Any] = json.loads(_read(process.stdout, length))
        return head, _read(process.stdout, head["length"])

    def _begun(self) -> "subprocess.Popen[bytes]":
        with self._changing:
            if self._is_over:  # the call was cancelled before this thread came to it
                raise EOFError
            if self._process is None:
                # Not by the event loop: uvloop runs Python code in the fork, which crashes beside the threads of gRPC.
                self._process = subprocess.Popen(  # noqa: S603 - our own program
                    [sys.executable, "-P", "-m", "memotree.forest.documents.reading_process", *self._arguments],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C at the terminal must reach only the service
                )
            return self._process

    def ended(self) -> int:
        """The exit status of a process that has closed its output, so that it is ending; negative after a signal."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1)
        return self.end()

    def end(self) -> int:
        """End the process, if it has not ended; return its exit status."""
        with self._changing:
            self._is_over = True
            process = self._process
        if process is None:
            return 0
        process.kill()  # does nothing if it has ended
        status = process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):  # unsent data has no reader any more
                if pipe is not None:
                    pipe.close()
        return status


def _read(pipe: IO[bytes], count: int) -> bytes:
    data = pipe.read(count)
    if len(data) < count:
        raise EOFError
    return data


def _error(reason: str, message: str) -> UnreadableDocumentError:
    """The error that the reading process had, with its class."""
    for kind in _kinds(UnreadableDocumentError):
        if kind.reason == reason:
            error = kind.__new__(kind)
            UnreadableDocumentError.__init__(error, message)
            return error
    return UnreadableDocumentError(message)


def _kinds(kind: type[UnreadableDocumentError]) -> Iterator[type[UnreadableDocumentError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)
