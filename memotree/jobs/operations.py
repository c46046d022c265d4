"""The operations of JobService."""

from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from typing import Final

from memotree_storage.errors import FailedPreconditionError, InvalidInputError
from memotree_storage.model.access import ALL_JOBS, JobSight
from memotree_storage.model.node import is_id, is_id_prefix
from memotree_storage.model.workspace import WorkspaceNotFoundError
from memotree_storage.postgres import jobs, registry
from memotree_storage.postgres.jobs import Job, JobFilter
from memotree_storage.postgres.registry import Workspace
from memotree_storage.store import Store

from memotree.jobs import rebuilds
from memotree.jobs.runner import JobNotFoundError, JobRunner
from memotree.request import lookup
from memotree.request.messages import timestamp
from memotree.request.pages import PageTokens, page_size
from memotree.request.principal import check_again, principal
from memotree.v1 import job_service_pb2 as pb
from memotree.v1 import maintenance_service_pb2, types_pb2

RESUMED_LIMIT: Final = "max_model_tokens"
"""The name of the note with the limit that a job was resumed with, in decimal digits."""

_STATES: Final = {
    jobs.QUEUED: pb.JOB_STATE_QUEUED,
    jobs.RUNNING: pb.JOB_STATE_RUNNING,
    jobs.SUCCEEDED: pb.JOB_STATE_SUCCEEDED,
    jobs.FAILED: pb.JOB_STATE_FAILED,
    jobs.STOPPED: pb.JOB_STATE_STOPPED,
    jobs.CANCELLED: pb.JOB_STATE_CANCELLED,
}
_NAMES: Final = {number: name for name, number in _STATES.items()}
_RESULTS: Final = {
    field.message_type.full_name: field.name
    for field in pb.Job.DESCRIPTOR.oneofs_by_name["result"].fields
    if field.message_type is not None
}
"""The field of the message ``Job`` for each type of result."""
_MOST_CANDIDATES: Final = 10


class AmbiguousJobIdError(InvalidInputError):
    """The ids of several jobs begin with this text."""

    reason = "AMBIGUOUS_JOB_ID"


class JobNotResumableError(FailedPreconditionError):
    """The job is running, queued or has succeeded, so it cannot be resumed."""

    reason = "JOB_NOT_RESUMABLE"


class JobOperations:
    """Reads, watches, cancels and resumes jobs, and starts the maintenance jobs of a workspace."""

    def __init__(self, store: Store, pages: PageTokens, runner: JobRunner) -> None:
        self._store = store
        self._pages = pages
        self._runner = runner

    def stopping(self) -> None:
        """Ends all watching and returns running jobs to the queue, because the server is stopping."""
        self._runner.begin_stop()

    async def get_job(self, request: pb.GetJobRequest) -> pb.GetJobResponse:
        """Reads a job."""
        return pb.GetJobResponse(job=job_message(await self._runner.get(await self._id(request.job_id))))

    async def list_jobs(self, request: pb.ListJobsRequest) -> pb.ListJobsResponse:
        """Lists the jobs that the caller sees, the newest first."""
        size = page_size(request.page_size)
        cursor = self._pages.read(request, {"before": int})
        states = _states(request.states)
        workspace_id = (await self._workspace(request.workspace)).workspace_id if request.workspace else ""
        if workspace_id and not principal().reads(workspace_id):
            raise WorkspaceNotFoundError(request.workspace)
        wanted = JobFilter(workspace_id, states, request.kind, principal().jobs)
        async with self._store.database.connection() as conn:
            found = await jobs.list_jobs(conn, wanted, before=cursor["before"] if cursor else None, limit=size + 1)
        last = {"before": found[size - 1].number} if len(found) > size else None
        return pb.ListJobsResponse(
            jobs=[job_message(self._runner.seen(job)) for job in found[:size]],
            next_page_token=self._pages.write(request, last),
        )

    async def watch_job(self, request: pb.WatchJobRequest) -> AsyncIterator[pb.WatchJobResponse]:
        """Yields the job as it is, then after each change, until it is over or the caller may see it no more."""
        job_id = await self._id(request.job_id)
        async with aclosing(self._runner.watch(job_id)) as changes:
            async for job in changes:
                await check_again()
                if not principal().jobs.sees(job.principal, job.workspace_id):
                    raise JobNotFoundError(job_id)
                yield pb.WatchJobResponse(job=job_message(job))

    async def cancel_job(self, request: pb.CancelJobRequest) -> pb.CancelJobResponse:
        """Cancels a job."""
        return pb.CancelJobResponse(job=job_message(await self._runner.cancel(await self._id(request.job_id))))

    async def resume_job(self, request: pb.ResumeJobRequest) -> pb.ResumeJobResponse:
        """Resumes a job that stopped, failed or was cancelled."""
        keep = {}
        if request.HasField("max_model_tokens"):
            if request.max_model_tokens < 0:
                raise InvalidInputError.at("max_model_tokens", "is below 0; give a positive number, or 0 for no limit.")
            keep[RESUMED_LIMIT] = str(request.max_model_tokens).encode()
        job_id = await self._id(request.job_id)
        if self._runner.permit is not None and (found := await self._runner.get(job_id)).principal:
            await self._runner.permit(found)
        job = await self._runner.resume(job_id, keep)
        if job is None:
            state = (await self._runner.get(job_id)).state
            raise JobNotResumableError(
                f"Job {job_id} is in the state {state}. Only a job that stopped, failed or was cancelled can be "
                "resumed; watch it with WatchJob, or submit the same work again."
            )
        return pb.ResumeJobResponse(job=job_message(job))

    async def start_rebuild(self, request: pb.StartRebuildRequest) -> pb.StartRebuildResponse:
        """Starts a job that rebuilds rows and vectors from Git."""
        return pb.StartRebuildResponse(job=await self._start(rebuilds.REBUILD, request))

    async def start_reindex(self, request: pb.StartReindexRequest) -> pb.StartReindexResponse:
        """Starts a job that recomputes the vectors."""
        return pb.StartReindexResponse(job=await self._start(rebuilds.REINDEX, request))

    async def _is_seen(self, job_id: str, sight: JobSight) -> bool:
        if sight is ALL_JOBS:
            return True
        job = await self._runner.get(job_id)
        return sight.sees(job.principal, job.workspace_id)

    async def _start(self, kind: str, request: pb.StartRebuildRequest | pb.StartReindexRequest) -> pb.Job:
        workspace = await self._workspace(request.workspace)
        job = await self._runner.submit(
            workspace.workspace_id,
            kind,
            request,
            subject=workspace.name,
            lane=rebuilds.lane(workspace.workspace_id),
            request_id=request.request_id,
        )
        return job_message(job)

    async def _workspace(self, name: str) -> Workspace:
        async with self._store.database.connection() as conn:
            return await registry.find_workspace(conn, lookup.needed("workspace", name))

    async def _id(self, text: str) -> str:
        """Returns the whole id of a job that the caller sees, which may be given by a unique prefix."""
        sight = principal().jobs
        if is_id(lookup.needed("job_id", text)):
            if not await self._is_seen(text, sight):
                raise JobNotFoundError(text)
            return text
        if not is_id_prefix(text):
            raise lookup.InvalidIdError.of("job_id", text)
        async with self._store.database.connection() as conn:
            found = await jobs.with_prefix(conn, text, _MOST_CANDIDATES, sight)
        if not found:
            raise JobNotFoundError(text)
        if len(found) > 1:
            raise AmbiguousJobIdError.at(
                "job_id", f"{text!r} is ambiguous; give more characters. It could be {', '.join(found)}."
            )
        return found[0]


def job_message(job: Job) -> pb.Job:
    """Returns a job as a protobuf message."""
    message = pb.Job(
        id=job.id,
        workspace_id=job.workspace_id,
        kind=job.kind,
        subject=job.subject,
        state=_STATES[job.state],
        reason=job.reason,
        message=job.message,
        attempts=job.attempts,
        create_time=timestamp(job.created_at),
        update_time=timestamp(job.updated_at),
        usage=[types_pb2.ModelUsage(**row) for row in job.usage],
    )
    if job.step:
        progress = maintenance_service_pb2.Progress(step=job.step, done=job.done, total=job.total)
        message.progress.CopyFrom(progress)
    field = _RESULTS.get(job.result_type)
    if field is not None:
        getattr(message, field).MergeFromString(job.result)
        getattr(message, field).SetInParent()
    return message


def _states(given: Iterable[int]) -> list[str]:
    found = []
    for number, state in enumerate(given):
        if state not in _NAMES:
            raise InvalidInputError.at(f"states[{number}]", f"{state} is not a state of a job; give 1 to 6.")
        found.append(_NAMES[state])  # type: ignore[index]
    return found
