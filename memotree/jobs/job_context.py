"""A job as its work sees it: its facts, its inputs, and where it tells how far it is."""

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
"""How often progress is written to PostgreSQL at most, but for a new step."""

_LOOK_AT_TICKS: Final = 4
_COUNTS: Final = ("calls", "prompt_tokens", "completion_tokens", "cached")
_log = structlog.get_logger(__name__)

Request = TypeVar("Request", bound=Message)


class JobInputMissingError(FailedPreconditionError):
    """A job has no input of that name."""

    reason = "JOB_INPUT_MISSING"

    def __init__(self, name: str) -> None:
        super().__init__(f"The job has no input {name!r} any more. Ask for the work again, as a new job.")


class JobContext:
    """What the work function of a job works with; belongs to one attempt.

    Args:
        database: Where the job is.
        owner: The process that runs it.
        job: The job as it was claimed.
        tell: Called with the job at each change.
    """

    def __init__(self, database: Database, owner: str, job: Job, tell: Callable[[Job], None]) -> None:
        self._database = database
        self._owner = owner
        self._job = job
        self._tell = tell
        self._earlier = tuple(job.usage)
        self._unwritten = False
        self._writing = asyncio.Lock()

    @property
    def job(self) -> Job:
        """The facts, with the progress as it is now."""
        return self._job

    @property
    def earlier_usage(self) -> list[types_pb2.ModelUsage]:
        """What models were asked for in the attempts before this one."""
        return [types_pb2.ModelUsage(**row) for row in self._earlier]

    def request(self, kind: type[Request]) -> Request:
        """The request that the job was submitted with."""
        return kind.FromString(self._job.request)

    def report(self, step: str, done: int = 0, total: int = 0) -> None:
        """Tell how far it is, from code that cannot wait; watchers know at once, PostgreSQL within half a second."""
        self._change(replace(self._job, step=storable(step), done=done, total=total))

    async def progress(self, step: str, done: int = 0, total: int = 0) -> None:
        """Tell how far it is: ``done`` of ``total`` units of a step (0: not known how many).

        Also a point at which a cancellation arrives.
        """
        new_step = step != self._job.step
        self.report(step, done, total)
        if new_step:
            await self.write()
        else:
            await asyncio.sleep(0)

    def note_usage(self, rows: Iterable[types_pb2.ModelUsage]) -> None:
        """Tell what models were asked for since this attempt began, all of it; it adds to that of earlier ones."""
        self._change(replace(self._job, usage=_together(self._earlier, [_plain(row) for row in rows])))

    async def input(self, name: str) -> bytes:
        """An input that the job was submitted with.

        Raises:
            JobInputMissingError: There is none of that name.
        """
        async with self._database.connection() as conn:
            data = await jobs.read_input(conn, self._job.id, name)
        if data is None:
            raise JobInputMissingError(name)
        return data

    async def keep(self, name: str, data: bytes) -> None:
        """Keep something small for the next attempt; durable when this returns."""
        async with self._database.transaction() as conn:
            await jobs.put_note(conn, self._job.id, name, data)

    async def kept(self, name: str) -> bytes | None:
        """What an earlier attempt (or this one, or who resumed the job) kept under the name."""
        async with self._database.connection() as conn:
            return await jobs.read_note(conn, self._job.id, name)

    async def write(self) -> bool | None:
        """Write what PostgreSQL does not have yet; an outage is no reason to stop, since more will come.

        Returns:
            Whether somebody asked for the job's end; ``None`` when the job is gone.
        """
        async with self._writing:
            self._unwritten = False
            try:
                async with self._database.transaction() as conn:
                    return await jobs.note_progress(conn, self._owner, self._job)
            except (MemoTreeError, psycopg.Error) as error:
                self._unwritten = True
                _log.warning("the progress of a job is not written", job=self._job.id, why=str(error))
                return False

    async def write_often(self, on_end: Callable[[bool], None]) -> None:
        """Write what has changed, until cancelled.

        Args:
            on_end: Called when the job shall end: with true when somebody asked for it, with false when it is gone.
        """
        idle = 0
        while True:
            await asyncio.sleep(WRITE_SECONDS)
            idle = 0 if self._unwritten else idle + 1
            if not self._unwritten and idle % _LOOK_AT_TICKS:
                continue
            wanted = await self._look() if not self._unwritten else await self.write()
            if wanted is not False:
                on_end(wanted is True)
                return

    async def _look(self) -> bool | None:
        """As ``write``, for a job that has nothing to tell."""
        try:
            async with self._database.connection() as conn:
                return await jobs.end_wanted(conn, self._owner, self._job.id)
        except (MemoTreeError, psycopg.Error):
            return False  # the next look will tell

    def _change(self, job: Job) -> None:
        job = self._job = replace(job, updated_at=datetime.now(UTC))
        self._unwritten = True
        self._tell(job)


def storable(text: str) -> str:
    """A text as PostgreSQL takes it: without NUL and halves of characters, which a document may bring along."""
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")


def _plain(row: types_pb2.ModelUsage) -> dict[str, Any]:
    counts = {name: int(getattr(row, name)) for name in _COUNTS}
    return {"kind": row.kind, "model": row.model, **counts}


def _together(earlier: Iterable[Mapping[str, Any]], now: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The sum by kind and model, in the order of first use."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in (*earlier, *now):
        key = (row["kind"], row["model"])
        sums = found.setdefault(key, {"kind": key[0], "model": key[1], **dict.fromkeys(_COUNTS, 0)})
        for name in _COUNTS:
            sums[name] += row[name]
    return list(found.values())
