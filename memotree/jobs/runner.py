"""Runs jobs: takes them from the table in order, a few at once, and writes down what becomes of each.

What a job has to be: work that may begin again from its start at any time, because a process can end at any moment. It
keeps what must not be made twice under names (``JobContext.keep``), and its effects are such that doing them again
changes nothing.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal, TypeAlias

import psycopg
import structlog
from google.protobuf.message import Message
from memotree_storage import faults
from memotree_storage.concurrency.cancellation import cancel_and_wait
from memotree_storage.errors import MemoTreeError, NotFoundError, UnavailableError
from memotree_storage.ports import IndexUnavailableError
from memotree_storage.postgres import jobs
from memotree_storage.postgres.database import (
    Database,
    DatabaseUnavailableError,
    ServerBusyError,
    TransactionRacedError,
)
from memotree_storage.postgres.jobs import CANCELLED, FAILED, QUEUED, SUCCEEDED, Job, NewJob, Outcome
from memotree_storage.postgres.requests import begin_request, end_request

from memotree.jobs.job_context import JobContext
from memotree.jobs.outcomes import outcome_of
from memotree.jobs.watchers import Watchers
from memotree.request.idempotency import check_request_id

MAX_CRASHES: Final = 5
"""A job in which this many processes ended, one after the other, is not begun again by itself."""

SUSPECT_CRASHES: Final = 2
"""From so many on a job runs alone, so that no other is taken for the one that ends processes."""

STORE_OUTAGES: Final = (DatabaseUnavailableError, ServerBusyError, TransactionRacedError, IndexUnavailableError)
"""What a job is begun again after by itself: our own stores are back within seconds, or the server is at an end."""

_PAUSES: Final = (1.0, 4.0, 16.0)
_LOOK_AGAIN: Final = 15.0
_TIDY: Final = 3600.0
_CANCEL_PATIENCE: Final = 5.0
_STOP_PATIENCE: Final = 5.0
_DIED: Final = Outcome(
    FAILED,
    "JOB_ENDS_SERVER",
    f"The server ended {MAX_CRASHES} times while it worked on this job, so it is not begun again by itself. Look for "
    "the cause in its log (memory, perhaps), then resume the job.",
)
_log = structlog.get_logger(__name__)

Work: TypeAlias = Callable[[JobContext], Awaitable[Message | None]]
"""Does a job and returns its result, a message of the contract, or ``None`` when there is nothing to tell."""

Why: TypeAlias = Literal["", "cancel", "stop", "gone"]


class JobNotFoundError(NotFoundError):
    """There is no such job."""

    reason = "JOB_NOT_FOUND"

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"There is no job {job_id!r}; one that is over is forgotten after a while. List them with ListJobs.",
            "job",
            job_id,
        )


class JobsPausedError(UnavailableError):
    """The server stops and begins no job any more."""

    reason = "JOBS_PAUSED"

    def __init__(self) -> None:
        super().__init__("The server stops; the job goes on when a server runs again. Watch it again then.")


@dataclass(slots=True)
class _Active:
    """A job that runs here."""

    context: JobContext
    work: asyncio.Task[Message | None]
    why: Why = ""
    done: asyncio.Event = field(default_factory=asyncio.Event)


class JobRunner:
    """Queues and runs the jobs of one data folder; belongs to one event loop.

    Args:
        database: Where the jobs are.
        concurrency: How many run at once.
        retention: How long a job that is over is remembered.
        pauses: Seconds to wait before a job that met an outage of a store of ours is begun again, one for each time.
    """

    def __init__(
        self,
        database: Database,
        *,
        concurrency: int = 2,
        retention: timedelta = timedelta(days=30),
        pauses: Sequence[float] = _PAUSES,
    ) -> None:
        self._database = database
        self._concurrency = concurrency
        self._retention = retention
        self._pauses = tuple(pauses)
        self._owner = jobs.make_owner()
        self._works: dict[str, Work] = {}
        self._active: dict[str, _Active] = {}
        self._watchers = Watchers()
        self._background: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._stopping = False
        self._loop: asyncio.Task[None] | None = None

    def register(self, kind: str, work: Work) -> None:
        """Name the work of a kind of job; before ``start``."""
        if kind in self._works:
            twice = f"two works are named {kind}"
            raise ValueError(twice)
        self._works[kind] = work

    async def start(self) -> None:
        """Take up what the last process left, then begin to run jobs in the background.

        Only one process at a time may do so on a data folder: what is marked as running is taken to be nobody's.

        Raises:
            DatabaseUnavailableError: PostgreSQL does not answer.
        """
        async with self._database.transaction() as conn:
            left = await jobs.requeue_orphans(conn, MAX_CRASHES, _DIED)
        for job in left:
            _log.warning(
                "a job ran when its process ended", job=job.id, kind=job.kind, now=job.state, times=job.crashes
            )
        self._loop = asyncio.create_task(self._work_off(), name="memotree-jobs")

    def begin_stop(self) -> None:
        """Begin no job any more, send those under way back to the queue, and end all watching; waits for nothing."""
        self._stopping = True
        self._wake.set()
        for active in self._active.values():
            self._end(active, "stop")
        self._watchers.tell_all()

    async def stop(self) -> None:
        """Stop running jobs; those under way go back to the queue and run at the next start."""
        self._stopping = True
        self._wake.set()
        if self._loop is not None:
            await self._loop
            self._loop = None
        self.begin_stop()  # only now is it certain that no further one begins
        await cancel_and_wait(active.work for active in self._active.values())
        if self._background:
            await asyncio.wait(self._background, timeout=_STOP_PATIENCE)
            await cancel_and_wait(self._background)

    async def submit(
        self,
        workspace_id: str,
        kind: str,
        request: Message,
        *,
        subject: str = "",
        lane: str = "",
        request_id: str = "",
        inputs: Mapping[str, bytes] | None = None,
    ) -> Job:
        """Queue a job; it is durable when this returns.

        Args:
            workspace_id: The workspace, which goes with its jobs.
            kind: A registered kind.
            request: What the work gets; large texts and files belong to ``inputs``.
            subject: What it works on, for a person.
            lane: Jobs of one lane run one after the other, in the order of creation.
            request_id: The same id gives the same job.
            inputs: Bytes by name; kept until the job has succeeded.

        Raises:
            RequestIdReusedError: The request id came with something else before.
            JobNotFoundError: The request id made a job that is forgotten.
            DatabaseUnavailableError: PostgreSQL does not answer.
        """
        if kind not in self._works:
            unknown = f"nothing is registered for jobs of the kind {kind}"
            raise ValueError(unknown)
        check_request_id(request_id)
        given = dict(inputs or {})
        new = NewJob(workspace_id, kind, request.SerializeToString(deterministic=True), subject, lane)
        call = await asyncio.to_thread(_call, new, given) if request_id else b""
        async with self._database.transaction() as conn:
            earlier = await begin_request(conn, workspace_id, request_id, call)
            if earlier is None:
                job_id = await jobs.create(conn, new, given)
                await end_request(conn, workspace_id, request_id, job_id.encode())
            else:
                job_id = earlier.decode()
            job = await jobs.read(conn, job_id)
        if job is None:
            raise JobNotFoundError(job_id)
        self._wake.set()
        return job

    async def get(self, job_id: str) -> Job:
        """The job as it is now.

        Raises:
            JobNotFoundError: There is none.
        """
        if job_id in self._active:
            return self._active[job_id].context.job
        async with self._database.connection() as conn:
            job = await jobs.read(conn, job_id)
        if job is None:
            raise JobNotFoundError(job_id)
        return job

    def seen(self, job: Job) -> Job:
        """A job that was read from the table, with the progress that only this process knows yet."""
        return self._active[job.id].context.job if job.id in self._active else job

    async def watch(self, job_id: str) -> AsyncGenerator[Job]:
        """The job as it is now, then at its changes, until it is over; who is slow misses changes between.

        Raises:
            JobNotFoundError: There is none, or its workspace was deleted meanwhile.
            JobsPausedError: The server stops before the job is over.
        """
        told: Job | None = None
        with self._watchers.of(job_id) as changed:
            while True:
                changed.clear()
                job = await self.get(job_id)
                if job != told:
                    yield job
                told = job
                if job.over:
                    return
                if self._stopping:
                    raise JobsPausedError
                with suppress(TimeoutError):  # look again: another process may run it
                    async with asyncio.timeout(_LOOK_AGAIN):
                        await changed.wait()

    async def wait(self, job_id: str) -> Job:
        """The job when it is over.

        Raises:
            JobNotFoundError: There is none.
            JobsPausedError: The server stops before the job is over.
        """
        job = await self.get(job_id)
        async for each in self.watch(job_id):
            job = each
        return job

    async def cancel(self, job_id: str) -> Job:
        """End a job; one that is over is left as it is, but that one that stopped is not to be resumed any more.

        Returns when the job has ended, or after some seconds while it finishes what must not be torn apart.

        Raises:
            JobNotFoundError: There is none.
        """
        async with self._database.transaction() as conn:
            job = await jobs.ask_to_cancel(conn, job_id)
        if job is None:
            raise JobNotFoundError(job_id)
        active = self._active.get(job_id)
        if active is not None:
            self._end(active, "cancel")
            with suppress(TimeoutError):
                async with asyncio.timeout(_CANCEL_PATIENCE):
                    await active.done.wait()
        self._changed(job_id)
        return await self.get(job_id)

    async def resume(self, job_id: str, keep: Mapping[str, bytes] | None = None) -> Job | None:
        """Queue a job again that stopped, failed or was cancelled; ``None`` when it is in another state.

        Args:
            job_id: The job.
            keep: What the work finds by ``JobContext.kept``.

        Raises:
            JobNotFoundError: There is none.
        """
        async with self._database.transaction() as conn:
            if not await jobs.resume(conn, job_id):
                if await jobs.read(conn, job_id) is None:
                    raise JobNotFoundError(job_id)
                return None
            for name, data in (keep or {}).items():
                await jobs.put_note(conn, job_id, name, data)
        self._changed(job_id)
        return await self.get(job_id)

    def forget_workspace(self, workspace_id: str) -> None:
        """End what runs for a workspace that is gone; its rows have gone with it."""
        for active in self._active.values():
            if active.context.job.workspace_id == workspace_id:
                self._end(active, "gone")

    async def tidy(self) -> int:
        """Remove the jobs that are over for longer than the retention; how many."""
        async with self._database.transaction() as conn:
            return await jobs.forget_old(conn, self._retention)

    # --- running ---

    async def _work_off(self) -> None:
        """Begin jobs while there are some and hands are free; then wait for news."""
        tidied = -_TIDY
        while not self._stopping:
            self._wake.clear()
            try:
                while await self._begin_one():
                    pass
                if time.monotonic() - tidied > _TIDY:
                    await self.tidy()
                    tidied = time.monotonic()
            except UnavailableError as error:
                _log.warning("jobs wait for PostgreSQL", why=error.message)
            except Exception:  # noqa: BLE001 - jobs go on, whatever one round met
                _log.exception("a round of the jobs failed")
            if not self._stopping:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_AGAIN):
                        await self._wake.wait()

    async def _begin_one(self) -> bool:
        """Begin the next job; false when none can begin now."""
        most = self._max_crashes()
        if self._stopping or len(self._active) >= self._concurrency or most is None:
            return False
        async with self._database.transaction() as conn:
            job = await jobs.claim(conn, self._owner, self._works, max_crashes=most, running=self._active)
        if job is None:
            return False
        faults.point("job.claimed")
        context = JobContext(self._database, self._owner, job, lambda changed: self._watchers.tell(changed.id))
        active = _Active(context, asyncio.create_task(self._attempt(context), name=f"{job.kind} {job.id}"))
        self._active[job.id] = active
        self._in_background(self._follow(active))
        self._watchers.tell(job.id)
        _log.info("a job begins", job=job.id, kind=job.kind, subject=job.subject, attempt=job.attempts)
        return True

    def _max_crashes(self) -> int | None:
        """How many crashes the next job may have behind it; ``None`` when it has to wait for a suspect to end."""
        if not self._active:
            return MAX_CRASHES
        alone = any(active.context.job.crashes >= SUSPECT_CRASHES for active in self._active.values())
        return None if alone else SUSPECT_CRASHES - 1

    async def _attempt(self, context: JobContext) -> Message | None:
        """Do the work; begin again after an outage of a store of ours, a few times."""
        work = self._works[context.job.kind]
        for pause in self._pauses:
            try:
                return await work(context)
            except STORE_OUTAGES as error:
                _log.warning("a job waits for a store", job=context.job.id, why=error.message, seconds=pause)
                await asyncio.sleep(pause)
        return await work(context)

    async def _follow(self, active: _Active) -> None:
        """Wait for the work of a job, and write down what became of it."""
        job_id = active.context.job.id

        def end(wanted: bool) -> None:
            self._end(active, "cancel" if wanted else "gone")

        writing = asyncio.create_task(active.context.write_often(end))
        try:
            await asyncio.wait([active.work])
            await cancel_and_wait([writing])
            faults.point("job.worked")
            await self._finish(active, _outcome(active))
            faults.point("job.recorded")
        finally:
            del self._active[job_id]
            active.done.set()
            self._changed(job_id)

    async def _finish(self, active: _Active, outcome: Outcome | None) -> None:
        """Write an outcome, however long PostgreSQL is away; a stop leaves that to the next start."""
        job, pause = active.context.job, 0.1
        while outcome is not None:
            try:
                async with self._database.transaction() as conn:
                    ended = await jobs.finish(conn, self._owner, job, outcome)
            except (MemoTreeError, psycopg.Error) as error:
                _log.warning("the end of a job is not written yet", job=job.id, why=str(error))
                await asyncio.sleep(pause)
                pause = min(2 * pause, 5.0)
            else:
                state = ended.state if ended else "gone"
                _log.info("a job ends", job=job.id, kind=job.kind, state=state, reason=outcome.reason)
                return

    def _end(self, active: _Active, why: Why) -> None:
        """Cancel the work of a job, in the background."""
        if not active.why:
            active.why = why
            self._in_background(cancel_and_wait([active.work]))

    def _in_background(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _changed(self, job_id: str) -> None:
        self._watchers.tell(job_id)
        self._wake.set()


def _outcome(active: _Active) -> Outcome | None:
    """What became of an attempt that has ended; ``None`` when nobody is left to be told."""
    job, work = active.context.job, active.work
    error = asyncio.CancelledError() if work.cancelled() else work.exception()
    if active.why == "gone":
        return None
    if error is None:
        result = work.result()
        if result is None:
            return Outcome(SUCCEEDED)
        return Outcome(
            SUCCEEDED, result_type=result.DESCRIPTOR.full_name, result=result.SerializeToString(deterministic=True)
        )
    if active.why == "cancel":
        return Outcome(CANCELLED)
    if active.why == "stop" and isinstance(error, (asyncio.CancelledError, UnavailableError)):
        return Outcome(QUEUED)
    return outcome_of(error, job)


def _call(new: NewJob, inputs: Mapping[str, bytes]) -> bytes:
    """What a request id stands for: the same bytes for the same call."""
    parts = [new.kind.encode(), new.request]
    for name in sorted(inputs):
        parts += [name.encode(), hashlib.sha256(inputs[name]).digest()]
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)
