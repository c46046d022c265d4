"""Repeats a change while other writers change the same notes, with pauses that let each of them through in turn."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from memotree.client import AbortedError, AlreadyExistsError, MemoTreeClientError, NotFoundError
from memotree.client.errors import without_library_frames
from memotree.integrations.port import is_absent

LONGEST: Final = 30.0
"""Seconds after which no further attempt is begun."""

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0

Pause = Callable[[float], Awaitable[None]]
"""Waits that many seconds."""

Clock = Callable[[], float]
"""Seconds since some moment in the past."""


async def block(seconds: float) -> None:
    """Pauses without suspending, for the blocking client."""
    time.sleep(seconds)  # noqa: ASYNC251 - there is no event loop


class Contention:
    """Repeats changes that lose against other writers.

    Each pause is random, and up to twice as long as the one before, as in `Exponential Backoff And Jitter
    <https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/>`_ ("full jitter"). Without it a writer
    with a longer way to the server would lose every time.

    Args:
        pause: Waits between two attempts.
        clock: Tells how long the attempts have taken.
    """

    def __init__(self, pause: Pause = asyncio.sleep, clock: Clock = time.monotonic) -> None:
        self._pause = pause
        self._clock = clock

    async def outlast(self, attempt: Callable[[], Awaitable[None]], what: str) -> None:
        """Repeats an attempt until it succeeds or `LONGEST` seconds have passed.

        Args:
            attempt: Looks at the present state and makes the change.
            what: What it changes, for the error: "the items".

        Raises:
            AbortedError: Other writers were faster each time.
        """
        begun = self._clock()

        def is_over(_: RetryCallState) -> bool:
            return self._clock() - begun >= LONGEST

        retrying = AsyncRetrying(
            sleep=self._pause,
            stop=is_over,
            wait=wait_random_exponential(multiplier=_FIRST_PAUSE, max=_LONGEST_PAUSE),
            retry=retry_if_exception(_is_lost),
            reraise=True,
        )
        try:
            await retrying(attempt)
        except MemoTreeClientError as error:
            if _is_lost(error):
                raise _given_up(error, what) from None
            raise without_library_frames(error) from None


def _is_lost(error: BaseException) -> bool:
    """Whether a change failed because another writer was first: its node exists already, is gone, or has changed."""
    return isinstance(error, AbortedError | AlreadyExistsError) or (
        isinstance(error, NotFoundError) and is_absent(error)
    )


def _given_up(last: MemoTreeClientError, what: str) -> AbortedError:
    return AbortedError(
        f"Others changed {what} at the same time again and again for {LONGEST:.0f} seconds, so nothing was written. "
        "Make the same call again later, or let fewer writers change the same ones.",
        reason=last.reason,
        conflicts=last.conflicts,
    )
