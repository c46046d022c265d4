"""Long work on the server: jobs as plain values, and the calls that list, watch, end and resume them."""

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
    """What one model was asked for.

    Attributes:
        kind: ``chat``, ``embedding`` or ``rerank``.
        model: Its name.
        calls: Calls that reached it.
        prompt_tokens: Tokens that it read.
        completion_tokens: Tokens that it wrote.
        cached: Texts that were answered from the cache.
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
    """What an ingestion made; ``commit_id`` is empty when the document had not changed."""

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
class Renewal:
    """What a renewal of summaries made; ``commit_id`` is empty when there was nothing to renew."""

    commit_id: str = ""
    renewed: int = 0
    pending: int = 0

    @classmethod
    def from_wire(cls, message: wire.RenewalResult) -> Self:
        """Reads the message."""
        return cls(message.commit_id, message.renewed, message.pending)


@dataclass(frozen=True, slots=True)
class Job:
    """A piece of long work as it stood when it was read.

    Attributes:
        id: Sixteen characters.
        workspace_id: The workspace it belongs to.
        kind: ``ingest``, ``renew_summaries``, ``rebuild`` or ``reindex``.
        subject: What it works on, for a person.
        state: Where it stands.
        progress: How far it is in its present step; ``None`` before the first.
        reason: Why it failed or stopped: an error code.
        message: The same as a sentence that says what to do next.
        attempts: How often it was begun.
        create_time: When it was asked for.
        update_time: When it last changed.
        ingestion: The result of an ``ingest`` that has succeeded.
        renewal: The result of a ``renew_summaries`` that has succeeded.
        usage: What models were asked for on its behalf.
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

    @property
    def over(self) -> bool:
        """Whether nothing happens to it any more unless somebody resumes it."""
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
        )


JobRef: TypeAlias = Job | str
"""A job, its id, or a unique beginning of its id."""


def _id(job: JobRef) -> str:
    return job if isinstance(job, str) else job.id


def _listed(transport: Transport, workspace: str, states: Iterable[JobStateName], kind: str) -> AsyncIterator[Job]:
    request = wire.ListJobsRequest(
        workspace=workspace, states=[to_wire(JobState, state) for state in states], kind=kind, page_size=_PER_PAGE
    )
    return pages(transport, request, wire.ListJobsResponse, lambda page: map(Job.from_wire, page.jobs))


class AsyncJobs:
    """The jobs of a server, over any link."""

    _transport: Transport

    def jobs(self, *, states: Iterable[JobStateName] = (), kind: str = "") -> AsyncIterator[Job]:
        """The jobs of all workspaces, the newest first; only those in one of the states and of the kind, if given."""
        return _listed(self._transport, "", states, kind)

    async def job(self, job: JobRef) -> Job:
        """A job as it is now."""
        return Job.from_wire((await self._transport.call(wire.GetJobRequest(job_id=_id(job)), wire.GetJobResponse)).job)

    async def watch_job(self, job: JobRef) -> AsyncIterator[Job]:
        """A job as it is now, then at each change until it is over. To go away does not stop it."""
        async for event in self._transport.stream(wire.WatchJobRequest(job_id=_id(job)), wire.WatchJobResponse):
            yield Job.from_wire(event.job)

    async def cancel_job(self, job: JobRef) -> Job:
        """Ends a job; what it has committed stays."""
        request = wire.CancelJobRequest(job_id=_id(job))
        return Job.from_wire((await self._transport.call(request, wire.CancelJobResponse)).job)

    async def resume_job(self, job: JobRef, *, max_model_tokens: int | None = None) -> Job:
        """Goes on with a job that stopped, failed or was cancelled.

        Args:
            job: The job.
            max_model_tokens: Another limit of model tokens, counted from the job's begin; its own when ``None``.
        """
        request = wire.ResumeJobRequest(job_id=_id(job), max_model_tokens=max_model_tokens)
        return Job.from_wire((await self._transport.call(request, wire.ResumeJobResponse)).job)


class AsyncRebuilds:
    """The jobs of one workspace."""

    _transport: Transport
    _workspace: str

    def jobs(self, *, states: Iterable[JobStateName] = (), kind: str = "") -> AsyncIterator[Job]:
        """The jobs of the workspace, the newest first; only those in one of the states and of the kind, if given."""
        return _listed(self._transport, self._workspace, states, kind)

    async def start_rebuild(self, *, request_id: str = "") -> Job:
        """Makes rows and vectors anew from Git, as a job; staged changes stay."""
        request = wire.StartRebuildRequest(workspace=self._workspace, request_id=request_id)
        return Job.from_wire((await self._transport.call(request, wire.StartRebuildResponse)).job)

    async def start_reindex(self, *, request_id: str = "") -> Job:
        """Makes vectors anew, as a job: for another embedding model, or when the index was lost."""
        request = wire.StartReindexRequest(workspace=self._workspace, request_id=request_id)
        return Job.from_wire((await self._transport.call(request, wire.StartReindexResponse)).job)
