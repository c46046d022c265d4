"""The order in which jobs run, jobs that are requested twice, and those whose process stops or crashes."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from integration.jobs.stage import WORKSPACE, Open, crash, raising
from memotree_storage.errors import InvalidInputError
from memotree_storage.postgres import jobs as rows
from memotree_storage.postgres.requests import RequestIdReusedError
from memotree_storage.store import Store

from memotree.jobs import JobContext, JobNotFoundError, JobStoppedError
from memotree.jobs.runner import MAX_CRASHES, JobsPausedError
from memotree.v1 import job_service_pb2 as pb

pytestmark = pytest.mark.requirement("SERVE-6")


# --- stops and crashes ---


async def test_a_stop_puts_a_running_job_back_and_the_next_start_runs_it(stage: Open) -> None:
    async with stage() as on:
        job = await on.submit(inputs={"text": b"stays"})
        await on.entered.wait()
        watching = asyncio.create_task(on.over(job))
        await asyncio.sleep(0)
        await on.runner.stop()
        with pytest.raises(JobsPausedError, match="Watch it again"):
            await watching
        assert ((await on.stored(job)).state, (await on.stored(job)).crashes) == (rows.QUEUED, 0)
    async with stage() as later:
        later.leave.set()
        over = await later.over(job)
    assert (over.state, over.attempts) == (rows.SUCCEEDED, 2)


async def test_a_job_that_ran_when_its_process_crashed_runs_again(stage: Open, store: Store) -> None:
    async with stage(started=False) as on:
        job = await on.submit()
    await crash(store, job)
    async with stage() as on:
        again = await on.until(job, rows.RUNNING)
        assert (again.attempts, again.crashes) == (2, 1)
        on.leave.set()
        assert (await on.over(job)).crashes == 0


async def test_a_job_that_crashes_several_processes_is_not_run_until_it_is_resumed(stage: Open, store: Store) -> None:
    async with stage(started=False) as on:
        job = await on.submit()
    await crash(store, job, MAX_CRASHES)
    async with stage() as on:
        failed = await on.over(job)
        assert (failed.state, failed.reason) == (rows.FAILED, "JOB_ENDS_SERVER")
        assert on.played == []
        on.leave.set()
        await on.runner.resume(job.id)
        assert (await on.over(job)).state == rows.SUCCEEDED


async def test_a_job_suspected_of_crashes_runs_alone_so_that_it_interrupts_no_other(stage: Open, store: Store) -> None:
    async with stage(started=False) as on:
        suspect, other = await on.submit("suspect"), await on.submit("other")
    await crash(store, suspect, 2)
    async with stage(concurrency=2) as on:
        await on.until(suspect, rows.RUNNING)
        assert (await on.stored(other)).state == rows.QUEUED
        on.leave.set()
        await on.over(other)
        assert on.played == ["suspect", "other"]


async def test_a_cancellation_requested_before_the_crash_is_kept(stage: Open, store: Store) -> None:
    async with stage(started=False) as on:
        job = await on.submit()
    await crash(store, job)
    async with store.database.transaction() as conn:
        await rows.ask_to_cancel(conn, job.id)
    async with stage() as on:
        assert (await on.over(job)).state == rows.CANCELLED
        assert on.played == []


async def test_a_job_of_an_unknown_kind_waits_and_blocks_no_other(stage: Open, store: Store) -> None:
    async with stage(started=False) as on:
        job = await on.submit()
        async with store.database.transaction() as conn:
            await conn.execute("update work.job set kind = 'of_another_version' where job_id = %s", (job.id,))
    async with stage() as on:
        on.leave.set()
        await on.over(await on.submit())
        assert (await on.stored(job)).state == rows.QUEUED
        with pytest.raises(ValueError, match="no work function is registered"):
            await on.runner.submit(WORKSPACE, "unheard_of", pb.StartRebuildRequest())
        with pytest.raises(ValueError, match="registered already"):
            on.runner.register("act", raising(KeyError()))


# --- forgetting -------------------------------------------------------------------------------------------------------


async def test_old_finished_jobs_are_deleted_with_their_inputs(stage: Open, store: Store) -> None:
    async with stage(raising(JobStoppedError("Enough.")), retention=timedelta(days=1)) as on:
        old = await on.over(await on.submit(inputs={"text": b"old"}))
        young = await on.over(await on.submit(inputs={"text": b"young"}))
        async with store.database.transaction() as conn:
            await conn.execute("update work.job set updated_at = now() - interval '25 h' where job_id = %s", (old.id,))
        assert await on.runner.tidy() in {0, 1}  # 0 if the loop of the runner has done it just now
        assert await on.count("job_input") == 1
        assert (await on.runner.get(young.id)).state == rows.STOPPED
        with pytest.raises(JobNotFoundError, match="removed after a while"):
            await on.runner.get(old.id)


async def test_a_job_whose_row_was_deleted_ends_without_an_error(stage: Open, store: Store) -> None:
    async with stage() as on:
        job = await on.submit()
        await on.entered.wait()
        watching = asyncio.create_task(on.over(job))
        async with store.database.transaction() as conn:
            await conn.execute("delete from work.job")
        on.runner.forget_workspace(WORKSPACE)
        with pytest.raises(JobNotFoundError):
            await watching
        with suppress(JobNotFoundError):
            await on.runner.cancel(job.id)
        assert await on.count("job") == 0


# --- asking twice -----------------------------------------------------------------------------------------------------


async def test_one_request_id_makes_one_job_whose_current_state_is_returned_for_the_same_arguments_alone(
    stage: Open,
) -> None:
    async with stage() as on:
        first = await on.submit("roses", request_id="r1", inputs={"text": b"red"})
        on.leave.set()
        await on.over(first)
        again = await on.submit("roses", request_id="r1", inputs={"text": b"red"})
        assert (again.id, again.state) == (first.id, rows.SUCCEEDED)
        for change in ({"subject": "tulips"}, {"inputs": {"text": b"blue"}}, {"inputs": {}}):
            given: dict[str, Any] = {"subject": "roses", "inputs": {"text": b"red"}, **change}
            with pytest.raises(RequestIdReusedError):
                await on.submit(**given, request_id="r1")
        with pytest.raises(InvalidInputError, match="request_id"):
            await on.submit("roses", request_id="r" * 200)
        assert await on.count("job") == 1


# --- order ------------------------------------------------------------------------------------------------------------


async def test_jobs_of_a_lane_run_one_after_the_other_in_the_order_of_creation(stage: Open) -> None:
    running = most = 0
    order = []

    async def act(job: JobContext) -> None:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        order.append(job.job.subject)
        await asyncio.sleep(0)
        running -= 1

    async with stage(act, concurrency=4) as on:
        made = [await on.submit(str(number), lane="main") for number in range(6)]
        for job in made:
            await on.over(job)
    assert (order, most) == ([str(number) for number in range(6)], 1)


async def test_lanes_do_not_wait_for_each_other_up_to_the_limit_of_running_jobs(stage: Open) -> None:
    async with stage(concurrency=2) as on:
        first = await on.submit("a1", lane="a")
        behind = await on.submit("a2", lane="a")
        other = await on.submit("b1", lane="b")
        third = await on.submit("c1", lane="c")
        await on.begun(first)
        await on.begun(other)
        assert sorted(on.played) == ["a1", "b1"]
        assert {(await on.stored(job)).state for job in (behind, third)} == {rows.QUEUED}
        await on.runner.cancel(other.id)
        await on.begun(third)
        assert (await on.stored(behind)).state == rows.QUEUED
        on.leave.set()
        assert (await on.over(behind)).state == rows.SUCCEEDED


async def test_a_resumed_job_waits_for_the_one_that_runs_in_its_lane(stage: Open) -> None:
    async with stage(concurrency=2) as on:
        first = await on.submit("first", lane="main")
        second = await on.submit("second", lane="main")
        await on.begun(first)
        await on.runner.cancel(first.id)
        await on.begun(second)
        await on.runner.resume(first.id)
        assert (await on.stored(first)).state == rows.QUEUED
        on.leave.set()
        assert (await on.over(first)).state == (await on.over(second)).state == rows.SUCCEEDED
        assert on.played == ["first", "second", "first"]
