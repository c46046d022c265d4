"""The operations of JobService, and the jobs that rebuild the mirrors."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import grpc
import pytest
from google.protobuf.message import Message
from integration.calls import reason
from integration.damage import differences
from integration.worlds import World
from memotree_storage.errors import InvalidInputError
from memotree_storage.model.workspace import WorkspaceNotFoundError
from memotree_storage.store import Store

from memotree.jobs import JobContext, JobNotFoundError, JobOperations, JobRunner, JobStoppedError, rebuilds
from memotree.jobs.operations import RESUMED_LIMIT, AmbiguousJobIdError, JobNotResumableError
from memotree.request.limits import ServiceLimits
from memotree.request.lookup import InvalidIdError
from memotree.request.pages import PageTokens
from memotree.server.app import Server
from memotree.settings import Settings
from memotree.v1 import job_service_pb2 as pb
from memotree.v1 import job_service_pb2_grpc, types_pb2
from memotree.v1 import workspace_service_pb2 as workspaces
from memotree.workspaces import WorkspaceOperations

pytestmark = pytest.mark.requirement("SERVE-6")

PATIENCE = 60.0


@dataclass
class ServiceStage:
    """The operations with a runner of the work ``act``, which waits for ``leave`` and then ends as the test has set."""

    world: World
    runner: JobRunner
    jobs: JobOperations
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    leave: asyncio.Event = field(default_factory=asyncio.Event)
    result: Message | None = None
    stops: bool = False

    async def act(self, running: JobContext) -> Message | None:
        self.entered.set()
        await running.progress("waiting", 1, 3)
        await self.leave.wait()
        limit = await running.kept(RESUMED_LIMIT)
        if self.stops and limit is None:
            running.note_usage([types_pb2.ModelUsage(kind="chat", model="m", calls=3, prompt_tokens=70)])
            raise JobStoppedError("The budget is used up. Resume the job with another.")
        return self.result

    async def submit(self, subject: str = "a poem") -> str:
        request = pb.GetJobRequest(job_id=subject)
        return (await self.runner.submit(self.world.workspace, "act", request, subject=subject)).id

    async def job(self, job_id: str) -> pb.Job:
        return (await self.jobs.get_job(pb.GetJobRequest(job_id=job_id))).job

    async def runs(self, job_id: str) -> None:
        async with asyncio.timeout(PATIENCE):
            async for event in self.jobs.watch_job(pb.WatchJobRequest(job_id=job_id)):
                if event.job.state == pb.JOB_STATE_RUNNING:
                    return

    async def watched(self, job_id: str) -> list[pb.Job]:
        async with asyncio.timeout(PATIENCE):
            return [event.job async for event in self.jobs.watch_job(pb.WatchJobRequest(job_id=job_id))]


@pytest.fixture
async def world(store: Store, pages: PageTokens, limits: ServiceLimits) -> World:
    return await World.create(store, pages, limits, "garden")


@pytest.fixture
async def stage(world: World) -> AsyncIterator[ServiceStage]:
    runner = JobRunner(world.store.database)
    made = ServiceStage(world, runner, JobOperations(world.store, world.pages, runner))
    runner.register("act", made.act)
    rebuilds.register(runner, world.store)
    await runner.start()
    yield made
    await runner.stop()


async def test_a_job_is_read_with_all_its_fields(stage: ServiceStage) -> None:
    stage.result = pb.IngestionResult(archive_id="a" * 16, created_leaves=3)
    job_id = await stage.submit()
    await stage.entered.wait()
    running = await stage.job(job_id)
    assert (running.state, running.kind, running.subject) == (pb.JOB_STATE_RUNNING, "act", "a poem")
    assert (running.progress.step, running.progress.done, running.progress.total) == ("waiting", 1, 3)
    assert running.workspace_id == stage.world.workspace
    assert running.attempts == 1
    stage.leave.set()
    seen = await stage.watched(job_id)
    assert seen[-1].state == pb.JOB_STATE_SUCCEEDED
    assert seen[-1].ingestion == stage.result
    assert seen[-1].update_time.ToDatetime() >= seen[-1].create_time.ToDatetime()
    assert (await stage.job(job_id[:8])).id == job_id


async def test_an_empty_result_is_a_result(stage: ServiceStage) -> None:
    stage.result = pb.RenewalResult()
    stage.leave.set()
    assert (await stage.watched(await stage.submit()))[-1].WhichOneof("result") == "renewal"


async def test_a_stopped_job_has_a_reason_and_continues_with_another_limit(stage: ServiceStage) -> None:
    stage.stops = True
    stage.leave.set()
    job_id = await stage.submit()
    stopped = (await stage.watched(job_id))[-1]
    assert (stopped.state, stopped.reason) == (pb.JOB_STATE_STOPPED, "JOB_STOPPED")
    assert stopped.message == "The budget is used up. Resume the job with another."
    assert [(row.model, row.calls) for row in stopped.usage] == [("m", 3)]
    stage.leave.clear()
    answer = await stage.jobs.resume_job(pb.ResumeJobRequest(job_id=job_id, max_model_tokens=500))
    assert answer.job.state in {pb.JOB_STATE_QUEUED, pb.JOB_STATE_RUNNING}
    stage.leave.set()
    over = (await stage.watched(job_id))[-1]
    assert (over.state, over.attempts, over.reason) == (pb.JOB_STATE_SUCCEEDED, 2, "")
    with pytest.raises(JobNotResumableError, match="in the state succeeded"):
        await stage.jobs.resume_job(pb.ResumeJobRequest(job_id=job_id))
    with pytest.raises(InvalidInputError, match="max_model_tokens"):
        await stage.jobs.resume_job(pb.ResumeJobRequest(job_id=job_id, max_model_tokens=-1))


async def test_lists_are_paged_newest_first_and_filtered(stage: ServiceStage) -> None:
    other = await World.create(stage.world.store, stage.world.pages, stage.world.limits, "meadow")
    stage.leave.set()
    made = [await stage.submit(str(number)) for number in range(5)]
    elsewhere = (await stage.jobs.start_reindex(pb.StartReindexRequest(workspace="meadow"))).job.id
    for job_id in (*made, elsewhere):
        await stage.watched(job_id)

    async def pages(**fields: object) -> list[str]:
        found, token = [], ""
        while True:
            request = pb.ListJobsRequest(page_size=2, page_token=token, **fields)  # type: ignore[arg-type]
            answer = await stage.jobs.list_jobs(request)
            found += [job.id for job in answer.jobs]
            if not (token := answer.next_page_token):
                return found

    assert await pages(workspace=stage.world.workspace) == made[::-1]
    assert await pages() == [elsewhere, *made[::-1]]
    assert await pages(workspace=other.workspace, kind="reindex") == [elsewhere]
    assert await pages(kind="rebuild") == []
    assert await pages(states=[pb.JOB_STATE_SUCCEEDED], kind="act") == made[::-1]
    assert await pages(states=[pb.JOB_STATE_FAILED, pb.JOB_STATE_STOPPED]) == []
    with pytest.raises(InvalidInputError, match="states"):
        await pages(states=[9])
    with pytest.raises(WorkspaceNotFoundError):
        await pages(workspace="nowhere")


async def test_an_id_of_no_job_or_of_several_is_refused_with_advice(stage: ServiceStage) -> None:
    with pytest.raises(JobNotFoundError, match="ListJobs"):
        await stage.job("0" * 16)
    with pytest.raises(JobNotFoundError):
        await stage.job("0000")
    with pytest.raises(InvalidIdError):
        await stage.job("no")
    async with stage.world.store.database.transaction() as conn:
        for number in range(2):
            await conn.execute(
                "insert into work.job (job_id, workspace_id, kind, subject, lane, state, request)"
                " values (%s, '', 'act', '', '', 'failed', '')",
                (f"abcd00000000000{number}",),
            )
    with pytest.raises(AmbiguousJobIdError, match="abcd000000000001"):
        await stage.job("abcd")


async def test_a_rebuild_job_rewrites_every_row_and_a_repeated_request_has_the_same_job(
    stage: ServiceStage,
) -> None:
    world = stage.world
    await world.put(*world.nodes(5))
    async with world.store.database.transaction() as conn:
        await conn.execute("update mirror.version set title = 'wrong'")
    assert await differences(world)
    request = pb.StartRebuildRequest(workspace="garden", request_id="once")
    first = (await stage.jobs.start_rebuild(request)).job
    assert (first.kind, first.subject) == ("rebuild", "garden")
    seen = await stage.watched(first.id)
    assert seen[-1].state == pb.JOB_STATE_SUCCEEDED
    assert seen[-1].progress.step == "index"
    assert (await stage.jobs.start_rebuild(request)).job.id == first.id
    assert not await differences(world)


async def test_a_second_rebuild_waits_for_the_first(stage: ServiceStage) -> None:
    async with stage.world.store.locks.workspaces.of(stage.world.workspace):
        first = (await stage.jobs.start_rebuild(pb.StartRebuildRequest(workspace="garden"))).job.id
        second = (await stage.jobs.start_reindex(pb.StartReindexRequest(workspace="garden"))).job.id
        await stage.runs(first)
        assert (await stage.job(second)).state == pb.JOB_STATE_QUEUED
    assert (await stage.watched(second))[-1].state == pb.JOB_STATE_SUCCEEDED
    assert (await stage.job(first)).state == pb.JOB_STATE_SUCCEEDED


async def test_after_a_cancelled_rebuild_the_workspace_works_and_the_job_can_be_resumed(stage: ServiceStage) -> None:
    world = stage.world
    top = world.node("Top")
    commit = await world.put(top)
    async with world.store.locks.workspaces.of(world.workspace):
        job_id = (await stage.jobs.start_rebuild(pb.StartRebuildRequest(workspace="garden"))).job.id
        await stage.runs(job_id)
        answer = await stage.jobs.cancel_job(pb.CancelJobRequest(job_id=job_id))
    assert answer.job.state == pb.JOB_STATE_CANCELLED
    assert (await stage.jobs.cancel_job(pb.CancelJobRequest(job_id=job_id))).job == answer.job
    assert top.id in await world.alive(commit)
    await stage.jobs.resume_job(pb.ResumeJobRequest(job_id=job_id))
    assert (await stage.watched(job_id))[-1].state == pb.JOB_STATE_SUCCEEDED
    assert not await differences(world)


async def test_deleting_a_workspace_cancels_and_deletes_its_jobs(stage: ServiceStage) -> None:
    world = stage.world
    places = WorkspaceOperations(world.store, world.pages, world.limits, stage.runner.forget_workspace)
    running = await stage.submit()
    await stage.entered.wait()
    watching = asyncio.create_task(stage.watched(running))
    await asyncio.sleep(0)
    await places.delete_workspace(workspaces.DeleteWorkspaceRequest(workspace="garden", confirm_name="garden"))
    with pytest.raises(JobNotFoundError):
        await watching
    assert not (await stage.jobs.list_jobs(pb.ListJobsRequest())).jobs
    await stage.runner.stop()


async def test_a_stop_of_the_server_does_not_wait_for_jobs_that_are_watched(stage: ServiceStage) -> None:
    settings = Settings(data_folder=stage.world.store.data_folder, port=0)
    server = Server(settings, {"JobService": stage.jobs})
    await server.start()
    async with grpc.aio.insecure_channel(server.address) as channel:
        job_id = await stage.submit()
        stub = job_service_pb2_grpc.JobServiceStub(channel)
        stream = stub.WatchJob(pb.WatchJobRequest(job_id=job_id)).__aiter__()
        await stage.entered.wait()
        assert (await anext(stream)).job.id == job_id
        async with asyncio.timeout(PATIENCE):
            await server.stop(grace=3600)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            _ = [event async for event in stream]
    assert (caught.value.code(), reason(caught.value)) == (grpc.StatusCode.UNAVAILABLE, "JOBS_PAUSED")
    await stage.runner.stop()
    assert (await stage.job(job_id)).state == pb.JOB_STATE_QUEUED
