"""A stream that runs ends with its key and its roles: no message is sent to who may not begin it any more."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from integration.worlds import World
from memotree_storage.postgres import access as tables
from memotree_storage.postgres.access import GrantRow
from memotree_storage.postgres.database import Connection

from memotree.identity.access import Access
from memotree.identity.api_keys import NewKey, digest, new_key
from memotree.identity.errors import KeyRefusedError
from memotree.identity.guard import Guard
from memotree.jobs import JobContext, JobNotFoundError, JobOperations, JobRunner
from memotree.request.principal import ALL_BRANCHES, acting_as
from memotree.server.checking import checked
from memotree.v1 import job_service_pb2 as pb

pytestmark = [pytest.mark.requirement("SERVE-3"), pytest.mark.own_store]

NAME = "ada"


@dataclass
class Watching:
    """A job of a principal, which takes a step when the test says so, behind the check of who calls."""

    world: World
    access: Access
    key: NewKey
    runner: JobRunner
    jobs: Any
    steps: asyncio.Queue[int] = field(default_factory=asyncio.Queue)

    async def work(self, running: JobContext) -> None:
        while (step := await self.steps.get()) < 3:
            await running.progress("reading", step, 3)

    async def changes(self) -> AsyncIterator[pb.WatchJobResponse]:
        """Watch a job of the principal from when it runs."""
        with acting_as(self.access.principal_of_key(self.key.text)):
            job = await self.runner.submit(self.world.workspace, "work", pb.GetJobRequest())
            async for event in self.jobs.watch_job(pb.WatchJobRequest(job_id=job.id)):
                if event.job.state == pb.JOB_STATE_RUNNING:
                    yield event


@pytest.fixture
async def watching(world: World) -> AsyncIterator[Watching]:
    access, key = Access(world.store.database), new_key()
    await access.open()

    async def enter(conn: Connection) -> set[str]:
        await tables.put_principal(conn, NAME, "")
        await tables.put_grant(conn, GrantRow(NAME, world.workspace, ALL_BRANCHES, "reader"))
        await tables.add_key(conn, key.key_id, NAME, digest(key.text))
        return {NAME}

    await access.change(enter)
    runner = JobRunner(world.store.database)
    runner.principal_of = access.acting
    guard = Guard(world.store, access, _no_branches)
    operations = checked({"JobService": JobOperations(world.store, world.pages, runner)}, guard.admit, guard.changes)
    made = Watching(world, access, key, runner, operations["JobService"])
    runner.register("work", made.work)
    await runner.start()
    yield made
    made.steps.put_nowait(3)
    await runner.stop()
    await access.close()


async def _no_branches(_workspace: str, _number: int) -> tuple[str, str]:
    raise AssertionError("this asks for no proposal")


@pytest.mark.parametrize("lost", ["key", "principal", "role"])
async def test_who_has_lost_key_or_role_sees_no_further_step_of_a_job(watching: Watching, lost: str) -> None:
    seen = []

    async def lose(conn: Connection) -> set[str]:
        match lost:
            case "key":
                await tables.delete_key(conn, watching.key.key_id)
            case "principal":
                await tables.delete_principal(conn, NAME)
            case _:
                await tables.delete_grant(conn, NAME, watching.world.workspace, ALL_BRANCHES)
        return {NAME}

    async def watch() -> None:
        async for event in watching.changes():
            seen.append(event.job.progress.done)
            await watching.access.change(lose)
            watching.steps.put_nowait(1 if len(seen) == 1 else 3)

    with pytest.raises(JobNotFoundError if lost == "role" else KeyRefusedError):
        await watch()
    assert seen == [0]
