"""Jobs as rows: long-running work with its request, state, progress and result.

A row is changed by the caller (``create``, ``ask_to_cancel``, ``resume``), by the process that runs it (``claim``,
``note_progress``, ``finish``), and at the start of a process (``requeue_orphans``).
"""

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from memotree_storage.model.access import ALL_JOBS, JobSight
from memotree_storage.model.node import new_id
from memotree_storage.postgres.database import AdvisoryLock, Connection

QUEUED: Final = "queued"
RUNNING: Final = "running"
SUCCEEDED: Final = "succeeded"
FAILED: Final = "failed"
STOPPED: Final = "stopped"
CANCELLED: Final = "cancelled"

OVER: Final = frozenset({SUCCEEDED, FAILED, STOPPED, CANCELLED})
"""The final states: the job continues only if it is resumed."""

RESUMABLE: Final = frozenset({FAILED, STOPPED, CANCELLED})

_COLUMNS: Final = (
    "number, job_id as id, workspace_id, kind, subject, lane, state, step, done, total, reason, message, attempts,"
    " crashes, result_type, result, usage, created_at, updated_at, principal"
)
_WHOLE: Final = f"{_COLUMNS}, request"
_BRIEF: Final = f"{_COLUMNS}, ''::bytea as request"


@dataclass(frozen=True, slots=True)
class Job:
    """A unit of long-running work.

    Attributes:
        number: Increases with every job, so it gives the order of creation.
        id: Sixteen characters, like a node's id.
        workspace_id: The workspace that the job belongs to.
        kind: The kind of work, such as ``rebuild``.
        subject: What the job works on, as a text for people.
        lane: Jobs of the same lane run one after the other; jobs without a lane do not wait for each other.
        state: One of the states of this module.
        step: The current step.
        done: Units of the step that are done.
        total: Units of the step; 0 if unknown.
        reason: The error code, if the job failed or stopped.
        message: The error as a sentence.
        attempts: How often the job was started.
        crashes: How many times in a row the process ended while the job ran.
        result_type: The full name of the result's message type; empty without a result.
        result: The bytes of the result.
        usage: The use of models, one mapping for each kind and model.
        created_at: When the job was created.
        updated_at: When the job last changed.
        principal: Who asked for the job; empty if nobody was asked who they are.
        request: The bytes of the request; left out in lists.
    """

    number: int
    id: str
    workspace_id: str
    kind: str
    subject: str
    lane: str
    state: str
    step: str
    done: int
    total: int
    reason: str
    message: str
    attempts: int
    crashes: int
    result_type: str
    result: bytes
    usage: Sequence[Mapping[str, Any]]
    created_at: datetime
    updated_at: datetime
    principal: str = ""
    request: bytes = b""

    @property
    def over(self) -> bool:
        """Whether the job is in a final state."""
        return self.state in OVER


@dataclass(frozen=True, slots=True)
class NewJob:
    """The fields of a new job; see ``Job``."""

    workspace_id: str
    kind: str
    request: bytes
    subject: str = ""
    lane: str = ""
    principal: str = ""


@dataclass(frozen=True, slots=True)
class JobFilter:
    """A filter for a list of jobs; a job must match every field that is set."""

    workspace_id: str = ""
    states: Collection[str] = ()
    kind: str = ""
    sight: JobSight = ALL_JOBS


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an attempt."""

    state: str
    reason: str = ""
    message: str = ""
    result_type: str = ""
    result: bytes = b""


def make_owner() -> str:
    """Return a unique name for a process that runs jobs."""
    return secrets.token_hex(8)


async def create(conn: Connection, new: NewJob, inputs: Mapping[str, bytes]) -> str:
    """Queue a job with its inputs; return its id."""
    job_id = new_id()
    await conn.execute(
        "insert into work.job (job_id, workspace_id, kind, subject, lane, request, principal)"
        " values (%s, %s, %s, %s, %s, %s, %s)",
        (job_id, new.workspace_id, new.kind, new.subject, new.lane, new.request, new.principal),
    )
    for name, data in inputs.items():
        await conn.execute("insert into work.job_input values (%s, %s, %s)", (job_id, name, data))
    return job_id


async def read(conn: Connection, job_id: str) -> Job | None:
    """Return a job with its request; ``None`` if there is none."""
    async with conn.cursor(row_factory=class_row(Job)) as cursor:
        await cursor.execute(f"select {_WHOLE} from work.job where job_id = %s", (job_id,))  # noqa: S608 - constants
        return await cursor.fetchone()


_SEEN: Final = (
    " and (%(principal)s::text is null or workspace_id = any(%(seen_workspaces)s::text[]) or (principal = %(principal)s"
    " and (%(own_in)s::text[] is null or workspace_id = any(%(own_in)s))))"
)


def _sight(sight: JobSight) -> dict[str, Any]:
    return {
        "principal": sight.principal,
        "seen_workspaces": list(sight.workspace_ids),
        "own_in": None if sight.own_in is None else list(sight.own_in),
    }


async def with_prefix(conn: Connection, prefix: str, limit: int, sight: JobSight = ALL_JOBS) -> list[str]:
    """Return the ids of seen jobs that begin with the prefix, at most ``limit``."""
    cursor = await conn.execute(
        "select job_id from work.job where job_id >= %(from)s and job_id < %(to)s"  # noqa: S608 - constants
        f"{_SEEN} order by job_id limit %(limit)s",
        {"from": prefix, "to": f"{prefix}~", "limit": limit, **_sight(sight)},
    )
    return [str(row[0]) for row in await cursor.fetchall()]


async def list_jobs(conn: Connection, wanted: JobFilter, *, before: int | None, limit: int) -> list[Job]:
    """Return jobs without their requests, newest first, with numbers below ``before``."""
    async with conn.cursor(row_factory=class_row(Job)) as cursor:
        await cursor.execute(
            f"select {_BRIEF} from work.job where (%(workspace)s = '' or workspace_id = %(workspace)s)"  # noqa: S608 - constants
            " and (%(kind)s = '' or kind = %(kind)s)"
            " and (cardinality(%(states)s::text[]) = 0 or state = any(%(states)s))"
            f" and (%(before)s::bigint is null or number < %(before)s){_SEEN} order by number desc limit %(limit)s",
            {
                "workspace": wanted.workspace_id,
                "kind": wanted.kind,
                "states": list(wanted.states),
                "before": before,
                "limit": limit,
                **_sight(wanted.sight),
            },
        )
        return await cursor.fetchall()


async def claim(
    conn: Connection, owner: str, kinds: Collection[str], *, max_crashes: int, running: Collection[str] = ()
) -> Job | None:
    """Start the oldest job whose lane is free; return ``None`` if there is none.

    Args:
        conn: In a transaction.
        owner: The process that will run the job.
        kinds: The kinds that the process can run.
        max_crashes: Jobs with more crashes than this stay in the queue.
        running: The jobs that the owner knows it is running. Any other job that it owns is one whose claim PostgreSQL
            committed but could not confirm; such a job is started again.
    """
    # One claim at a time: two concurrent claims could each take a job of the same lane.
    await conn.execute("select pg_advisory_xact_lock(%s)", (AdvisoryLock.JOB_CLAIM.value,))
    async with conn.cursor(row_factory=class_row(Job)) as cursor:
        await cursor.execute(
            "update work.job set state = 'running', owner = %(owner)s, attempts = attempts + 1, reason = '',"  # noqa: S608 - constants
            " message = '', updated_at = now() where job_id = (select j.job_id from work.job j"
            " where (j.state = 'queued'"
            " or (j.state = 'running' and j.owner = %(owner)s and j.job_id <> all(%(running)s)))"
            " and j.kind = any(%(kinds)s) and j.crashes <= %(max_crashes)s and (j.lane = '' or not exists ("
            " select from work.job o where o.lane = j.lane and o.job_id <> j.job_id"
            " and (o.state = 'running' or (j.state = 'queued' and o.state = 'queued' and o.number < j.number))))"
            f" order by j.number limit 1 for update skip locked) returning {_WHOLE}",
            {"owner": owner, "kinds": list(kinds), "max_crashes": max_crashes, "running": list(running)},
        )
        return await cursor.fetchone()


async def note_progress(conn: Connection, owner: str, job: Job) -> bool | None:
    """Write the progress of a running job.

    Returns:
        Whether its cancellation was requested; ``None`` if the job was deleted or is no longer the owner's.
    """
    cursor = await conn.execute(
        "update work.job set step = %s, done = %s, total = %s, usage = %s, updated_at = now()"
        " where job_id = %s and owner = %s and state = 'running' returning cancelling",
        (job.step, job.done, job.total, Jsonb(list(job.usage)), job.id, owner),
    )
    row = await cursor.fetchone()
    return None if row is None else bool(row[0])


async def end_wanted(conn: Connection, owner: str, job_id: str) -> bool | None:
    """Whether a running job is to be cancelled; ``None`` if it was deleted or is no longer the owner's."""
    cursor = await conn.execute(
        "select cancelling from work.job where job_id = %s and owner = %s and state = 'running'", (job_id, owner)
    )
    row = await cursor.fetchone()
    return None if row is None else bool(row[0])


async def finish(conn: Connection, owner: str, job: Job, outcome: Outcome) -> Job | None:
    """End an attempt of a running job; return ``None`` if the job was deleted or is no longer the owner's.

    A job that succeeded loses its inputs and notes. A job to be queued again is cancelled if that was requested.
    """
    async with conn.cursor(row_factory=class_row(Job)) as cursor:
        await cursor.execute(
            "update work.job set state = case when cancelling and %(state)s = 'queued' then 'cancelled'"  # noqa: S608 - constants
            " else %(state)s end, cancelling = false, owner = '', crashes = 0, step = %(step)s, done = %(done)s,"
            " total = %(total)s, usage = %(usage)s, reason = %(reason)s, message = %(message)s,"
            " result_type = %(result_type)s, result = %(result)s, updated_at = now()"
            f" where job_id = %(id)s and owner = %(owner)s and state = 'running' returning {_WHOLE}",
            {
                "state": outcome.state,
                "step": job.step,
                "done": job.done,
                "total": job.total,
                "usage": Jsonb(list(job.usage)),
                "reason": outcome.reason,
                "message": outcome.message,
                "result_type": outcome.result_type,
                "result": outcome.result,
                "id": job.id,
                "owner": owner,
            },
        )
        ended = await cursor.fetchone()
    if ended is not None and ended.state == SUCCEEDED:
        for table in ("job_input", "job_note"):
            await conn.execute(f"delete from work.{table} where job_id = %s", (job.id,))  # noqa: S608 - constants
    return ended


async def requeue_orphans(conn: Connection, max_crashes: int, last_words: Outcome) -> list[Job]:
    """Queue the jobs again that ran when their process ended; call this at the start, with one process per data folder.

    Args:
        conn: In a transaction.
        max_crashes: A job with this many crashes in a row is not queued again.
        last_words: The outcome of such a job.

    Returns:
        The jobs that had been running, in their new state.
    """
    async with conn.cursor(row_factory=class_row(Job)) as cursor:
        await cursor.execute(
            "update work.job set owner = '', crashes = crashes + 1, cancelling = false, updated_at = now(),"  # noqa: S608 - constants
            " state = case when cancelling then 'cancelled'"
            " when crashes + 1 >= %(most)s then %(state)s else 'queued' end,"
            " reason = case when not cancelling and crashes + 1 >= %(most)s then %(reason)s else '' end,"
            " message = case when not cancelling and crashes + 1 >= %(most)s then %(message)s else '' end"
            f" where state = 'running' returning {_WHOLE}",
            {
                "most": max_crashes,
                "state": last_words.state,
                "reason": last_words.reason,
                "message": last_words.message,
            },
        )
        return await cursor.fetchall()


async def ask_to_cancel(conn: Connection, job_id: str) -> Job | None:
    """Cancel a job that is not running, or request the cancellation of one that is.

    Returns:
        The job as it is now; ``None`` if there is no such job.
    """
    await conn.execute(
        "update work.job set cancelling = (state = 'running'), updated_at = now(),"
        " reason = case state when 'stopped' then '' else reason end,"
        " message = case state when 'stopped' then '' else message end,"
        " state = case state when 'running' then state else 'cancelled' end"
        " where job_id = %s and state in ('queued', 'running', 'stopped')",
        (job_id,),
    )
    return await read(conn, job_id)


async def resume(conn: Connection, job_id: str) -> bool:
    """Queue a job again that stopped, failed or was cancelled; return whether it was in one of these states."""
    cursor = await conn.execute(
        "update work.job set state = 'queued', reason = '', message = '', crashes = 0, cancelling = false,"
        " updated_at = now() where job_id = %s and state = any(%s)",
        (job_id, list(RESUMABLE)),
    )
    return cursor.rowcount > 0


async def read_input(conn: Connection, job_id: str, name: str) -> bytes | None:
    """Return an input of a job; ``None`` if there is none."""
    return await _datum(conn, "job_input", job_id, name)


async def put_note(conn: Connection, job_id: str, name: str, data: bytes) -> None:
    """Store data for a job under a name."""
    await conn.execute(
        "insert into work.job_note select job_id, %s, %s from work.job where job_id = %s"
        " on conflict (job_id, name) do update set data = excluded.data",
        (name, data, job_id),
    )


async def read_note(conn: Connection, job_id: str, name: str) -> bytes | None:
    """Return the data that was stored for a job under a name; ``None`` if there is none."""
    return await _datum(conn, "job_note", job_id, name)


async def _datum(conn: Connection, table: str, job_id: str, name: str) -> bytes | None:
    cursor = await conn.execute(f"select data from work.{table} where job_id = %s and name = %s", (job_id, name))  # noqa: S608 - constants
    row = await cursor.fetchone()
    return None if row is None else bytes(row[0])


async def forget_old(conn: Connection, retention: timedelta) -> int:
    """Delete jobs that have been in a final state for longer than ``retention``; return how many."""
    cursor = await conn.execute(
        "delete from work.job where state = any(%s) and updated_at < now() - %s", (list(OVER), retention)
    )
    return cursor.rowcount


async def drop_input(conn: Connection, job_id: str, name: str) -> None:
    """Delete an input of a job that needs it no more."""
    await conn.execute("delete from work.job_input where job_id = %s and name = %s", (job_id, name))
