"""Cancellation of calls that change two stores: once Git may have changed, the rows are always written too."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import structlog
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_exponential, wait_random

from memotree_storage.errors import AbortedError, UnavailableError

_PATIENCE: Final = 3600.0
_CANCEL_AGAIN: Final = 1.0
_log = structlog.get_logger(__name__)

T = TypeVar("T")


@dataclass(slots=True)
class CommitPoint:
    """The point of no return of a piece of work, and whether the work has reached it.

    Before the point a cancellation ends the work, and a rollback takes everything back. From the point on the work runs
    to its end. The write path sets it (see `memotree_storage.commit.transaction`); callers only pass it on.

    Attributes:
        reached: Whether the work has an effect that no rollback takes back.
        found_behind: Whether the work found that another program had changed Git. A rollback takes back that the rows
            followed, so they have to follow again.
    """

    reached: bool = False
    found_behind: bool = False


async def finish_past_commit_point(work: Callable[[CommitPoint], Coroutine[Any, Any, T]]) -> T:
    """Run work that can be cancelled until it reaches its commit point; from then on it runs to its end.

    In both cases the cancellation is raised after the work has ended and released everything it held.
    """
    commit_point = CommitPoint()
    task = asyncio.create_task(work(commit_point))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not commit_point.reached:
            task.cancel()
        await _ended(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("a call failed after its caller had left", why=repr(error))
        raise


async def _ended(task: asyncio.Task[Any]) -> None:
    """Wait for a task to end, even if the waiting is cancelled again and again."""
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            continue


async def cancel_and_wait(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and return when they have ended.

    `asyncio.wait_for` of Python 3.11 can lose a cancellation that arrives when the pool hands out a connection, so the
    cancellation is repeated.
    """
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        done, pending = await asyncio.wait(pending, timeout=_CANCEL_AGAIN)
        for task in done:
            if not task.cancelled() and (error := task.exception()) is not None:
                _log.warning("a task had failed before it was cancelled", task=task.get_name(), why=repr(error))


async def retry_until_done(what: str, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Repeat background work until the stores that it needs answer; log its errors.

    Args:
        what: The work that is missing if it fails for good; for the log.
        work: Makes one attempt; safe to repeat.
    """
    try:
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type((UnavailableError, AbortedError)),
            wait=wait_exponential(multiplier=0.1, max=10) + wait_random(0, 0.1),
            stop=stop_after_delay(_PATIENCE),
        ):
            with attempt:
                await work()
    except Exception:  # noqa: BLE001 - background work goes on, whatever a part of it met
        _log.exception("undone until the next start", what=what)
