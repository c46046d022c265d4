"""Extracts the terms of many texts in a worker process: ``python -m memotree_storage.index.term_worker``.

It serves embedding models that cannot be copied into a `feature_worker`, which reads the texts itself.
"""

from collections.abc import Sequence
from typing import Any, Final

import structlog

from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.index.leaf_features import LeafTerms, node_terms
from memotree_storage.index.node_text import NodeText, text_of
from memotree_storage.index.worker_process import WorkerEndedError, WorkerProcess, serve
from memotree_storage.model.node import Node
from memotree_storage.ports import TermVector

_MANY: Final = 200
"""From this many texts on, a process pays off; fewer are processed in a thread."""

_log = structlog.get_logger(__name__)

NodeTerms = tuple[TermVector, LeafTerms | None]
"""The terms of a whole node, and those of its leaf if it has leaf features."""


class TermMaker:
    """Extracts the terms of nodes: of few in a thread, of many in a worker process that runs until `rest`."""

    def __init__(self) -> None:
        self.worker = WorkerProcess("memotree_storage.index.term_worker")

    async def terms_of(self, nodes: Sequence[Node]) -> list[NodeTerms]:
        """Return the terms of each node, in order."""

        def texts() -> list[NodeText]:
            return [text_of(node) for node in nodes]

        if len(nodes) >= _MANY:
            try:
                return _unpacked(await self.worker.ask(texts))
            except WorkerEndedError as error:
                _log.warning("term worker ended; its work is done in this process", why=str(error))
        return await in_store_thread(lambda: _made(texts()))

    async def rest(self) -> None:
        """End the worker when it has answered the current request; the next large request starts another."""
        await self.worker.rest()

    async def stop(self) -> None:
        """End the worker immediately."""
        await self.worker.stop()


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


def _unpacked(answer: Sequence[tuple[Any, ...]]) -> list[NodeTerms]:
    return [
        (TermVector(ids, weights), LeafTerms(*leaf_features) if leaf_features else None)
        for ids, weights, leaf_features in answer
    ]


if __name__ == "__main__":
    serve(lambda texts: [_packed(made) for made in _made(texts)])
