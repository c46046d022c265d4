"""Jobs: every change of state, over real PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google.protobuf.message import Message
from integration.jobs.stage import PATIENCE, Open, raising
from memotree_storage.errors import AbortedError, InvalidInputError, UnavailableError
from memotree_storage.postgres import jobs as rows
from memotree_storage.postgres.reach import DatabaseUnavailableError
from memotree_storage.store import Store

from memotree.jobs import Job, JobContext, JobInputMissingError, JobNotFoundError, JobStoppedError
from memotree.v1 import job_service_pb2 as pb
from memotree.v1 import types_pb2

pytestmark = pytest.mark.requirement("SERVE-6")


async def test_a_claim_that_postgresql_could_not_confirm_is_repeated(
    stage: Open, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, transaction, claimed = rows.claim, store.database.transaction, list[str]()
    claimant: list[object] = []

    async def noted(*args: Any, **named: Any) -> Job | None:
        job = await claim(*args, **named)
        claimed.extend([job.id] if job else [])
        claimant.extend([asyncio.current_task()] if job else [])
        return job

    @asynccontextmanager
    async def losing() -> AsyncIterator[Any]:
        before = len(claimed)
        async with transaction() as conn:
            yield conn
        if before == 0 and claimed and asyncio.current_task() is claimant[0]:
            raise DatabaseUnavailableError("PostgreSQL went away behind the commit.")

    monkeypatch.setattr(rows, "claim", noted)
    monkeypatch.setattr(store.database, "transaction", losing)
    async with stage(raising(JobStoppedError("Enough."))) as on:
        lost = await on.submit("lost", lane="one")
        async with asyncio.timeout(PATIENCE):
            while not claimed:  # noqa: ASYNC110 - nobody is told of a claim that got lost
                await asyncio.sleep(0.01)
        behind = await on.submit("behind", lane="one")
        assert (await on.over(lost)).state == rows.STOPPED
        assert (await on.over(behind)).state == rows.STOPPED
    assert claimed == [lost.id, lost.id, behind.id]


# --- the way to success -----------------------------------------------------------------------------------------------


async def test_a_job_runs_and_its_result_is_kept_without_its_inputs_and_notes(stage: Open) -> None:
    async def act(running: JobContext) -> Message:
        await running.keep("plan", b"draft")
        await running.keep("plan", await running.input("text"))
        assert await running.kept("plan") == b"a poem"
        assert await running.kept("other") is None
        return pb.RenewalResult(
            renewed=running.job.attempts, commit_id=running.request(pb.StartRebuildRequest).workspace
        )

    async with stage(act) as on:
        job = await on.over(await on.submit("roses", inputs={"text": b"a poem"}))
        assert await on.count("job_input") == await on.count("job_note") == 0
        assert (job.state, job.result_type) == (rows.SUCCEEDED, "memotree.v1.RenewalResult")
        assert pb.RenewalResult.FromString(job.result) == pb.RenewalResult(renewed=1, commit_id="roses")
        assert await on.runner.resume(job.id) is None, "nor is it run again"


async def test_progress_is_streamed_at_once_and_written_at_a_new_step(stage: Open) -> None:
    gate, written = asyncio.Event(), asyncio.Event()

    async def act(running: JobContext) -> None:
        await running.progress("split", 1, 2)
        written.set()
        await gate.wait()
        await running.progress("split", 2, 2)
        running.report("merge", 5)

    async with stage(act) as on:
        job = await on.submit()
        await written.wait()
        stored = await on.stored(job)
        assert (stored.step, stored.done, stored.total) == ("split", 1, 2)
        assert (await on.runner.get(job.id)).done == 1
        gate.set()
        last = await on.over(job)
    assert (last.step, last.done, last.total) == ("merge", 5, 0)


async def test_a_job_ends_even_with_texts_that_postgresql_refuses_or_without_an_input(stage: Open) -> None:
    async def act(running: JobContext) -> None:
        await running.progress("page \0\ud800 one")
        await running.input("text")
        raise InvalidInputError("The page \0\udfff is empty. Give another.")

    async with stage(act) as on:
        job = await on.over(await on.submit(inputs={"text": b""}))
        assert (job.state, job.step, job.message) == (rows.FAILED, "page ? one", "The page ? is empty. Give another.")
        job = await on.over(await on.submit())
        assert (job.state, job.reason) == (rows.FAILED, JobInputMissingError.reason)
        assert "'text'" in job.message


async def test_progress_within_a_step_is_written_without_a_further_report(stage: Open) -> None:
    async def act(running: JobContext) -> None:
        await running.progress("split", 1, 9)
        await running.progress("split", 2, 9)
        await asyncio.Event().wait()

    async with stage(act) as on:
        job = await on.submit()
        async with asyncio.timeout(PATIENCE):
            while (await on.stored(job)).done != 2:  # noqa: ASYNC110 - nothing tells that a row was written
                await asyncio.sleep(0.05)


async def test_watching_returns_the_current_state_and_then_changes_until_the_end(stage: Open) -> None:
    async with stage() as on:
        job = await on.submit()
        await on.entered.wait()
        seen = []
        async for each in on.runner.watch(job.id):
            seen.append(each.state)
            on.leave.set()
        assert seen == [rows.RUNNING, rows.SUCCEEDED]
        assert [each.state async for each in on.runner.watch(job.id)] == [rows.SUCCEEDED]


async def test_usage_of_models_adds_up_over_attempts(stage: Open) -> None:
    async def act(running: JobContext) -> None:
        for calls in (1, 2):  # a meter counts from the start of its attempt
            running.note_usage([types_pb2.ModelUsage(kind="chat", model="m", calls=calls, prompt_tokens=10 * calls)])
        assert sum(row.calls for row in running.earlier_usage) == 2 * (running.job.attempts - 1)
        if running.job.attempts == 1:
            raise JobStoppedError("Enough for today. Resume the job tomorrow.")

    async with stage(act) as on:
        job = await on.over(await on.submit())
        assert [row["calls"] for row in job.usage] == [2]
        await on.runner.resume(job.id)
        job = await on.over(job)
    assert job.state == rows.SUCCEEDED
    assert job.usage == [
        {"kind": "chat", "model": "m", "calls": 4, "prompt_tokens": 40, "completion_tokens": 0, "cached": 0}
    ]


# --- other ends -------------------------------------------------------------------------------------------------------


class BudgetError(AbortedError):
    """An error of another family that also stops a job."""

    reason = "TEST_BUDGET"
    stops_job = True


class AwayError(UnavailableError):
    """A model that does not answer."""

    reason = "TEST_AWAY"


@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [
        (JobStoppedError("Enough. Resume it later."), rows.STOPPED, "JOB_STOPPED"),
        (AwayError("The model is away. Resume it later."), rows.STOPPED, "TEST_AWAY"),
        (BudgetError("The budget is used up. Resume it with another."), rows.STOPPED, "TEST_BUDGET"),
        (InvalidInputError("The document is empty. Give another."), rows.FAILED, "INVALID_ARGUMENT"),
        (KeyError("secret"), rows.FAILED, "INTERNAL"),
        (asyncio.CancelledError(), rows.STOPPED, "INTERRUPTED"),
    ],
)
async def test_the_family_of_an_error_decides_how_a_job_ends_and_its_message_is_kept(
    stage: Open, error: BaseException, state: str, reason: str
) -> None:
    async with stage(raising(error)) as on:
        job = await on.over(await on.submit(inputs={"text": b"stays"}))
        assert (job.state, job.reason) == (state, reason)
        assert job.message.endswith(".")
        assert "secret" not in job.message
        assert await on.count("job_input") == 1, "it may be resumed"


async def test_an_outage_of_a_store_of_ours_is_waited_out_before_the_job_stops(stage: Open) -> None:
    calls = 0

    async def act(_: JobContext) -> None:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise DatabaseUnavailableError("PostgreSQL does not answer.")

    async with stage(act, pauses=(0.0, 0.0)) as on:
        assert (await on.over(await on.submit())).state == rows.SUCCEEDED
        assert calls == 3
    async with stage(raising(DatabaseUnavailableError("It does not answer.")), pauses=(0.0,)) as on:
        assert (await on.over(await on.submit())).reason == "DATABASE_UNAVAILABLE"


async def test_an_end_or_progress_that_postgresql_could_not_store_is_written_again(
    stage: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    missed = []

    def deaf(name: str) -> None:
        really = getattr(rows, name)

        async def first_deaf(*arguments: Any) -> object:
            if name not in missed:
                missed.append(name)
                raise DatabaseUnavailableError("PostgreSQL does not answer.")
            return await really(*arguments)

        monkeypatch.setattr(rows, name, first_deaf)

    async def act(running: JobContext) -> None:
        await running.progress("one")
        await running.progress("two")

    deaf("finish")
    deaf("note_progress")
    async with stage(act) as on:
        job = await on.over(await on.submit())
        assert (job.state, job.step, (await on.stored(job)).step) == (rows.SUCCEEDED, "two", "two")
    assert missed == ["note_progress", "finish"]


async def test_a_waiting_job_is_cancelled_without_ever_having_begun(stage: Open) -> None:
    async with stage(concurrency=1) as on:
        await on.submit("first")
        await on.entered.wait()
        second = await on.submit("second")
        assert (await on.runner.cancel(second.id)).state == rows.CANCELLED
        on.leave.set()
        assert (await on.over(second)).attempts == 0
        assert on.played == ["first"]


async def test_a_running_job_is_cancelled_and_can_be_resumed_then(stage: Open) -> None:
    async with stage() as on:
        job = await on.submit()
        await on.entered.wait()
        assert await on.runner.resume(job.id) is None
        cancelled = await on.runner.cancel(job.id)
        assert (cancelled.state, cancelled.reason) == (rows.CANCELLED, "")
        on.leave.set()
        assert await on.runner.resume(job.id) is not None
        assert (await on.over(job)).state == rows.SUCCEEDED
        assert (await on.stored(job)).attempts == 2
        for call in (on.runner.get, on.runner.cancel, on.runner.resume, on.runner.wait):
            with pytest.raises(JobNotFoundError, match="ListJobs"):
                await call("0000000000000000")


async def test_work_shielded_from_cancellation_is_finished_and_counted(stage: Open) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def commit() -> None:
        begun.set()
        await go.wait()

    async def act(_: JobContext) -> Message:
        task = asyncio.ensure_future(commit())
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            go.set()
            await task
        return pb.RenewalResult(commit_id="made")

    async with stage(act) as on:
        job = await on.submit()
        await begun.wait()
        assert (await on.runner.cancel(job.id)).state == rows.SUCCEEDED


async def test_cancelling_a_finished_job_changes_nothing_except_for_a_stopped_one(stage: Open) -> None:
    async with stage(raising(InvalidInputError("The document is empty."))) as on:
        failed = await on.over(await on.submit())
        assert (await on.runner.cancel(failed.id)).state == rows.FAILED
    async with stage(raising(JobStoppedError("Enough."))) as on:
        stopped = await on.over(await on.submit())
        cancelled = await on.runner.cancel(stopped.id)
        assert (cancelled.state, cancelled.reason, cancelled.message) == (rows.CANCELLED, "", "")


async def test_another_process_can_ask_for_the_end_of_a_job(stage: Open, store: Store) -> None:
    async with stage() as on:
        job = await on.submit()
        await on.entered.wait()
        async with store.database.transaction() as conn:
            await rows.ask_to_cancel(conn, job.id)
        assert (await on.over(job)).state == rows.CANCELLED


async def test_a_resumed_job_finds_its_notes_and_its_new_inputs(stage: Open) -> None:
    async def act(running: JobContext) -> None:
        if await running.kept("plan") is None:
            await running.keep("plan", b"three parts")
            raise JobStoppedError("Enough.")
        assert await running.kept("plan") == b"three parts"
        assert await running.kept("limit") == b"7"
        assert await running.input("text") == b"all of it"

    async with stage(act) as on:
        job = await on.over(await on.submit(inputs={"text": b"all of it"}))
        await on.runner.resume(job.id, {"limit": b"7"})
        job = await on.over(job)
    assert (job.state, job.attempts, job.reason, job.message) == (rows.SUCCEEDED, 2, "", "")
