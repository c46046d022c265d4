"""Reads documents in processes that have limits and can be stopped; see `reading_process`."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from memotree.forest.documents.document import Document, UnreadableDocumentError, quoted
from memotree.forest.documents.reading import read_document
from memotree.forest.documents.serialization import from_json
from memotree.workers.pool import Program, WorkerCrashedError, WorkerPool, WorkerTooLargeError, WorkerTooSlowError

_PROGRAM: Final = "memotree.forest.documents.reading_process"

_SMALL: Final = 4096
"""A text of up to this many bytes is read in a thread of this process: no text of that size takes long."""

_PROCESSES: Final = 2
_ATTEMPTS: Final = 2
"""Processes in which a document is read before it counts as one that crashes them."""

_SLOWEST: Final = 10
"""How many times its processor time a document may take, on a machine that does other things too."""


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
        numbers = (self._limits.time.total_seconds(), self._limits.memory, self._limits.characters)
        self._workers = WorkerPool(Program(_PROGRAM, tuple(map(str, numbers))), _PROCESSES, _ATTEMPTS)

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
        try:
            head, answer = await self._workers.ask(request, body, _SLOWEST * self._limits.time.total_seconds())
        except WorkerTooSlowError:
            limit = f"{self._limits.time.total_seconds():g} seconds of processor time"
            raise DocumentTooCostlyError(name, limit, "MEMOTREE_DOCUMENT_TIME") from None
        except WorkerTooLargeError:
            limit = f"{self._limits.memory >> 20} MiB of memory"
            raise DocumentTooCostlyError(name, limit, "MEMOTREE_DOCUMENT_MEMORY") from None
        except WorkerCrashedError:
            raise DocumentCrashesReaderError(name) from None
        self._refuse(head, name)
        return await asyncio.to_thread(from_json, answer)

    async def close(self) -> None:
        """Ends the idle processes. Reading has ended before, or is cancelled."""
        await self._workers.close()

    def _refuse(self, head: dict[str, Any], name: str) -> None:
        cause = head.get("cause")
        if cause == "length":
            raise DocumentTooLongError(name, self._limits.characters)
        if cause == "defect":
            raise ReadingFailedError(head["message"])
        if reason := head.get("reason"):
            raise _error(reason, head["message"])


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
