"""Where work runs: what blocks or computes for long runs in a thread, so that other calls go on.

What blocks in the store (Git, a disk) has threads of its own and never waits for others, nor they for it.
``asyncio.to_thread`` has a few threads for the whole process. Long computations of other parts, such as the split of a
large document, would occupy them all, and then no commit could be written. Comparisons of long texts, which anybody can
ask for at any time, have two threads of their own: many of them wait for each other, and nobody else for them.
"""

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, TypeVar

LONG_TEXT: Final = 1 << 10
"""Texts with more characters than this are split into words or sentences, summarised, titled and compared in a thread.

The costliest of these computations takes some 3 µs a character on a slow machine, and a call may make several of them;
so texts of this length keep other calls waiting for less than 10 ms.
"""

LONG_BYTES: Final = 1 << 16
"""Texts with more characters (or bytes) than this are checked, encoded and counted in a thread: some 0.05 µs each."""

_THREADS: Final = 8
_PIECE: Final = 200
_executor: Final = ThreadPoolExecutor(_THREADS, thread_name_prefix="memotree-store")
_COMPARISON_THREADS: Final = 2
_comparison_executor: Final = ThreadPoolExecutor(_COMPARISON_THREADS, thread_name_prefix="memotree-comparison")

P = ParamSpec("P")
T = TypeVar("T")


async def in_store_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function in a thread of the store and return its result, as ``asyncio.to_thread`` does."""
    call = partial(contextvars.copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_executor, call)


async def in_store_thread_if(is_much: bool, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function in a thread of the store if that is much work, else here: a thread costs more than little work."""
    return await in_store_thread(function, *args, **kwargs) if is_much else function(*args, **kwargs)


async def in_comparison_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a comparison of long texts, which may take some tenths of a second, in a thread for such work."""
    call = partial(contextvars.copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_comparison_executor, call)


async def in_thread_if_long(characters: int, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a computation over texts of this many characters in a thread if they are long (`LONG_TEXT`), else here."""
    if characters > LONG_TEXT:
        return await asyncio.to_thread(function, *args, **kwargs)
    return function(*args, **kwargs)


async def in_turns(items: Sequence[T]) -> AsyncIterator[T]:
    """Yield items, and let other calls run after each piece of them."""
    for number, item in enumerate(items, start=1):
        yield item
        if number % _PIECE == 0:
            await asyncio.sleep(0)
