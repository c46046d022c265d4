"""The whole server is killed with SIGKILL in the middle of a job; the next one continues the job."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from campaigns import points
from crash.filled_folders import FilledFolders
from crash.service import DEADLINE, Service, running
from integration.calls import Calls
from memotree_storage.model.node import new_id

from memotree.jobs.runner import MAX_CRASHES
from memotree.v1 import job_service_pb2 as pb
from memotree.v1 import job_service_pb2_grpc

pytestmark = pytest.mark.requirement("SERVE-6", "STORE-1")

POINTS = ("job.claimed", "index.put", "index.applied", "job.worked", "job.recorded")


def jobs_of(channel: grpc.aio.Channel) -> Any:
    """The stub of JobService; over an aio channel each call can be awaited."""
    return job_service_pb2_grpc.JobServiceStub(channel)


async def over(channel: grpc.aio.Channel, job_id: str) -> pb.Job:
    """The job at its end."""
    job = pb.Job()
    async with asyncio.timeout(DEADLINE):
        async for event in jobs_of(channel).WatchJob(pb.WatchJobRequest(job_id=job_id)):
            job = event.job
    return job


async def prepare(service: Service) -> None:
    """Make a workspace that has a few nodes."""
    async with service.channel() as channel:
        calls = await Calls(channel, "garden").begin()
        for number in range(20):
            await calls.create(f"What node {number} says.")
        await calls.commit("Create nodes")
    await service.has_indexed()  # or the next server could have a point to put before it has a job


@pytest.mark.parametrize("point", points("job", POINTS, hardest="index.applied"))
async def test_a_killed_rebuild_is_finished_by_the_next_server(
    filled: FilledFolders, tmp_path: Path, point: str
) -> None:
    data, log = tmp_path / "data", tmp_path / "server.log"
    await filled.copy(data, prepare)
    request = pb.StartRebuildRequest(workspace="garden", request_id=new_id())
    async with running(data, log, fault=point) as service, service.channel() as channel:
        try:
            await jobs_of(channel).StartRebuild(request)
        except grpc.aio.AioRpcError as error:  # the server ended before it could answer
            assert error.code() is grpc.StatusCode.UNAVAILABLE  # noqa: PT017 - most times there is no error
        await service.has_killed_itself()
    async with running(data, log) as service:
        async with service.channel() as channel:
            known = (await jobs_of(channel).StartRebuild(request)).job
            job = await over(channel, known.id)
            assert (job.state, job.attempts) == (pb.JOB_STATE_SUCCEEDED, 1 if point == "job.recorded" else 2)
            listed = await jobs_of(channel).ListJobs(pb.ListJobsRequest(workspace="garden"))
            assert [each.id for each in listed.jobs] == [known.id], "the same request is the same job"
            calls = Calls(channel, "garden")
            assert await calls.differences() == []
            assert len(await calls.search("says", max_results=50)) == 20
        assert await service.stop() == 0


@pytest.mark.campaign
async def test_a_job_that_crashes_every_server_is_not_run_again_and_the_server_keeps_running(
    filled: FilledFolders, tmp_path: Path
) -> None:
    data, log = tmp_path / "data", tmp_path / "server.log"
    await filled.copy(data, prepare)
    async with running(data, log, fault="job.claimed") as service, service.channel() as channel:
        request = pb.StartRebuildRequest(workspace="garden")
        with pytest.raises(grpc.aio.AioRpcError):
            await over(channel, (await jobs_of(channel).StartRebuild(request)).job.id)
        await service.has_killed_itself()
    for _ in range(MAX_CRASHES - 1):
        service = Service(data, log, fault="job.claimed")
        service.begin()
        await service.has_killed_itself()
    async with running(data, log) as service, service.channel() as channel:
        (job,) = (await jobs_of(channel).ListJobs(pb.ListJobsRequest(workspace="garden"))).jobs
        assert (job.state, job.reason, job.attempts) == (pb.JOB_STATE_FAILED, "JOB_ENDS_SERVER", MAX_CRASHES)
        await jobs_of(channel).ResumeJob(pb.ResumeJobRequest(job_id=job.id))
        assert (await over(channel, job.id)).state == pb.JOB_STATE_SUCCEEDED
