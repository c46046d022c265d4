"""A job runner whose work waits for the test."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeAlias

from google.protobuf.message import Message
from memotree_storage.postgres import jobs as rows
from memotree_storage.store import Store

from memotree.jobs import Job, JobContext, JobRunner
from memotree.v1 import job_service_pb2 as pb

WORKSPACE: Final = "0123456789abcdef"
PATIENCE: Final = 60.0

Act: TypeAlias = Callable[[JobContext], Awaitable[Message | None]]


class Stage:
    """A runner with one kind of job, ``act``, which waits for ``leave`` unless a test replaces it."""

    def __init__(
        self,
        store: Store,
        act: Act | None,
        options: Mapping[str, Any],
        clean: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.database = store.database
        self.runner = JobRunner(store.database, **options)
        self.entered = asyncio.Event()
        self.leave = asyncio.Event()
        self.played: list[str] = []
        self._plays = asyncio.Condition()
        self.runner.register("act", act or self.wait_for_leave, when_none_is_left=clean)

    async def wait_for_leave(self, running: JobContext) -> None:
        """The default work of ``act``."""
        async with self._plays:
            self.played.append(running.job.subject)
            self._plays.notify_all()
        self.entered.set()
        await self.leave.wait()

    async def submit(self, subject: str = "", **named: Any) -> Job:
        """Queue a job; its subject is also its request."""
        request = pb.StartRebuildRequest(workspace=subject)
        return await self.runner.submit(WORKSPACE, "act", request, subject=subject, **named)

    async def begun(self, job: Job) -> None:
        """Wait until the work of a job has begun; its row says that it runs a moment before."""
        async with asyncio.timeout(PATIENCE), self._plays:
            await self._plays.wait_for(lambda: job.subject in self.played)

    async def over(self, job: Job | str) -> Job:
        """The job at its end."""
        async with asyncio.timeout(PATIENCE):
            return await self.runner.wait(job if isinstance(job, str) else job.id)

    async def until(self, job: Job, state: str) -> Job:
        """The job when it has that state."""
        async with asyncio.timeout(PATIENCE):
            async for seen in self.runner.watch(job.id):
                if seen.state == state:
                    return seen
        raise AssertionError(f"it never was {state}")

    async def stored(self, job: Job) -> Job:
        """The row of a job in PostgreSQL."""
        async with self.database.connection() as conn:
            found = await rows.read(conn, job.id)
        assert found is not None
        return found

    async def count(self, table: str) -> int:
        """The rows of a table of jobs."""
        async with self.database.connection() as conn:
            row = await (await conn.execute(f"select count(*) from work.{table}".encode())).fetchone()  # noqa: S608 - of the test
        assert row is not None
        return int(row[0])


Open: TypeAlias = Callable[..., AbstractAsyncContextManager[Stage]]


async def crash(store: Store, job: Job, times: int = 1) -> None:
    """Leave a job as after this many crashes of its process in a row."""
    async with store.database.transaction() as conn:
        await conn.execute(
            "update work.job set state = 'running', owner = 'dead', crashes = %s, attempts = attempts + 1"
            " where job_id = %s",
            (times - 1, job.id),
        )


def raising(error: BaseException) -> Act:
    """Work that raises an error."""

    async def act(_: JobContext) -> None:
        raise error

    return act
