"""Jobs that are requested twice, and the order in which jobs run."""

import asyncio
from typing import Any

import pytest
from integration.jobs.stage import Open
from memotree_storage.errors import InvalidInputError
from memotree_storage.postgres import jobs as rows
from memotree_storage.postgres.requests import RequestIdReusedError

from memotree.jobs import JobContext

pytestmark = pytest.mark.requirement("SERVE-6")


# --- asking twice -----------------------------------------------------------------------------------------------------


async def test_one_request_id_makes_one_job_and_a_repeat_returns_its_current_state(stage: Open) -> None:
    async with stage() as on:
        first = await on.submit("roses", request_id="r1", inputs={"text": b"red"})
        on.leave.set()
        await on.over(first)
        again = await on.submit("roses", request_id="r1", inputs={"text": b"red"})
        assert (again.id, again.state) == (first.id, rows.SUCCEEDED)
        assert await on.count("job") == 1


@pytest.mark.parametrize("change", [{"subject": "tulips"}, {"inputs": {"text": b"blue"}}, {"inputs": {}}])
async def test_a_request_id_that_comes_with_other_arguments_is_refused(stage: Open, change: dict[str, Any]) -> None:
    async with stage() as on:
        given: dict[str, Any] = {"subject": "roses", "inputs": {"text": b"red"}}
        await on.submit(**given, request_id="r1")
        with pytest.raises(RequestIdReusedError):
            await on.submit(**{**given, **change}, request_id="r1")
        with pytest.raises(InvalidInputError, match="request_id"):
            await on.submit("roses", request_id="r" * 200)


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
