"""Extracts the terms of many texts in a worker process: ``python -m memotree_storage.index.term_worker``.

Extracting terms is the largest single cost of indexing, and Python runs one thread at a time, so an import would leave
the other cores idle. A message on the pipe is its length in eight bytes and a pickle. The worker ends when its input
does, which also happens when the service dies.
"""

import asyncio
import contextlib
import gc
import pickle
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, Final

import structlog

from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.index.leaf_features import LeafTerms, node_terms
from memotree_storage.index.node_text import NodeText, text_of
from memotree_storage.model.node import Node
from memotree_storage.ports import TermVector

_MANY: Final = 200
"""From this many texts on, a process pays off; fewer are processed in a thread."""

_LENGTH_BYTES: Final = 8
_log = structlog.get_logger(__name__)

NodeTerms = tuple[TermVector, LeafTerms | None]
"""The terms of a whole node, and those of its leaf if it has leaf features."""


class TermMaker:
    """Extracts the terms of nodes: of few in a thread, of many in a worker process that runs until `rest`.

    A dedicated thread talks to the worker, since waiting for it must not occupy the threads that commits need.
    """

    def __init__(self) -> None:
        self._talker = ThreadPoolExecutor(1, thread_name_prefix="memotree-terms")
        self._worker: subprocess.Popen[bytes] | None = None

    async def terms_of(self, nodes: Sequence[Node]) -> list[NodeTerms]:
        """Return the terms of each node, in order."""
        if len(nodes) < _MANY:
            return await in_store_thread(lambda: _made([text_of(node) for node in nodes]))
        return await asyncio.get_running_loop().run_in_executor(self._talker, self._asked, nodes)

    async def rest(self) -> None:
        """End the worker when it has answered the current request; the next large request starts another."""
        await asyncio.get_running_loop().run_in_executor(self._talker, self._discard)

    async def stop(self) -> None:
        """End the worker immediately."""
        worker = self._worker
        if worker is not None:
            worker.kill()
        await self.rest()

    def _asked(self, nodes: Sequence[Node]) -> list[NodeTerms]:
        texts = [text_of(node) for node in nodes]
        try:
            if self._worker is None:
                self._worker = _start()
            stdin, stdout = self._worker.stdin, self._worker.stdout
            assert stdin is not None  # noqa: S101 - both are pipes
            assert stdout is not None  # noqa: S101
            _write(stdin, texts)
            return [
                (TermVector(ids, weights), LeafTerms(*leaf_features) if leaf_features else None)
                for ids, weights, leaf_features in _read(stdout)
            ]
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            _log.warning("term worker ended; its work is done in this process", why=str(error))
            self._discard()
            return _made(texts)
        except BaseException:
            self._discard()  # an answer may still be on its way, and would be taken for the next one
            raise

    def _discard(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()  # it has no state that could be lost
            for pipe in (worker.stdin, worker.stdout):
                with contextlib.suppress(OSError):  # unsent data has no reader any more
                    if pipe is not None:
                        pipe.close()
            worker.wait()


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "memotree_storage.index.term_worker"],  # -P: nothing from the working directory
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C at the terminal must reach only the service
    )


def _made(texts: Sequence[NodeText]) -> list[NodeTerms]:
    return [node_terms(text) for text in texts]


def _packed(made: NodeTerms) -> tuple[Any, ...]:
    """The terms as plain values, which are pickled faster than objects."""
    vector, leaf_features = made
    return (
        vector.ids,
        vector.weights,
        (leaf_features.terms, leaf_features.counts, leaf_features.length) if leaf_features else None,
    )


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


def main() -> None:
    """Answer requests until the input ends."""
    gc.disable()  # there are no reference cycles here, and each message creates a hundred thousand objects
    while True:
        try:
            texts = _read(sys.stdin.buffer)
        except EOFError:
            return
        _write(sys.stdout.buffer, [_packed(made) for made in _made(texts)])


if __name__ == "__main__":
    main()
