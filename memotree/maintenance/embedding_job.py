"""The job that makes an index with another embedding model beside the one that answers; it can be killed anywhere."""

from typing import Final

from memotree_storage.reindexing import NewModel, reindex_with
from memotree_storage.store import Store

from memotree.jobs.job_context import JobContext
from memotree.jobs.runner import JobRunner
from memotree.models.embeddings import EmbeddingModels
from memotree.v1 import index_service_pb2 as pb

CHANGE_EMBEDDING: Final = "change_embedding"
LANE: Final = "index"
"""All these jobs run one after the other."""


def register(runner: JobRunner, store: Store, embeddings: EmbeddingModels) -> None:
    """Registers ``change_embedding``; it can be restarted at any point.

    What a job has begun is deleted once none is unfinished any more: after a cancellation, for one.

    Args:
        runner: Runs the jobs.
        store: An open store.
        embeddings: The models.
    """

    async def change(context: JobContext) -> None:
        request = context.request(pb.ChangeEmbeddingRequest)
        embedder = embeddings.find(request.model, request.dimensions)
        await embeddings.open(embedder)
        assert store.indexes.open_points is not None  # noqa: S101 - a server gives it to its store
        points = store.indexes.open_points(embedder.model, embedder.dimensions)
        await reindex_with(store, NewModel(embedder, points), context.report)

    runner.register(CHANGE_EMBEDDING, change, when_none_is_left=store.indexes.abandon)
