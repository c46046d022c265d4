"""What jobs of a kind keep from one attempt to the next is removed once none of them is unfinished."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from integration.jobs.stage import PATIENCE, Stage
from memotree_storage.postgres import jobs as rows
from memotree_storage.store import Store

from memotree.jobs import JobContext, JobStoppedError

pytestmark = [pytest.mark.requirement("SERVE-6"), pytest.mark.requirement("STORE-7")]


class Cleaned(Stage):
    """Jobs of one kind, whose work ends as their subject says, and how often their leftovers were removed."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, self._work, {}, self._clean)
        self.cleaned = asyncio.Condition()
        self.times = self.looks = 0
        self._remove, self.runner._leftovers.remove = self.runner._leftovers.remove, self._look  # type: ignore[method-assign]

    async def _work(self, running: JobContext) -> None:
        match running.job.subject:
            case "waits":
                await asyncio.Event().wait()
            case "stops":
                raise JobStoppedError("Enough.")
            case "fails":
                raise ZeroDivisionError

    async def _clean(self) -> None:
        async with self.cleaned:
            self.times += 1
            self.cleaned.notify_all()

    async def _look(self, kind: str) -> None:
        await self._remove(kind)
        async with self.cleaned:
            self.looks += 1
            self.cleaned.notify_all()

    async def looked(self, times: int) -> None:
        """Wait until the runner has asked so often whether they are needed: at its start, and at each end of a job."""
        async with asyncio.timeout(PATIENCE), self.cleaned:
            await self.cleaned.wait_for(lambda: self.looks >= times)

    async def cleaned_more_often_than(self, times: int) -> None:
        async with asyncio.timeout(PATIENCE), self.cleaned:
            await self.cleaned.wait_for(lambda: self.times > times)


@pytest.fixture
async def act(store: Store) -> AsyncIterator[Cleaned]:
    made = Cleaned(store)
    await made.runner.start()
    await made.cleaned_more_often_than(0)
    yield made
    await made.runner.stop()


@pytest.mark.parametrize("subject", ["succeeds", "fails"])
async def test_they_are_removed_after_the_end_of_the_last_job(act: Cleaned, subject: str) -> None:
    before = act.times
    await act.submit(subject, lane="one")
    await act.cleaned_more_often_than(before)


async def test_a_queued_job_may_still_need_them(act: Cleaned) -> None:
    first, second = await act.submit("waits", lane="one"), await act.submit("waits", lane="one")
    await act.until(first, rows.RUNNING)
    await act.runner.cancel(first.id)
    await act.looked(2)
    assert act.times == 1
    await act.runner.cancel(second.id)
    await act.cleaned_more_often_than(1)


async def test_a_stopped_job_may_still_need_them_until_it_is_cancelled(act: Cleaned) -> None:
    job = await act.submit("stops", lane="one")
    await act.until(job, rows.STOPPED)
    await act.submit("succeeds", lane="one")
    await act.looked(3)
    assert act.times == 1
    await act.runner.cancel(job.id)
    await act.cleaned_more_often_than(1)


async def test_a_stop_of_the_server_leaves_them_to_the_next_start(act: Cleaned, store: Store) -> None:
    job = await act.submit("waits", lane="one")
    await act.until(job, rows.RUNNING)
    before = act.times
    await act.runner.stop()
    assert act.times == before
    after = Cleaned(store)
    await after.runner.start()
    await after.until(job, rows.RUNNING)
    assert after.times == 0
    await after.runner.cancel(job.id)
    await after.cleaned_more_often_than(0)
    await after.runner.stop()
