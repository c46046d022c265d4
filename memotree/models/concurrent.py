"""Several calls of models at once, of which none is torn off."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def finish_all(calls: Iterable[Awaitable[T]]) -> list[T]:
    """The results of all calls, in order.

    When one fails the others still come to their end before its error (the first in order) is raised: what is under way
    is paid for, so its answer has to reach the cache, and its tokens the meter. A cancellation ends them all at once.
    """
    results = await asyncio.gather(*calls, return_exceptions=True)
    found: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        found.append(result)
    return found
