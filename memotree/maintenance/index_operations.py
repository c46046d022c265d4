"""The operations of IndexService."""

from memotree_storage.errors import InvalidInputError
from memotree_storage.postgres.requests import NO_WORKSPACE

from memotree.jobs.operations import job_message
from memotree.jobs.runner import JobRunner
from memotree.maintenance import embedding_job
from memotree.models.embeddings import EmbeddingModels
from memotree.request import lookup
from memotree.v1 import index_service_pb2 as pb


class IndexOperations:
    """Starts the change to another embedding model.

    Args:
        runner: Runs the job.
        embeddings: The models.
    """

    def __init__(self, runner: JobRunner, embeddings: EmbeddingModels) -> None:
        self._runner = runner
        self._embeddings = embeddings

    async def change_embedding(self, request: pb.ChangeEmbeddingRequest) -> pb.ChangeEmbeddingResponse:
        """Starts a job that makes an index with another embedding model."""
        if request.dimensions < 0:
            raise InvalidInputError.at("dimensions", "is below 0; give the length of the vectors, or 0 for its own.")
        self._embeddings.find(lookup.needed("model", request.model), request.dimensions)
        started = await self._runner.submit(
            NO_WORKSPACE,
            embedding_job.CHANGE_EMBEDDING,
            request,
            subject=f"{request.model} {request.dimensions or ''}".rstrip(),
            lane=embedding_job.LANE,
            request_id=request.request_id,
        )
        return pb.ChangeEmbeddingResponse(job=job_message(started))
