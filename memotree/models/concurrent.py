"""Runs several calls of models concurrently and lets all of them finish."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def finish_all(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Returns the results of all calls, in order.

    If one fails, the others still run to their end before the first error (in order of the calls) is raised: a call in
    progress is paid for, so its answer must reach the cache and its tokens the meter. A cancellation ends all calls at
    once.
    """
    results = await asyncio.gather(*calls, return_exceptions=True)
    found: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        found.append(result)
    return found
