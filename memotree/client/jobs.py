"""Jobs on the server, as plain values, and the calls that list, watch, cancel and resume them."""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Self, TypeAlias

from memotree.client.enums import JobState, JobStateName, from_wire, to_wire
from memotree.client.node_values import moment
from memotree.client.paging import pages
from memotree.client.transport import Transport
from memotree.client.workspace_values import Progress
from memotree.v1 import job_service_pb2 as wire
from memotree.v1 import types_pb2

_PER_PAGE = 200


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """The usage of one model.

    Attributes:
        kind: ``chat``, ``embedding`` or ``rerank``.
        model: The name of the model.
        calls: The number of calls that reached it.
        prompt_tokens: The tokens that it read.
        completion_tokens: The tokens that it wrote.
        cached: The number of texts that were answered from the cache.
    """

    kind: str
    model: str = ""
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached: int = 0

    @classmethod
    def from_wire(cls, message: types_pb2.ModelUsage) -> Self:
        """Reads the message."""
        return cls(
            message.kind,
            message.model,
            message.calls,
            message.prompt_tokens,
            message.completion_tokens,
            message.cached,
        )


@dataclass(frozen=True, slots=True)
class Ingestion:
    """The result of an ingestion; ``commit_id`` is empty if the document had not changed."""

    archive_id: str
    document_id: str = ""
    commit_id: str = ""
    created_leaves: int = 0
    kept_leaves: int = 0
    removed_leaves: int = 0
    summary_nodes: int = 0
    roots: int = 0
    pending_summaries: int = 0
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_wire(cls, message: wire.IngestionResult) -> Self:
        """Reads the message."""
        return cls(
            message.archive_id,
            message.document_id,
            message.commit_id,
            message.created_leaves,
            message.kept_leaves,
            message.removed_leaves,
            message.summary_nodes,
            message.roots,
            message.pending_summaries,
            tuple(message.warnings),
        )


@dataclass(frozen=True, slots=True)
class IngestedDocument:
    """What became of one document of a batch: its ingestion, or the error code and the reason why it failed."""

    name: str
    document_id: str = ""
    ingestion: Ingestion | None = None
    reason: str = ""
    message: str = ""

    @classmethod
    def from_wire(cls, message: wire.IngestedDocument) -> Self:
        """Reads the message."""
        return cls(
            message.name,
            message.document_id,
            Ingestion.from_wire(message.ingestion) if message.HasField("ingestion") else None,
            message.reason,
            message.message,
        )


@dataclass(frozen=True, slots=True)
class Renewal:
    """The result of a renewal of summaries; ``commit_id`` is empty if there was nothing to renew."""

    commit_id: str = ""
    renewed: int = 0
    pending: int = 0

    @classmethod
    def from_wire(cls, message: wire.RenewalResult) -> Self:
        """Reads the message."""
        return cls(message.commit_id, message.renewed, message.pending)


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it was when it was read.

    Attributes:
        id: The id, sixteen characters.
        workspace_id: The workspace it belongs to.
        kind: ``ingest``, ``ingest_documents``, ``renew_summaries``, ``rebuild``, ``reindex``, ``erase`` or
            ``change_embedding``.
        subject: What it works on, as text for people.
        state: Its state.
        progress: The progress of its current step; ``None`` before the first step.
        reason: The error code, if it failed or stopped.
        message: Why it failed or stopped, and what to do next.
        attempts: How often it was started.
        create_time: When it was created.
        update_time: When it last changed.
        ingestion: The result of a successful ``ingest``.
        renewal: The result of a successful ``renew_summaries``.
        usage: The usage of models by this job.
        documents: The documents of a successful ``ingest_documents``, in the order of the call.
    """

    id: str
    workspace_id: str = ""
    kind: str = ""
    subject: str = ""
    state: JobState = JobState.QUEUED
    progress: Progress | None = None
    reason: str = ""
    message: str = ""
    attempts: int = 0
    create_time: datetime | None = None
    update_time: datetime | None = None
    ingestion: Ingestion | None = None
    renewal: Renewal | None = None
    usage: tuple[ModelUsage, ...] = ()
    documents: tuple[IngestedDocument, ...] = ()

    @property
    def over(self) -> bool:
        """Whether it has ended; only resuming it can start it again."""
        return self.state not in {JobState.QUEUED, JobState.RUNNING}

    @classmethod
    def from_wire(cls, message: wire.Job) -> Self:
        """Reads the message."""
        return cls(
            message.id,
            message.workspace_id,
            message.kind,
            message.subject,
            from_wire(JobState, message.state, JobState.QUEUED),
            Progress.from_wire(message.progress) if message.HasField("progress") else None,
            message.reason,
            message.message,
            message.attempts,
            moment(message, "create_time"),
            moment(message, "update_time"),
            Ingestion.from_wire(message.ingestion) if message.HasField("ingestion") else None,
            Renewal.from_wire(message.renewal) if message.HasField("renewal") else None,
            tuple(ModelUsage.from_wire(usage) for usage in message.usage),
            tuple(IngestedDocument.from_wire(each) for each in message.batch_ingestion.documents),
        )


JobRef: TypeAlias = Job | str
"""A job, its id, or a unique prefix of its id."""


def _id(job: JobRef) -> str:
    return job if isinstance(job, str) else job.id


def _listed(transport: Transport, workspace: str, states: Iterable[JobStateName], kind: str) -> AsyncIterator[Job]:
    request = wire.ListJobsRequest(
        workspace=workspace, states=[to_wire(JobState, state) for state in states], kind=kind, page_size=_PER_PAGE
    )
    return pages(transport, request, wire.ListJobsResponse, lambda page: map(Job.from_wire, page.jobs))


class AsyncJobs:
    """Calls about the jobs of a server, over any transport."""

    _transport: Transport

    def jobs(self, *, states: Iterable[JobStateName] = (), kind: str = "") -> AsyncIterator[Job]:
        """The jobs of all workspaces, newest first; filtered by states and kind, if given."""
        return _listed(self._transport, "", states, kind)

    async def job(self, job: JobRef) -> Job:
        """The current state of a job."""
        return Job.from_wire((await self._transport.call(wire.GetJobRequest(job_id=_id(job)), wire.GetJobResponse)).job)

    async def watch_job(self, job: JobRef) -> AsyncIterator[Job]:
        """Yields a job now and at each change until it has ended. The job continues if you stop watching."""
        async for event in self._transport.stream(wire.WatchJobRequest(job_id=_id(job)), wire.WatchJobResponse):
            yield Job.from_wire(event.job)

    async def cancel_job(self, job: JobRef) -> Job:
        """Cancels a job; its commits stay."""
        request = wire.CancelJobRequest(job_id=_id(job))
        return Job.from_wire((await self._transport.call(request, wire.CancelJobResponse)).job)

    async def resume_job(self, job: JobRef, *, max_model_tokens: int | None = None) -> Job:
        """Resumes a job that stopped, failed or was cancelled.

        Args:
            job: The job.
            max_model_tokens: A new limit of model tokens, counted from the job's start; unchanged if ``None``.
        """
        request = wire.ResumeJobRequest(job_id=_id(job), max_model_tokens=max_model_tokens)
        return Job.from_wire((await self._transport.call(request, wire.ResumeJobResponse)).job)


class AsyncRebuilds:
    """Calls about the jobs of one workspace."""

    _transport: Transport
    _workspace: str

    def jobs(self, *, states: Iterable[JobStateName] = (), kind: str = "") -> AsyncIterator[Job]:
        """The jobs of the workspace, newest first; filtered by states and kind, if given."""
        return _listed(self._transport, self._workspace, states, kind)

    async def start_rebuild(self, *, request_id: str = "") -> Job:
        """Rebuilds rows and vectors from Git, as a job; staged changes stay."""
        request = wire.StartRebuildRequest(workspace=self._workspace, request_id=request_id)
        return Job.from_wire((await self._transport.call(request, wire.StartRebuildResponse)).job)

    async def start_reindex(self, *, request_id: str = "") -> Job:
        """Computes all vectors again with the present model, as a job: for an index that was lost or damaged."""
        request = wire.StartReindexRequest(workspace=self._workspace, request_id=request_id)
        return Job.from_wire((await self._transport.call(request, wire.StartReindexResponse)).job)
