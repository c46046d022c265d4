"""Runs jobs: claims them from the table in order, a few at once, and records the outcome of each.

The work of a job must be restartable, because the process can crash at any moment: it may be run again from its start,
and its effects must be idempotent. It can store results that must not be made twice under names (``JobContext.keep``).
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
from memotree_storage.postgres.database import Database, ServerBusyError, TransactionRacedError
from memotree_storage.postgres.jobs import CANCELLED, FAILED, QUEUED, SUCCEEDED, Job, NewJob, Outcome
from memotree_storage.postgres.reach import DatabaseUnavailableError
from memotree_storage.postgres.requests import begin_request, end_request

from memotree.jobs.job_context import JobContext
from memotree.jobs.leftovers import Leftovers
from memotree.jobs.outcomes import outcome_of
from memotree.jobs.watchers import Watchers
from memotree.request.idempotency import kept_request_id
from memotree.request.principal import LOCAL, Principal, acting_as, principal

MAX_CRASHES: Final = 5
"""A job during which the server crashed this many times in a row is not restarted automatically."""

SUSPECT_CRASHES: Final = 2
"""A job with this many crashes or more runs alone, so that no other job is blamed for a crash it causes."""

STORE_OUTAGES: Final = (DatabaseUnavailableError, ServerBusyError, TransactionRacedError, IndexUnavailableError)
"""A job is retried automatically after these errors: our own stores are back within seconds, or the server cannot
run anyway."""

_PAUSES: Final = (1.0, 4.0, 16.0)
_LOOK_AGAIN: Final = 15.0
_TIDY: Final = 3600.0
_CANCEL_PATIENCE: Final = 5.0
_STOP_PATIENCE: Final = 5.0
_CRASHED: Final = Outcome(
    FAILED,
    "JOB_ENDS_SERVER",
    f"The server crashed {MAX_CRASHES} times while it ran this job, so the job is not restarted automatically. Look "
    "for the cause in the server's log (it may be memory), then resume the job.",
)
_log = structlog.get_logger(__name__)

Work: TypeAlias = Callable[[JobContext], Awaitable[Message | None]]
"""Does the work of a job and returns its result, a protobuf message, or ``None`` if it has no result."""

Why: TypeAlias = Literal["", "cancel", "stop", "gone"]


class JobNotFoundError(NotFoundError):
    """There is no such job."""

    reason = "JOB_NOT_FOUND"

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"There is no job {job_id!r}; finished jobs are removed after a while. List the others with ListJobs.",
            "job",
            job_id,
        )


class JobsPausedError(UnavailableError):
    """The server is stopping and does not run jobs any more."""

    reason = "JOBS_PAUSED"

    def __init__(self) -> None:
        super().__init__("The server is stopping; the job continues after the next start. Watch it again then.")


@dataclass(slots=True)
class _Active:
    """A job that is running in this process."""

    context: JobContext
    work: asyncio.Task[Message | None]
    why: Why = ""
    done: asyncio.Event = field(default_factory=asyncio.Event)


class JobRunner:
    """Queues and runs the jobs of one data folder; belongs to one event loop.

    Args:
        database: The database with the jobs.
        concurrency: The most jobs that run at once.
        retention: How long finished jobs are kept.
        pauses: The seconds to wait before each retry of a job after an outage of one of our stores.
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
        self._leftovers = Leftovers(database)
        self._active: dict[str, _Active] = {}
        self._watchers = Watchers()
        self._background: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._stopping = False
        self._loop: asyncio.Task[None] | None = None
        self.permit: Callable[[Job], Awaitable[None]] | None = None
        """Raises why a job must not be done, as whoever asked for it may not any more; ``None`` if all may be."""
        self.principal_of: Callable[[str], Principal] = Principal
        """The principal of a name, as whom its jobs act."""

    def register(
        self, kind: str, work: Work, *, when_none_is_left: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        """Registers the work function of a kind of job; call it before ``start``.

        Args:
            kind: The kind.
            work: The work function.
            when_none_is_left: Removes what jobs of the kind keep from one attempt to the next. Called once a job has
                ended and no other one of the kind is queued, running or stopped, and at the start; safe to repeat.
        """
        if kind in self._works:
            message = f"jobs of the kind {kind} are registered already; use another name"
            raise ValueError(message)
        self._works[kind] = work
        if when_none_is_left is not None:
            self._leftovers.register(kind, when_none_is_left)

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of jobs that were registered."""
        return frozenset(self._works)

    async def start(self) -> None:
        """Requeues the jobs that the last process left running, then starts to run jobs in the background.

        Only one process at a time may run jobs on a data folder: jobs marked as running are taken to be orphaned.

        Raises:
            DatabaseUnavailableError: If PostgreSQL does not answer.
        """
        async with self._database.transaction() as conn:
            left = await jobs.requeue_orphans(conn, MAX_CRASHES, _CRASHED)
        for job in left:
            _log.warning(
                "a job was running when its process crashed",
                job=job.id,
                kind=job.kind,
                now=job.state,
                times=job.crashes,
            )
        self._loop = asyncio.create_task(self._run_loop(), name="memotree-jobs")
        for kind in self._leftovers.kinds:
            self._clean_up(kind)

    def begin_stop(self) -> None:
        """Stops claiming jobs, cancels running ones (they return to the queue) and ends watching; does not wait."""
        self._stopping = True
        self._wake.set()
        for active in self._active.values():
            self._end(active, "stop")
        self._watchers.notify_all()

    async def stop(self) -> None:
        """Stops running jobs and waits for it; running jobs return to the queue and run at the next start."""
        self._stopping = True
        self._wake.set()
        if self._loop is not None:
            await self._loop
            self._loop = None
        self.begin_stop()  # only after the loop has ended can no further job start
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
        """Queues a job; it is durable when this returns.

        Args:
            workspace_id: The workspace; its jobs are deleted with it.
            kind: A registered kind.
            request: The request for the work function; put large texts and files into ``inputs``.
            subject: What the job works on, for a person.
            lane: Jobs of one lane run one after the other, in the order of creation.
            request_id: A call with the same id returns the same job.
            inputs: Bytes by name; kept until the job has succeeded.

        Raises:
            RequestIdReusedError: If the request id was used for a different call before.
            JobNotFoundError: If the job of this request id was removed.
            DatabaseUnavailableError: If PostgreSQL does not answer.
        """
        if kind not in self._works:
            message = f"no work function is registered for jobs of the kind {kind}; register it before start"
            raise ValueError(message)
        request_id = kept_request_id(request_id)
        given = dict(inputs or {})
        owner = principal().owner
        new = NewJob(workspace_id, kind, request.SerializeToString(deterministic=True), subject, lane, owner)
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
        """Returns the job as it is now.

        Raises:
            JobNotFoundError: If there is no such job.
        """
        if job_id in self._active:
            return self._active[job_id].context.job
        async with self._database.connection() as conn:
            job = await jobs.read(conn, job_id)
        if job is None:
            raise JobNotFoundError(job_id)
        return job

    def seen(self, job: Job) -> Job:
        """Returns a job that was read from the table with its newest progress, which may not be written yet."""
        return self._active[job.id].context.job if job.id in self._active else job

    async def watch(self, job_id: str) -> AsyncGenerator[Job]:
        """Yields the job as it is now, then after changes, until it is over; a slow caller misses changes in between.

        Raises:
            JobNotFoundError: If there is no such job, or its workspace was deleted meanwhile.
            JobsPausedError: If the server stops before the job is over.
        """
        last: Job | None = None
        with self._watchers.of(job_id) as changed:
            while True:
                changed.clear()
                job = await self.get(job_id)
                if job != last:
                    yield job
                last = job
                if job.over:
                    return
                if self._stopping:
                    raise JobsPausedError
                with suppress(TimeoutError):  # check again after a while: another process may run it
                    async with asyncio.timeout(_LOOK_AGAIN):
                        await changed.wait()

    async def wait(self, job_id: str) -> Job:
        """Waits until the job is over and returns it.

        Raises:
            JobNotFoundError: If there is no such job.
            JobsPausedError: If the server stops before the job is over.
        """
        job = await self.get(job_id)
        async for changed in self.watch(job_id):
            job = changed
        return job

    async def cancel(self, job_id: str) -> Job:
        """Cancels a job. A finished job is not changed, except that a stopped one becomes cancelled.

        Returns when the job has ended, or after some seconds if it still finishes work that must not be interrupted.

        Raises:
            JobNotFoundError: If there is no such job.
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
        elif job.over:
            self._clean_up(job.kind)
        self._changed(job_id)
        return await self.get(job_id)

    async def resume(self, job_id: str, keep: Mapping[str, bytes] | None = None) -> Job | None:
        """Queues a job again that stopped, failed or was cancelled; returns ``None`` if it is in another state.

        Args:
            job_id: The job.
            keep: Notes by name, which the work function reads with ``JobContext.kept``.

        Raises:
            JobNotFoundError: If there is no such job.
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
        """Cancels the running jobs of a deleted workspace; their rows were deleted with it."""
        for active in self._active.values():
            if active.context.job.workspace_id == workspace_id:
                self._end(active, "gone")

    async def tidy(self) -> int:
        """Removes the jobs that were finished longer ago than the retention; returns how many."""
        async with self._database.transaction() as conn:
            return await jobs.forget_old(conn, self._retention)

    # --- Running ---

    async def _run_loop(self) -> None:
        """Starts queued jobs up to the limit, then waits for changes."""
        tidied = -_TIDY
        while not self._stopping:
            self._wake.clear()
            try:
                while await self._start_one():
                    pass
                if time.monotonic() - tidied > _TIDY:
                    await self.tidy()
                    tidied = time.monotonic()
            except UnavailableError as error:
                _log.warning("jobs wait for PostgreSQL", why=error.message)
            except Exception:  # noqa: BLE001 - the loop must survive any error of one round
                _log.exception("a round of the job loop failed")
            if not self._stopping:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_AGAIN):
                        await self._wake.wait()

    async def _start_one(self) -> bool:
        """Starts the next job; returns false if none can start now."""
        most = self._max_crashes()
        if self._stopping or len(self._active) >= self._concurrency or most is None:
            return False
        async with self._database.transaction() as conn:
            job = await jobs.claim(conn, self._owner, self._works, max_crashes=most, running=self._active)
        if job is None:
            return False
        faults.point("job.claimed")
        context = JobContext(self._database, self._owner, job, lambda changed: self._watchers.notify(changed.id))
        active = _Active(context, asyncio.create_task(self._attempt(context), name=f"{job.kind} {job.id}"))
        self._active[job.id] = active
        self._in_background(self._follow(active))
        self._watchers.notify(job.id)
        _log.info("a job starts", job=job.id, kind=job.kind, subject=job.subject, attempt=job.attempts)
        return True

    def _max_crashes(self) -> int | None:
        """Returns the most crashes that the next job may have had; ``None`` if it must wait for a suspect to end."""
        if not self._active:
            return MAX_CRASHES
        alone = any(active.context.job.crashes >= SUSPECT_CRASHES for active in self._active.values())
        return None if alone else SUSPECT_CRASHES - 1

    async def _attempt(self, context: JobContext) -> Message | None:
        """Does the work as whoever asked for it; retries it a few times after an outage of one of our stores."""
        owner = context.job.principal
        if owner and self.permit is not None:
            await self.permit(context.job)
        with acting_as(self.principal_of(owner) if owner else LOCAL):
            return await self._tries(context)

    async def _tries(self, context: JobContext) -> Message | None:
        work = self._works[context.job.kind]
        for pause in self._pauses:
            try:
                return await work(context)
            except STORE_OUTAGES as error:
                _log.warning("a job waits for a store", job=context.job.id, why=error.message, seconds=pause)
                await asyncio.sleep(pause)
        return await work(context)

    async def _follow(self, active: _Active) -> None:
        """Waits for the work of a job to end, and records the outcome."""
        job_id = active.context.job.id

        def end(cancelled: bool) -> None:
            self._end(active, "cancel" if cancelled else "gone")

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
            self._clean_up(active.context.job.kind)

    async def _finish(self, active: _Active, outcome: Outcome | None) -> None:
        """Records an outcome, retrying while PostgreSQL is down; a stop of the server leaves it to the next start."""
        job, pause = active.context.job, 0.1
        while outcome is not None:
            try:
                async with self._database.transaction() as conn:
                    ended = await jobs.finish(conn, self._owner, job, outcome)
            except (MemoTreeError, psycopg.Error) as error:
                _log.warning("the outcome of a job could not be written yet", job=job.id, why=str(error))
                await asyncio.sleep(pause)
                pause = min(2 * pause, 5.0)
            else:
                state = ended.state if ended else "gone"
                _log.info("a job ends", job=job.id, kind=job.kind, state=state, reason=outcome.reason)
                return

    def _end(self, active: _Active, why: Why) -> None:
        """Cancels the work of a job in the background."""
        if not active.why:
            active.why = why
            self._in_background(cancel_and_wait([active.work]))

    def _clean_up(self, kind: str) -> None:
        if not self._stopping:
            self._in_background(self._leftovers.remove(kind))

    def _in_background(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _changed(self, job_id: str) -> None:
        self._watchers.notify(job_id)
        self._wake.set()


def _outcome(active: _Active) -> Outcome | None:
    """Returns the outcome of an attempt that has ended; ``None`` if the job was deleted."""
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
    """Returns the fingerprint of a call, which a request id is checked against: equal for equal calls."""
    parts = [new.kind.encode(), new.request, *([new.principal.encode()] if new.principal else [])]
    for name in sorted(inputs):
        parts += [name.encode(), hashlib.sha256(inputs[name]).digest()]
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)
