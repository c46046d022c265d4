"""The terms of many texts, made by a process of its own: ``python -m memotree_storage.term_worker``.

Terms are the greatest single cost of indexing and Python runs one thread at a time, so an import would leave the other
cores idle. A frame on a pipe is its length in eight bytes and a pickle; the worker ends when its input does, which the
death of the service brings about as well.
"""

import asyncio
import contextlib
import gc
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO, Any, Final

import structlog

from memotree_storage.node import Node
from memotree_storage.ports import TermVector
from memotree_storage.terms import document_terms

_MANY: Final = 200
"""So many texts are worth a process; fewer are done in a thread."""

_LENGTH_BYTES: Final = 8
_log = structlog.get_logger(__name__)

_Text = tuple[str, tuple[str, ...], str, str, str]


class TermMaker:
    """Makes the terms of nodes, few in a thread, many in a worker that lives until `rest`. Safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._worker: subprocess.Popen[bytes] | None = None

    async def terms_of(self, nodes: Sequence[Node]) -> list[TermVector]:
        """The terms of each node, in order."""
        texts = [(node.title, node.tags, node.brief, node.summary, node.content) for node in nodes]
        return await asyncio.to_thread(self._asked if len(texts) >= _MANY else _made, texts)

    async def rest(self) -> None:
        """End the worker; the next need starts another."""
        await asyncio.to_thread(self._end)

    def _asked(self, texts: Sequence[_Text]) -> list[TermVector]:
        with self._lock:
            try:
                if self._worker is None:
                    self._worker = _start()
                stdin, stdout = self._worker.stdin, self._worker.stdout
                assert stdin is not None  # noqa: S101 - both are pipes
                assert stdout is not None  # noqa: S101
                _write(stdin, texts)
                return [TermVector(*pair) for pair in _read(stdout)]
            except (OSError, EOFError, pickle.UnpicklingError) as error:
                _log.warning("the worker for terms ended; this process does its work", why=str(error))
                self._discard()
        return _made(texts)

    def _end(self) -> None:
        with self._lock:
            self._discard()

    def _discard(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()  # it holds nothing that could be lost
            for pipe in (worker.stdin, worker.stdout):
                with contextlib.suppress(OSError):  # what was not sent has no reader any more
                    if pipe is not None:
                        pipe.close()
            worker.wait()


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "memotree_storage.term_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C at the terminal is for the service alone
    )


def _made(texts: Sequence[_Text]) -> list[TermVector]:
    return [document_terms(*text) for text in texts]


def _write(pipe: IO[bytes], value: Any) -> None:
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    pipe.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
    pipe.flush()


def _read(pipe: IO[bytes]) -> Any:
    """The next value; ``EOFError`` when the other end has closed."""
    length = pipe.read(_LENGTH_BYTES)
    data = pipe.read(int.from_bytes(length, "big"))
    if len(length) < _LENGTH_BYTES or len(data) < int.from_bytes(length, "big"):
        message = "the other end of the pipe is closed"
        raise EOFError(message)
    return pickle.loads(data)  # noqa: S301 - from our own process, over a pipe that nobody else holds


def main() -> None:
    """Answer frames until the input ends."""
    gc.disable()  # nothing here is cyclic, and each frame makes a hundred thousand objects
    while True:
        try:
            texts = _read(sys.stdin.buffer)
        except EOFError:
            return
        _write(sys.stdout.buffer, [(vector.ids, vector.weights) for vector in _made(texts)])


if __name__ == "__main__":
    main()
