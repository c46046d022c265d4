"""The context of a job for its work function: the job's data, its inputs, its notes, and its progress."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import psycopg
import structlog
from google.protobuf.message import Message
from memotree_storage.errors import FailedPreconditionError, MemoTreeError
from memotree_storage.postgres import jobs
from memotree_storage.postgres.database import Database
from memotree_storage.postgres.jobs import Job

from memotree.v1 import types_pb2

WRITE_SECONDS: Final = 0.5
"""Progress within a step is written to PostgreSQL at most once in this many seconds; a new step is written at once."""

_LOOK_AT_TICKS: Final = 4
_COUNTS: Final = ("calls", "prompt_tokens", "completion_tokens", "cached")
_log = structlog.get_logger(__name__)

Request = TypeVar("Request", bound=Message)


class JobInputMissingError(FailedPreconditionError):
    """The job has no input of this name."""

    reason = "JOB_INPUT_MISSING"

    def __init__(self, name: str) -> None:
        super().__init__(f"The job no longer has its input {name!r}. Submit the same work again as a new job.")


class JobContext:
    """The context of one attempt at a job, for its work function.

    Args:
        database: The database with the job.
        owner: The process that runs the job.
        job: The job as it was claimed.
        on_change: Called with the job at each change.
    """

    def __init__(self, database: Database, owner: str, job: Job, on_change: Callable[[Job], None]) -> None:
        self._database = database
        self._owner = owner
        self._job = job
        self._on_change = on_change
        self._earlier = tuple(job.usage)
        self._unwritten = False
        self._writing = asyncio.Lock()

    @property
    def job(self) -> Job:
        """The job with its current progress."""
        return self._job

    @property
    def earlier_usage(self) -> list[types_pb2.ModelUsage]:
        """The usage of models in the attempts before this one."""
        return [types_pb2.ModelUsage(**row) for row in self._earlier]

    def request(self, kind: type[Request]) -> Request:
        """Returns the request that the job was submitted with."""
        return kind.FromString(self._job.request)

    def report(self, step: str, done: int = 0, total: int = 0) -> None:
        """Reports progress from code that cannot await; watchers see it at once, PostgreSQL within half a second."""
        self._change(replace(self._job, step=storable(step), done=done, total=total))

    async def progress(self, step: str, done: int = 0, total: int = 0) -> None:
        """Reports progress: ``done`` of ``total`` units of a step (0 if the total is unknown).

        The job can be cancelled at this point.
        """
        new_step = step != self._job.step
        self.report(step, done, total)
        if new_step:
            await self.write()
        else:
            await asyncio.sleep(0)

    def note_usage(self, rows: Iterable[types_pb2.ModelUsage]) -> None:
        """Reports the whole usage of models since this attempt began; it is added to that of earlier attempts."""
        self._change(replace(self._job, usage=_together(self._earlier, [_plain(row) for row in rows])))

    async def input(self, name: str) -> bytes:
        """Returns an input that the job was submitted with.

        Raises:
            JobInputMissingError: If the job has no input of this name.
        """
        data = await self.optional_input(name)
        if data is None:
            raise JobInputMissingError(name)
        return data

    async def optional_input(self, name: str) -> bytes | None:
        """Returns an input that the job was submitted with, or ``None`` if it has none of this name."""
        async with self._database.connection() as conn:
            return await jobs.read_input(conn, self._job.id, name)

    async def keep(self, name: str, data: bytes) -> None:
        """Stores a small note for the next attempt; it is durable when this returns."""
        async with self._database.transaction() as conn:
            await jobs.put_note(conn, self._job.id, name, data)

    async def kept(self, name: str) -> bytes | None:
        """Returns the note of this name, stored by an attempt or by ResumeJob; ``None`` if there is none."""
        async with self._database.connection() as conn:
            return await jobs.read_note(conn, self._job.id, name)

    async def write(self) -> bool | None:
        """Writes the progress to PostgreSQL. Ignores an outage, because later progress will be written anyway.

        Returns:
            Whether the job shall be cancelled; ``None`` if the job was deleted.
        """
        async with self._writing:
            self._unwritten = False
            try:
                async with self._database.transaction() as conn:
                    return await jobs.note_progress(conn, self._owner, self._job)
            except (MemoTreeError, psycopg.Error) as error:
                self._unwritten = True
                _log.warning("the progress of a job could not be written", job=self._job.id, why=str(error))
                return False

    async def write_often(self, on_end: Callable[[bool], None]) -> None:
        """Writes changed progress repeatedly, until cancelled.

        Args:
            on_end: Called if the job shall end: with true if it shall be cancelled, with false if it was deleted.
        """
        idle = 0
        while True:
            await asyncio.sleep(WRITE_SECONDS)
            idle = 0 if self._unwritten else idle + 1
            if not self._unwritten and idle % _LOOK_AT_TICKS:
                continue
            cancelled = await self._check() if not self._unwritten else await self.write()
            if cancelled is not False:
                on_end(cancelled is True)
                return

    async def _check(self) -> bool | None:
        """Returns the same as ``write``, for a job without new progress."""
        try:
            async with self._database.connection() as conn:
                return await jobs.end_wanted(conn, self._owner, self._job.id)
        except (MemoTreeError, psycopg.Error):
            return False  # the next check will find out

    def _change(self, job: Job) -> None:
        job = self._job = replace(job, updated_at=datetime.now(UTC))
        self._unwritten = True
        self._on_change(job)


def storable(text: str) -> str:
    """Returns a text that PostgreSQL can store: without NUL and lone surrogates, which a document may contain."""
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")


def _plain(row: types_pb2.ModelUsage) -> dict[str, Any]:
    counts = {name: int(getattr(row, name)) for name in _COUNTS}
    return {"kind": row.kind, "model": row.model, **counts}


def _together(earlier: Iterable[Mapping[str, Any]], now: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the sums by kind and model, in the order of first use."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in (*earlier, *now):
        key = (row["kind"], row["model"])
        sums = found.setdefault(key, {"kind": key[0], "model": key[1], **dict.fromkeys(_COUNTS, 0)})
        for name in _COUNTS:
            sums[name] += row[name]
    return list(found.values())
