"""Ingests a document as a job: the request reads the document, the job plans its tree and commits it.

A job that is restarted (after a crash, an outage, or a limit) repeats the same steps and gets the same result, and
there is exactly one commit, at the end.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import Final, TypeVar

from memotree_storage import faults
from memotree_storage.commit.direct_import import retry_if_raced
from memotree_storage.postgres import registry
from memotree_storage.store import Store

from memotree.forest.documents import Document
from memotree.forest.documents.reader import DocumentReader
from memotree.forest.documents.serialization import from_json, to_json
from memotree.forest.ingestion.known_document import DocumentIndex
from memotree.forest.ingestion.planning import DocumentPlanner, Plan, Planning
from memotree.forest.ingestion.request_parsing import check_request, read, read_ingester
from memotree.forest.service_commit import Changeset, branch_head, commit
from memotree.forest.usage import meter_of, note
from memotree.jobs import JobContext, JobRunner
from memotree.jobs.operations import job_message
from memotree.models.gateway import Models
from memotree.models.meter import Meter
from memotree.request import lookup
from memotree.request.limits import ServiceLimits
from memotree.v1 import forest_service_pb2 as pb
from memotree.v1 import job_service_pb2, maintenance_service_pb2

KIND: Final = "ingest"
_DOCUMENT: Final = "document"
_PLANNED: Final = "planned"
_TOOL: Final = "IngestDocument"

Event = TypeVar("Event", pb.IngestDocumentResponse, pb.IngestDocumentsResponse)


class IngestDocument:
    """Ingests documents, one at a time.

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

    async def ingest_document(self, request: pb.IngestDocumentRequest) -> AsyncIterator[pb.IngestDocumentResponse]:
        """Queues a job for a document and streams its progress; the job continues if the caller disconnects."""
        check_request(request, self._limits)
        read_ingester(request, self._limits)
        order = pb.IngestDocumentRequest()
        order.CopyFrom(request)
        async with self._store.database.connection() as conn:
            workspace = await registry.find_workspace(conn, lookup.needed("workspace", request.workspace))
            order.branch = request.branch or workspace.default_branch
            state = await branch_head(conn, workspace.workspace_id, order.branch)
        index = DocumentIndex(self._store, state)
        if request.name and not request.request_id:
            # with a request id, this may be a repeat of the call that took the name
            await index.check_name(request.name, document_id=request.document_id)
        known = await index.find(request.document_id) if request.document_id else None
        subject = request.name or (known.name if known else "")
        document = await read(request, self._reader)
        order.ClearField("document")
        job = await self._runner.submit(
            workspace.workspace_id,
            KIND,
            order,
            subject=subject or document.title or request.document_id,
            lane=f"{workspace.workspace_id}/{order.branch}",
            request_id=request.request_id,
            inputs={_DOCUMENT: await asyncio.to_thread(to_json, document)},
        )
        async with aclosing(job_events(self._runner, job.id, pb.IngestDocumentResponse)) as events:
            async for event in events:
                yield event

    async def work(self, context: JobContext) -> job_service_pb2.IngestionResult:
        """Ingests one document; the work of a job."""
        request = context.request(pb.IngestDocumentRequest)
        document = await asyncio.to_thread(from_json, await context.input(_DOCUMENT))
        meter = await meter_of(context, request.max_model_tokens)
        try:
            # A retry is cheap, because the answers of models are in the cache.
            result = await retry_if_raced(partial(self._ingest, context, request, document, meter))
        finally:
            note(context, meter)
        result.warnings.extend([*document.warnings, *meter.warnings])
        return result

    async def _ingest(
        self, context: JobContext, request: pb.IngestDocumentRequest, document: Document, meter: Meter
    ) -> job_service_pb2.IngestionResult:
        async def report(step: str, done: int, total: int) -> None:
            note(context, meter)
            await context.progress(step, done, total)

        planning = Planning(self._store, self._models, context.job.id, meter, report, self._limits.max_depth)
        planner = DocumentPlanner(planning, request, context.job.id)
        async with self._store.database.connection() as conn:
            state = await branch_head(conn, context.job.workspace_id, request.branch)
        plan = await planner.plan(document, state, DocumentIndex(self._store, state))
        if plan.committed:
            result = job_service_pb2.IngestionResult.FromString(await context.kept(_PLANNED) or b"")
            result.commit_id = plan.committed
            return result
        return await self._commit(context, request, plan) if plan.changes else plan.result

    async def _commit(
        self, context: JobContext, request: pb.IngestDocumentRequest, plan: Plan
    ) -> job_service_pb2.IngestionResult:
        faults.point("ingest.planned")
        await context.keep(_PLANNED, plan.result.SerializeToString())
        await context.progress("commit", 0, len(plan.changes))
        ingester = read_ingester(request, self._limits)
        message = request.message or f"{'Ingest' if plan.is_new else 'Update'} {plan.name}"
        changeset = Changeset(plan.changes, message, _TOOL, context.job.id, ingester.author, ingester.agent)
        plan.result.commit_id = await commit(
            self._store, context.job.workspace_id, request.branch, changeset, self._limits
        )
        faults.point("ingest.committed")
        await context.progress("commit", len(plan.changes), len(plan.changes))
        return plan.result


async def job_events(runner: JobRunner, job_id: str, event: type[Event]) -> AsyncGenerator[Event]:
    """Yields a job as it is now, then its progress, then the job as it has ended, each as an event of a call."""
    job = await runner.get(job_id)
    yield event(job=job_message(job))
    reported: tuple[str, int, int] | None = None
    async with aclosing(runner.watch(job_id)) as changes:
        async for now in changes:
            job = now
            step = (job.step, job.done, job.total)
            if not job.over and job.step and step != reported:
                yield event(progress=maintenance_service_pb2.Progress(step=job.step, done=job.done, total=job.total))
                reported = step
    yield event(job=job_message(job))
