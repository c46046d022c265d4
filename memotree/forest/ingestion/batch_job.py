"""Ingests several documents as one job: the request reads them, the job plans their trees and commits them together.

A document that cannot be read, or whose request is wrong, is refused alone: the job keeps the refusal for its result.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Final

import structlog
from memotree_storage.errors import InvalidInputError
from memotree_storage.postgres import registry
from memotree_storage.store import Store

from memotree.error_mapping import HIDDEN, INTERNAL_REASON, classify
from memotree.forest.documents.reader import DocumentReader
from memotree.forest.documents.serialization import to_json
from memotree.forest.ingestion.batch_run import KIND, BatchRun, input_name, refusal_name, request_for
from memotree.forest.ingestion.job import job_events
from memotree.forest.ingestion.request_parsing import check_request, read, read_ingester
from memotree.forest.service_commit import branch_head
from memotree.forest.usage import meter_of, note
from memotree.jobs import JobContext, JobRunner
from memotree.jobs.outcomes import with_faults
from memotree.models.gateway import Models
from memotree.request import lookup
from memotree.request.limits import ServiceLimits
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import job_service_pb2

MOST_DOCUMENTS: Final = 100
"""The most documents of one job. They are in memory until their commit, and a commit should stay readable."""

_FAULT: Final = "MemoTree had an internal error while it read this document; the server's log has the details."
_log = structlog.get_logger(__name__)


class DocumentGivenTwiceError(InvalidInputError):
    """Two documents of one call have the same id."""

    reason = "DOCUMENT_GIVEN_TWICE"


class IngestDocuments:
    """Ingests several documents in one commit.

    Args:
        store: The store.
        models: The gateway to the models.
        runner: Runs the jobs; `work` is registered with it for the kind `KIND`.
        limits: The limits of the service.
        reader: Reads documents.
    """

    def __init__(
        self, store: Store, models: Models, runner: JobRunner, limits: ServiceLimits, reader: DocumentReader
    ) -> None:
        self._reader = reader
        self._store = store
        self._models = models
        self._runner = runner
        self._limits = limits
        runner.register(KIND, self.work)

    async def ingest_documents(self, request: pb.IngestDocumentsRequest) -> AsyncIterator[pb.IngestDocumentsResponse]:
        """Queues a job for several documents and streams its progress; it continues if the caller disconnects."""
        if not 0 < len(request.documents) <= MOST_DOCUMENTS:
            raise InvalidInputError.at(
                "documents", f"has {len(request.documents)} documents; give from 1 to {MOST_DOCUMENTS} in one call."
            )
        read_ingester(request, self._limits)
        order = pb.IngestDocumentsRequest()
        async with self._store.database.connection() as conn:
            workspace = await registry.find_workspace(conn, lookup.needed("workspace", request.workspace))
            branch = request.branch or workspace.default_branch
            await branch_head(conn, workspace.workspace_id, branch)
        check_request(_without_document(request), self._limits, has_document=False)
        order.CopyFrom(request)
        order.branch = branch
        for asked in order.documents:
            asked.ClearField("document")
        first, count = order.documents[0], len(order.documents)
        job = await self._runner.submit(
            workspace.workspace_id,
            KIND,
            order,
            subject=f"{count} documents" if count > 1 else first.name or first.document_id,
            lane=f"{workspace.workspace_id}/{order.branch}",
            request_id=request.request_id,
            inputs=await self._read_all(request),
        )
        async with aclosing(job_events(self._runner, job.id, pb.IngestDocumentsResponse)) as events:
            async for event in events:
                yield event

    async def work(self, context: JobContext) -> job_service_pb2.BatchIngestionResult:
        """Ingests the documents of a call; the work of a job."""
        request = context.request(pb.IngestDocumentsRequest)
        meter = await meter_of(context, request.max_model_tokens)
        try:
            return await BatchRun(self._store, self._models, self._limits, context, request, meter).run()
        finally:
            note(context, meter)

    async def _read_all(self, request: pb.IngestDocumentsRequest) -> dict[str, bytes]:
        """Returns the inputs of the job: each document, or why it is refused."""
        inputs: dict[str, bytes] = {}
        given: set[str] = set()
        for number in range(len(request.documents)):
            asked = request_for(request, number)
            try:
                _check_given_once(asked.document_id, given)
                check_request(asked, self._limits)
                inputs[input_name(number)] = await asyncio.to_thread(to_json, await read(asked, self._reader))
            except Exception as error:  # noqa: BLE001 - a defect that one document meets must not stop the others
                inputs[refusal_name(number)] = _refusal(error).SerializeToString(deterministic=True)
        return inputs


def _refusal(error: Exception) -> job_service_pb2.IngestedDocument:
    """Returns why a document is refused; the details of an unexpected error go only to the log."""
    answer = classify(error)
    if answer is HIDDEN:
        _log.error("a document could not be read because of an unexpected error", exc_info=error)
        return job_service_pb2.IngestedDocument(reason=INTERNAL_REASON, message=_FAULT)
    return job_service_pb2.IngestedDocument(reason=answer.reason, message=with_faults(answer.message, error))


def _check_given_once(document_id: str, given: set[str]) -> None:
    if document_id and document_id in given:
        raise DocumentGivenTwiceError.at(
            "document_id", f"{document_id!r} is given twice in this call. Leave one of the two out."
        )
    given.add(document_id)


def _without_document(request: pb.IngestDocumentsRequest) -> pb.IngestDocumentRequest:
    """Returns the options of all documents, to be checked once."""
    options = request_for(request, 0)
    for name in ("name", "document_id"):
        options.ClearField(name)
    return options
