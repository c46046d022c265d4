"""Jobs of the fake server: watching a job moves it one step on, to the end that the test has set."""

# ruff: noqa: ARG002, N802 - the generated servicers name the methods and their arguments

from collections.abc import Iterator
from typing import Any

import grpc
from unit.client.fake_places import paged
from unit.client.fake_state import FakeWorkspace, RefusedError, fresh_id, not_found

from memotree.v1 import job_service_pb2 as pb
from memotree.v1 import maintenance_service_pb2 as maintenance
from memotree.v1.job_service_pb2_grpc import JobServiceServicer

_STEPS = 3


class FakeJobs(JobServiceServicer):
    """JobService over a dictionary.

    Attributes:
        jobs: The jobs by id, the oldest first.
        ends: The results of the next jobs that are watched to their end; success if empty.
    """

    jobs: dict[str, pb.Job]
    ends: list[pb.Job]

    def space(self, name: str) -> FakeWorkspace:
        """The workspace of that name or id."""
        raise NotImplementedError

    def build(self, **fields: Any) -> pb.Job:
        """The job with that id."""
        job = pb.Job(**{"id": fresh_id(), "kind": "rebuild", "state": pb.JOB_STATE_QUEUED, **fields})
        self.jobs[job.id] = job
        return job

    def _job(self, job_id: str) -> pb.Job:
        for job in self.jobs.values():
            if job_id and job.id.startswith(job_id):
                return job
        raise not_found("job", job_id)

    def GetJob(self, request: Any, context: Any) -> Any:
        return pb.GetJobResponse(job=self._job(request.job_id))

    def ListJobs(self, request: Any, context: Any) -> Any:
        owner = self.space(request.workspace).message.id if request.workspace else ""
        found = [
            job
            for job in reversed(self.jobs.values())
            if (not owner or job.workspace_id == owner)
            and (not request.states or job.state in request.states)
            and request.kind in {"", job.kind}
        ]
        page, token = paged(found, request)
        return pb.ListJobsResponse(jobs=page, next_page_token=token)

    def WatchJob(self, request: Any, context: Any) -> Iterator[Any]:
        job = self._job(request.job_id)
        yield pb.WatchJobResponse(job=job)
        if job.state not in {pb.JOB_STATE_QUEUED, pb.JOB_STATE_RUNNING}:
            return
        job.state, job.attempts = pb.JOB_STATE_RUNNING, job.attempts + 1
        for done in range(_STEPS):
            job.progress.CopyFrom(maintenance.Progress(step="index", done=done + 1, total=_STEPS))
            yield pb.WatchJobResponse(job=job)
        job.state = pb.JOB_STATE_SUCCEEDED
        if self.ends:
            job.MergeFrom(self.ends.pop(0))
        yield pb.WatchJobResponse(job=job)

    def CancelJob(self, request: Any, context: Any) -> Any:
        job = self._job(request.job_id)
        if job.state in {pb.JOB_STATE_QUEUED, pb.JOB_STATE_RUNNING, pb.JOB_STATE_STOPPED}:
            job.state = pb.JOB_STATE_CANCELLED
        return pb.CancelJobResponse(job=job)

    def ResumeJob(self, request: Any, context: Any) -> Any:
        job = self._job(request.job_id)
        if job.state not in {pb.JOB_STATE_FAILED, pb.JOB_STATE_STOPPED, pb.JOB_STATE_CANCELLED}:
            sentence = "The job cannot be resumed; watch it with WatchJob."
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, sentence, "JOB_NOT_RESUMABLE")
        job.state, job.reason, job.message = pb.JOB_STATE_QUEUED, "", ""
        return pb.ResumeJobResponse(job=job)

    def StartRebuild(self, request: Any, context: Any) -> Any:
        return pb.StartRebuildResponse(job=self._start("rebuild", request.workspace))

    def StartReindex(self, request: Any, context: Any) -> Any:
        return pb.StartReindexResponse(job=self._start("reindex", request.workspace))

    def _start(self, kind: str, workspace: str) -> pb.Job:
        space = self.space(workspace).message
        return self.build(kind=kind, workspace_id=space.id, subject=space.name)
